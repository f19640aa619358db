"""Files that change before, or under, a load: an error, never old bytes and never SIGBUS."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import fxload

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import CheckpointFactory, MountTable
    from tests.faults.conftest import Storage


def append(file: Path) -> None:
    with file.open("ab") as handle:
        handle.write(b"more")


def cut_in_half(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def flip_a_byte(file: Path) -> None:
    with file.open("r+b") as handle:
        handle.seek(-1, os.SEEK_END)
        last = handle.read(1)[0]
        handle.seek(-1, os.SEEK_END)
        handle.write(bytes([last ^ 1]))


def load_and_meddle(model: str, engine: str, meddle: Callable[[], None]) -> None:
    """Load everything; once the first tensor is there, do what must be noticed."""
    with fxload.open_checkpoint(model, engine=engine) as checkpoint:
        for number, _ in enumerate(checkpoint):
            if number == 0:
                meddle()


@pytest.mark.parametrize("change", [append, cut_in_half])
def test_a_wrong_size_is_a_broken_rule(storage: Storage, change: Callable[[Path], None]) -> None:
    change(storage.checkpoint.files[1])
    with pytest.raises(fxload.CheckpointError) as caught:
        fxload.load_checkpoint(storage.model)
    assert caught.value.path == f"{storage.model}/{storage.checkpoint.files[1].name}"
    assert caught.value.rule


@pytest.mark.parametrize("change", [append, cut_in_half, flip_a_byte])
def test_a_change_under_the_load_is_seen(
    storage: Storage, engine: str, change: Callable[[Path], None]
) -> None:
    last = storage.checkpoint.files[-1]
    with pytest.raises(fxload.StorageError) as caught:
        load_and_meddle(storage.model, engine, lambda: change(last))
    assert isinstance(caught.value, (fxload.ChangedError, fxload.TruncatedError))
    assert caught.value.path == f"{storage.model}/{last.name}"


@pytest.mark.parametrize("kind", ["ext4", "tmpfs", "overlay"])
def test_a_local_file_that_shrinks_under_the_load(
    mount_table: MountTable, make_checkpoint: CheckpointFactory, kind: str, engine: str
) -> None:
    written = make_checkpoint(mount_table.fresh_folder(kind) / "model", tensor_bytes=1 << 20)
    with pytest.raises(fxload.StorageError) as caught:
        load_and_meddle(str(written.path), engine, lambda: cut_in_half(written.files[-1]))
    assert caught.value.path == str(written.files[-1])
