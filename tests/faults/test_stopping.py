"""Loads that are stopped: by Ctrl-C, or by a consumer that has seen enough."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import fxload
from tests.support.checkpoints import write_holes
from tests.support.footprint import assert_returns_to, footprint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import CheckpointFactory, SlowFsFactory
    from tests.faults.conftest import Storage
    from tests.support.slowfs import SlowFs

LOAD = """
import sys, torch, fxload  # numpy, for one, hides an interrupt that falls into its import
try:
    fxload.load_checkpoint(sys.argv[1], engine=sys.argv[2])
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextlib.contextmanager
def loading(fs: SlowFs, model: str, engine: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", LOAD, model, engine], stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        # A process cannot end before the requests that the kernel has handed to slowfs.
        process.kill()
        fs.unmount()
        process.communicate()


def assert_stops(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "stopped\n"


def test_interrupt_stops_a_slow_load(
    slowfs: SlowFsFactory, make_checkpoint: CheckpointFactory, engine: str
) -> None:
    # At this bandwidth the load takes a quarter of an hour.
    fs = slowfs(mb_per_s=0.2, keep_cache=False)
    make_checkpoint(fs.root / "model", tensor_bytes=16 << 20)
    with loading(fs, str(fs.mount / "model"), engine) as process:
        wait_for(lambda: fs.counters()["reads"] > 6)
        assert_stops(process)


def test_interrupt_stops_a_load_that_hangs(storage: Storage, engine: str) -> None:
    storage.fs.faults.set("read hang 5 model-00002*")
    with loading(storage.fs, storage.model, engine) as process:
        storage.fs.wait_until_hanging()
        assert_stops(process)
        storage.fs.faults.clear()
        assert process.wait(30) == 0


def take_one(model: str, engine: str) -> None:
    with fxload.open_checkpoint(model, engine=engine) as checkpoint:
        for _ in checkpoint:
            break


@pytest.fixture
def slow(slowfs: SlowFsFactory, make_checkpoint: CheckpointFactory) -> SlowFs:
    fs = slowfs(latency_us=5000, mb_per_s=200, keep_cache=False)
    make_checkpoint(fs.root / "model", tensor_bytes=2 << 20)
    return fs


def test_a_closed_iterator_leaves_nothing_behind(slow: SlowFs, engine: str) -> None:
    model = str(slow.mount / "model")
    for _ in range(2):
        take_one(model, engine)
    before = footprint()
    for _ in range(5):
        take_one(model, engine)
    assert_returns_to(before, slack_bytes=8 << 20)


def test_a_closed_iterator_stops_reading(slowfs: SlowFsFactory, engine: str) -> None:
    # More than any engine asks for at once, and nothing but holes.
    fs = slowfs(mb_per_s=400, keep_cache=False)
    size_bytes = 1 << 30
    write_holes(fs.root / "model.safetensors", tensors=64, tensor_bytes=size_bytes // 64)
    take_one(str(fs.mount / "model.safetensors"), engine)
    read = fs.counters()["read_bytes"]
    time.sleep(0.2)
    assert fs.counters()["read_bytes"] == read
    assert read < size_bytes


def test_tensors_outlive_what_read_them(slow: SlowFs, engine: str) -> None:
    before = footprint()
    loaded = fxload.load_checkpoint(str(slow.mount / "model"), engine=engine)
    assert_returns_to(before, slack_bytes=sum(tensor.nbytes for tensor in loaded.values()) * 2)
    slow.unmount()
    assert all(bool(tensor.isnan().any()) in (True, False) for tensor in loaded.values())
    assert not os.path.ismount(slow.mount)
