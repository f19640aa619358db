"""Requests that fail, fall short, hang or lie: one clear error, and a next try that works."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fxload
from tests.faults.conftest import Storage
from tests.support.footprint import assert_returns_to, footprint

if TYPE_CHECKING:
    from tests.conftest import CheckpointFactory, SlowFsFactory

SECOND = "model-00002-of-00003.safetensors"


def assert_names_the_place(error: fxload.FxloadError, storage: Storage, name: str) -> None:
    assert error.path == f"{storage.model}/{name}"
    assert error.offset is not None
    assert 0 <= error.offset < (storage.checkpoint.path / name).stat().st_size
    line = str(error)
    assert error.path in line
    assert str(error.offset) in line
    assert "\n" not in line


def assert_loads(storage: Storage, engine: str) -> None:
    storage.checkpoint.assert_equal(fxload.load_checkpoint(storage.model, engine=engine))


def test_eio_in_the_middle(storage: Storage, engine: str) -> None:
    with (
        storage.fs.faults.during(f"read EIO 5 {SECOND}"),
        pytest.raises(fxload.StorageError) as caught,
    ):
        fxload.load_checkpoint(storage.model, engine=engine)
    assert caught.value.os_errno == errno.EIO
    assert_names_the_place(caught.value, storage, SECOND)
    assert_loads(storage, engine)


def test_eio_leaves_nothing_behind(storage: Storage, engine: str) -> None:
    storage.fs.faults.set(f"read EIO 5 {SECOND}")

    def fail() -> None:
        with pytest.raises(fxload.StorageError):
            fxload.load_checkpoint(storage.model, engine=engine)

    fail()
    before = footprint()
    for _ in range(4):
        fail()
    assert_returns_to(before, slack_bytes=8 << 20)


def test_short_reads_are_completed(storage: Storage, engine: str) -> None:
    with storage.fs.faults.during("direct-read short 3"):
        assert_loads(storage, engine)
    assert storage.fs.counters()["faults"] > 0


def test_interrupted_reads_are_retried(storage: Storage, engine: str) -> None:
    with storage.fs.faults.during("read EAGAIN 11", "read EINTR 17"):
        assert_loads(storage, engine)
    assert storage.fs.counters()["faults"] > 0


def test_an_early_end_is_truncation(
    slowfs: SlowFsFactory, make_checkpoint: CheckpointFactory, engine: str
) -> None:
    # The kernel goes on believing the size that the file had when it was first looked at.
    fs = slowfs(attr_s=3600, keep_cache=False)
    checkpoint = make_checkpoint(fs.root / "model", tensor_bytes=2 << 20)
    storage = Storage(fs, str(fs.mount / "model"), checkpoint)
    sizes = [Path(storage.model, file.name).stat().st_size for file in checkpoint.files]
    os.truncate(checkpoint.files[1], sizes[1] // 2)
    with pytest.raises(fxload.TruncatedError) as caught:
        fxload.load_checkpoint(storage.model, engine=engine)
    assert caught.value.path == f"{storage.model}/{SECOND}"
    assert caught.value.offset is not None
    assert sizes[1] // 2 <= caught.value.offset < sizes[1]


def test_a_flipped_bit_changes_the_digest(storage: Storage, engine: str) -> None:
    def digest() -> str | None:
        with fxload.open_checkpoint(storage.model, engine=engine, digest=True) as checkpoint:
            for _ in checkpoint:
                pass
            return checkpoint.report().digest

    right = digest()
    with storage.fs.faults.during(f"read flip 5 {SECOND}"):
        wrong = digest()
    assert right is not None
    assert wrong is not None
    assert wrong != right
    assert digest() == right


def test_a_hang_ends_at_the_deadline(storage: Storage, engine: str) -> None:
    with storage.fs.faults.during(f"read hang 5 {SECOND}"):
        with pytest.raises(fxload.DeadlineError) as caught:
            fxload.load_checkpoint(storage.model, engine=engine, stall_timeout_s=0.5)
        assert storage.fs.counters()["hanging"] > 0
    assert "\n" not in str(caught.value)
    assert_loads(storage, engine)


def test_a_second_load_works_while_the_first_still_hangs(storage: Storage, engine: str) -> None:
    with storage.fs.faults.during("read hang 5 model-00001*"):
        with pytest.raises(fxload.DeadlineError):
            fxload.load_checkpoint(storage.model, engine=engine, stall_timeout_s=0.5)
        loaded = fxload.load_checkpoint(f"{storage.model}/{SECOND}", engine=engine)
        assert storage.fs.counters()["hanging"] > 0
    assert loaded.keys() == {name for name in storage.checkpoint.tensors if "layers.1." in name}


def test_a_hang_leaves_nothing_behind_once_it_is_over(storage: Storage, engine: str) -> None:
    def fail() -> None:
        with (
            storage.fs.faults.during(f"read hang 5 {SECOND}"),
            pytest.raises(fxload.DeadlineError),
        ):
            fxload.load_checkpoint(storage.model, engine=engine, stall_timeout_s=0.3)

    fail()
    before = footprint()
    fail()
    assert_returns_to(before, slack_bytes=8 << 20)


@pytest.mark.parametrize("operation", ["open", "read"])
def test_a_hang_at_opening_ends_at_the_deadline(storage: Storage, operation: str) -> None:
    with (
        storage.fs.faults.during(f"{operation} hang 1 {SECOND}"),
        pytest.raises(fxload.DeadlineError) as caught,
    ):
        fxload.load_checkpoint(storage.model, stall_timeout_s=0.5)
    assert caught.value.path == f"{storage.model}/{SECOND}"
    assert_loads(storage, "auto")


@pytest.mark.parametrize(
    "refused", ["direct-open EINVAL 1", "direct-read EINVAL 1", "direct-read EIO 1"]
)
def test_direct_reads_that_fail_are_not_used(storage: Storage, engine: str, refused: str) -> None:
    with storage.fs.faults.during(refused):
        assert_loads(storage, engine)
    assert storage.fs.counters()["faults"] > 0


def test_an_open_that_is_refused_names_the_shard(storage: Storage) -> None:
    with (
        storage.fs.faults.during(f"open ESTALE 1 {SECOND}"),
        pytest.raises(fxload.StorageError) as caught,
    ):
        fxload.load_checkpoint(storage.model)
    assert caught.value.os_errno == errno.ESTALE
    assert caught.value.path == f"{storage.model}/{SECOND}"
