"""Whole loads into device memory, on the platform that every host has: plan to last byte."""

from __future__ import annotations

import gc
import os
import weakref
from typing import TYPE_CHECKING, Any

import pytest

import fxload
from fxload._errors import OutOfMemoryError, UsageError
from fxload._native import digest_bytes
from fxload.checkpoint import Selection
from fxload.checkpoint.identity import model_digest
from tests.devices.loading import MIB, load_raw, open_raw, reference_bytes
from tests.devices.properties import check_random_loads
from tests.loader.raw import write_raw
from tests.support.footprint import assert_returns_to, footprint

if TYPE_CHECKING:
    from pathlib import Path

    from fxload.progress import Progress
    from tests.loader.conftest import CheckpointFactory

pytestmark = pytest.mark.platforms


def test_every_byte_arrives_whatever_the_plan() -> None:
    check_random_loads("host", raw=True, examples=80, align=64)


def test_a_report_tells_where_the_time_went(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint(shards=3, tensors=6, tensor_bytes=2 * MIB)
    loaded, report = load_raw(checkpoint.path)
    assert loaded.keys() == checkpoint.tensors.keys()
    assert report.device == "host:0"
    assert report.read_s is not None
    assert report.copy_s is not None
    assert report.overlap_s is not None
    assert 0 <= report.overlap_s <= min(report.read_s, report.copy_s) <= report.elapsed_s
    stats = report.stats
    assert stats["ring_bytes"] == 40 * MIB
    assert stats["pinned"] is True
    assert stats["copied_bytes"] >= report.wanted_bytes
    assert stats["windows"] == 1
    # save_file pads headers to 8 bytes: a shard is aligned by luck, and all counts agree.
    assert report.realigned_bytes == stats["moved_bytes"]


def test_the_digest_is_that_of_a_load_into_host_memory(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint(shards=2, tensors=5, tensor_bytes=4 * MIB)
    expected = model_digest(
        (file.name, file.stat().st_size, digest_bytes(file.read_bytes()))
        for file in checkpoint.files
    )
    loaded, report = load_raw(checkpoint.path, digest=True, ring_bytes=1)
    assert report.digest == expected
    assert {name: tensor.to_bytes() for name, tensor in loaded.items()} == reference_bytes(
        checkpoint.files
    )


def test_a_stream_within_a_budget_recycles_windows(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint(shards=4, tensors=24, tensor_bytes=2 * MIB)
    expected = reference_bytes(checkpoint.files)
    with open_raw(checkpoint.path, device_memory_budget=64 * MIB, ring_bytes=1) as opened:
        tensor: Any
        for name, tensor in opened:
            assert tensor.to_bytes() == expected[name]
        stats = opened.report().stats
    assert stats["windows"] > 20
    assert stats["device_peak_bytes"] <= 64 * MIB
    assert stats["over_budget_bytes"] == 0


@pytest.mark.parametrize("pad_to", [4096, 1])
def test_a_tensor_that_fits_into_its_neighbours_last_block(tmp_path: Path, pad_to: int) -> None:
    """Its bytes have landed with the neighbour's window: it must not be looked for in the next."""
    sizes = [("large", 9 * MIB + 40), ("tiny", 16)]
    tensors = [(f"{kind}.{i}", "U8", [size]) for i in range(6) for kind, size in sizes]
    expected = write_raw(tmp_path / "model.safetensors", tensors, pad_to=pad_to)
    for _ in range(5):
        with open_raw(tmp_path, device_memory_budget=1, ring_bytes=1) as opened:
            tensor: Any
            for name, tensor in opened:
                assert tensor.to_bytes() == expected[name], name


def test_keeping_everything_exceeds_the_budget_and_is_counted(
    make_checkpoint: CheckpointFactory,
) -> None:
    checkpoint = make_checkpoint(shards=2, tensors=24, tensor_bytes=2 * MIB)
    loaded, report = load_raw(checkpoint.path, device_memory_budget=32 * MIB, ring_bytes=1)
    assert {name: tensor.to_bytes() for name, tensor in loaded.items()} == reference_bytes(
        checkpoint.files
    )
    assert report.stats["over_budget_bytes"] > 0
    assert report.stats["device_peak_bytes"] > 32 * MIB


def test_what_the_consumer_lets_go_of_is_free_while_the_next_is_awaited(tmp_path: Path) -> None:
    # All aligned: none needs a second place to move to.
    tensors = [(f"w{i}", "U8", [9 * MIB]) for i in range(12)]
    write_raw(tmp_path / "model.safetensors", tensors, pad_to=4096)
    last: Any = None
    freed = []

    def look(progress: Progress) -> None:
        if last is not None:
            freed.append(last() is None)

    # Each tensor has a window of its own, placed when it is asked for.
    with open_raw(tmp_path, device_memory_budget=1, ring_bytes=1, progress=look) as opened:
        tensor: Any
        for _, tensor in opened:
            last = weakref.ref(tensor.block)
            del tensor
        peak_bytes = opened.report().stats["device_peak_bytes"]
    assert len(freed) >= 11
    assert all(freed)
    assert peak_bytes <= 10 * MIB


def test_one_tensor_kept_keeps_its_own_window_alone(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint(shards=1, tensors=60, tensor_bytes=4 * MIB)
    expected = reference_bytes(checkpoint.files)
    gc.collect()
    before = footprint().anonymous_bytes
    with open_raw(checkpoint.path, ring_bytes=1) as opened:
        kept: Any = next(tensor for name, tensor in opened if name == "layers.0.w30.weight")
    gc.collect()
    assert footprint().anonymous_bytes <= before + 80 * MIB
    assert kept.to_bytes() == expected["layers.0.w30.weight"]


def test_a_load_left_in_the_middle_releases_everything(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint(shards=2, tensors=20, tensor_bytes=4 * MIB)
    load_raw(checkpoint.path)
    gc.collect()
    before = footprint()
    for _ in range(4):
        with open_raw(checkpoint.path, ring_bytes=64 * MIB) as opened:
            next(iter(opened))
    with pytest.raises(KeyError), open_raw(checkpoint.path) as opened:
        raise KeyError(next(iter(opened))[0])
    opened = open_raw(checkpoint.path)
    opened.close()
    opened.close()
    with pytest.raises(UsageError, match="closed"):
        dict(opened)
    del opened
    gc.collect()
    assert_returns_to(before, slack_bytes=16 * MIB)
    loaded, _ = load_raw(checkpoint.path)
    assert {name: tensor.to_bytes() for name, tensor in loaded.items()} == reference_bytes(
        checkpoint.files
    )


def test_two_loads_at_once_on_one_device(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint(shards=2, tensors=10, tensor_bytes=3 * MIB)
    expected = reference_bytes(checkpoint.files)
    with (
        open_raw(checkpoint.path, ring_bytes=1) as left,
        open_raw(checkpoint.path, ring_bytes=1) as right,
    ):
        count = 0
        one: Any
        other: Any
        for (name, one), (same, other) in zip(left, right, strict=True):
            assert name == same
            assert one.to_bytes() == other.to_bytes() == expected[name]
            count += 1
    assert count == len(expected)


def test_progress_grows_to_the_whole(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint()
    seen: list[Progress] = []
    load_raw(checkpoint.path, progress=seen.append)
    assert [point.done_bytes for point in seen] == sorted(point.done_bytes for point in seen)
    assert seen[-1].done_bytes == seen[-1].total_bytes > 0


def test_filters_read_what_they_want_and_little_more(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint(shards=3, tensors=8, tensor_bytes=MIB)
    selection = Selection(include=["layers.[01].*"], exclude=["*.w3.*"])
    loaded, report = load_raw(checkpoint.path, selection=selection)
    assert set(loaded) == {name for name in checkpoint.tensors if selection.wants(name)}
    assert report.stats["landed_bytes"] <= 1.05 * report.wanted_bytes
    nothing, report = load_raw(checkpoint.path, selection=Selection(include=["no.such.*"]))
    assert nothing == {}
    assert report.stats["copied_bytes"] == 0


def test_a_file_that_ends_early_is_named(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint(shards=1, tensors=20, tensor_bytes=4 * MIB)
    with open_raw(checkpoint.path, ring_bytes=1) as opened:
        os.truncate(checkpoint.files[0], 50 * MIB)
        with pytest.raises(fxload.StorageError) as caught:
            dict(opened)
    assert str(checkpoint.files[0]) in str(caught.value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"budget_bytes": 1 << 30}, "device_memory_budget"),
        ({"pool": fxload.MemoryPool()}, "pool"),
        ({"device_memory_budget": 0}, "device_memory_budget"),
        ({"ring_bytes": -5}, "ring_bytes"),
        ({"ring_bytes": "64MiB"}, "ring_bytes"),
    ],
)
def test_options_that_make_no_sense(
    make_checkpoint: CheckpointFactory, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        load_raw(make_checkpoint().path, **options)


@pytest.mark.parametrize("option", ["device_memory_budget", "ring_bytes"])
def test_what_a_device_has_is_refused_for_the_host(
    make_checkpoint: CheckpointFactory, option: str
) -> None:
    options: dict[str, Any] = {option: 1 << 30}
    with pytest.raises(UsageError, match=option):
        fxload.load_checkpoint(make_checkpoint().path, **options)


def test_a_ring_that_the_host_cannot_hold_is_refused(make_checkpoint: CheckpointFactory) -> None:
    with pytest.raises(OutOfMemoryError, match="ring_bytes"):
        load_raw(make_checkpoint().path, ring_bytes=1 << 50)


def test_what_torch_lacks_is_named_before_anything_is_handed_out(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_raw(path, [("a", "F32", [4]), ("six", "F6_E2M3", [4])])
    with open_raw(path) as opened, pytest.raises(fxload.UnsupportedError, match="F6_E2M3"):
        next(iter(opened))
