"""Streaming: order, filters, budgets, progress, and how a load ends."""

from __future__ import annotations

import gc
import itertools
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import fxload
from fxload.loader import load_checkpoint, open_checkpoint
from tests.support.checkpoints import same_bytes
from tests.support.footprint import assert_returns_to, footprint

if TYPE_CHECKING:
    from pathlib import Path

    from fxload.progress import Progress
    from tests.loader.conftest import CheckpointFactory

MIB = 1 << 20


def test_tensors_come_in_storage_order(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint(shards=12)
    with open_checkpoint(checkpoint.path) as opened:
        infos = opened.tensors
        names = [name for name, _ in opened]
    assert names == list(infos)
    shards = [int(name.split(".")[1]) for name in names]
    assert shards == sorted(shards)
    for left, right in itertools.pairwise(infos.values()):
        assert left.end == right.begin or right.name.split(".")[1] != left.name.split(".")[1]


def test_filters_read_what_they_want_and_little_more(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint(shards=3, tensors=8, tensor_bytes=MIB)
    with open_checkpoint(
        checkpoint.path,
        include=["layers.[01].*"],
        exclude=["*.w3.*"],
        select=lambda name: "w5" not in name,
    ) as opened:
        loaded = dict(opened)
        report = opened.report()
    wanted = {
        name: tensor
        for name, tensor in checkpoint.tensors.items()
        if name.split(".")[1] in "01" and ".w3." not in name and "w5" not in name
    }
    assert loaded.keys() == wanted.keys()
    assert all(same_bytes(loaded[name], wanted[name]) for name in wanted)
    assert report.wanted_bytes == sum(tensor.nbytes for tensor in wanted.values())
    assert report.stats["landed_bytes"] <= 1.05 * report.wanted_bytes


def test_a_filter_that_wants_nothing_reads_nothing(make_checkpoint: CheckpointFactory) -> None:
    with open_checkpoint(make_checkpoint().path, include=["no.such.*"]) as opened:
        assert dict(opened) == {}
        assert opened.report().stats["landed_bytes"] == 0


def test_a_stream_within_a_budget(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint(shards=4, tensors=20, tensor_bytes=3 * MIB)
    with open_checkpoint(checkpoint.path, budget_bytes=64 * MIB) as opened:
        for name, tensor in opened:
            assert same_bytes(tensor, checkpoint.tensors[name])
        stats = opened.report().stats
    assert stats["peak_bytes"] <= 64 * MIB
    assert stats["over_budget_bytes"] == 0


def test_keeping_everything_exceeds_the_budget_and_is_counted(
    make_checkpoint: CheckpointFactory,
) -> None:
    checkpoint = make_checkpoint(shards=2, tensors=20, tensor_bytes=4 * MIB)
    with open_checkpoint(checkpoint.path, budget_bytes=32 * MIB) as opened:
        checkpoint.assert_equal(dict(opened))
        assert opened.report().stats["over_budget_bytes"] > 0


def test_progress_grows_to_the_whole(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint()
    seen: list[Progress] = []
    load_checkpoint(checkpoint.path, progress=seen.append)
    assert [point.done_bytes for point in seen] == sorted(point.done_bytes for point in seen)
    assert seen[-1].done_bytes == seen[-1].total_bytes > 0


def test_an_iterator_left_in_the_middle_leaks_nothing(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint(shards=2, tensors=10, tensor_bytes=4 * MIB)
    load_checkpoint(checkpoint.path)
    gc.collect()
    before = footprint()
    for _ in range(5):
        with open_checkpoint(checkpoint.path) as opened:
            assert next(iter(opened))[0] == "layers.0.bias"
    gc.collect()
    assert_returns_to(before, slack_bytes=16 * MIB)


def test_a_checkpoint_is_iterated_once_and_not_after_closing(
    make_checkpoint: CheckpointFactory,
) -> None:
    checkpoint = make_checkpoint()
    opened = open_checkpoint(checkpoint.path)
    dict(opened)
    with pytest.raises(fxload.UsageError):
        next(iter(opened))
    opened.close()
    opened.close()
    again = open_checkpoint(checkpoint.path)
    again.close()
    with pytest.raises(fxload.UsageError, match="closed"):
        dict(again)


def test_the_index_decides_what_is_handed_out(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint()
    index = checkpoint.path / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    dropped = "layers.1.w0.weight"
    shard = content["weight_map"].pop(dropped)
    index.write_text(json.dumps(content))
    loaded = load_checkpoint(checkpoint.path)
    assert loaded.keys() == checkpoint.tensors.keys() - {dropped}
    content["weight_map"]["layers.1.absent"] = shard
    index.write_text(json.dumps(content))
    with pytest.raises(fxload.CheckpointError) as caught:
        load_checkpoint(checkpoint.path)
    assert caught.value.rule == "index-mismatch"
    assert "layers.1.absent" in str(caught.value)


def test_memory_is_counted_before_it_is_taken(tmp_path: Path) -> None:
    header = json.dumps(
        {"huge": {"dtype": "U8", "shape": [1 << 44], "data_offsets": [0, 1 << 44]}}
    ).encode()
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        try:
            file.truncate(8 + len(header) + (1 << 44))
        except OSError:
            size = 1 << 42  # file systems differ in the largest file they can hold
            header = header.replace(str(1 << 44).encode(), str(size).encode())
            file.truncate(0)
            file.seek(0)
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + size)
    with pytest.raises(fxload.OutOfMemoryError, match="budget_bytes"):
        load_checkpoint(path)
    with open_checkpoint(path, budget_bytes=64 * MIB) as opened:
        assert list(opened.tensors) == ["huge"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"device": "cuda:0"}, "cuda:0"),
        ({"engine": "libaio"}, "libaio"),
        ({"budget_bytes": 0}, "budget_bytes"),
        ({"budget_bytes": "200MB"}, "budget_bytes"),
        ({"stall_timeout_s": 0}, "stall_timeout_s"),
        ({"stall_timeout_s": "x"}, "stall_timeout_s"),
        ({"progress": 3}, "progress"),
        ({"digest": True, "include": ["a"]}, "without filters"),
        ({"include": "layers.*"}, "include"),
    ],
)
def test_options_that_make_no_sense(
    make_checkpoint: CheckpointFactory, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises((fxload.UsageError, fxload.UnsupportedError), match=reason):
        load_checkpoint(make_checkpoint().path, **options)


@pytest.mark.parametrize("landed", [False, True])
def test_a_forked_child_ends_while_a_load_is_open(
    make_checkpoint: CheckpointFactory, landed: bool
) -> None:
    checkpoint = make_checkpoint(shards=2, tensors=10, tensor_bytes=4 * MIB)
    code = f"""
import os, time, warnings
from fxload.loader import open_checkpoint
warnings.simplefilter("ignore")  # forking beside threads is what is tried here
for _ in range(5):
    with open_checkpoint({str(checkpoint.path)!r}, budget_bytes=32 << 20) as opened:
        tensors = iter(opened)
        kept = next(tensors)[1]
        if {landed}:
            rest = list(tensors)
            time.sleep(0.05)
        child = os.fork()
        if child == 0:
            kept.zero_()
            opened.close()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert len(rest if {landed} else list(tensors)) == 21
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


def test_a_forked_child_lets_go_of_tensors_without_touching_the_pool(
    make_checkpoint: CheckpointFactory,
) -> None:
    """A thread of the parent may have held the pool's mutex at the fork, for ever."""
    model = make_checkpoint()
    code = """
import os, sys, warnings, fxload
from fxload._native import MemoryPool
warnings.simplefilter("ignore")  # forking beside threads is what is tried here
pool = MemoryPool(limit_bytes=1 << 30)
tensors = fxload.load_checkpoint(sys.argv[1], pool=pool)
live = pool.live_bytes
child = os.fork()
if child == 0:
    tensors.clear()
    os._exit(0 if pool.live_bytes == live > 0 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
tensors.clear()
assert pool.live_bytes == 0
"""
    subprocess.run([sys.executable, "-c", code, str(model.path)], check=True, timeout=60)
