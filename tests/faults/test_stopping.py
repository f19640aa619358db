"""Loads that are stopped: by Ctrl-C, or by a consumer that has seen enough."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import fxload
from tests.support.footprint import assert_returns_to, footprint

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import CheckpointFactory, SlowFsFactory
    from tests.faults.conftest import Storage
    from tests.support.slowfs import SlowFs

LOAD = """
import sys, fxload
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


def start(model: str, engine: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", LOAD, model, engine], stdout=subprocess.PIPE, text=True
    )


def test_interrupt_stops_a_slow_load(
    slowfs: SlowFsFactory, make_checkpoint: CheckpointFactory, engine: str
) -> None:
    # At this bandwidth the load takes an hour.
    fs = slowfs(mb_per_s=0.05, keep_cache=False)
    make_checkpoint(fs.root / "model", tensor_bytes=16 << 20)
    with start(str(fs.mount / "model"), engine) as process:
        wait_for(lambda: fs.counters()["reads"] > 4)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline() == "stopped\n"
        # Requests that the kernel has handed to slowfs are over when slowfs is.
        fs.unmount()
        assert process.wait(30) == 0


def test_interrupt_stops_a_load_that_hangs(storage: Storage, engine: str) -> None:
    storage.fs.faults.set("read hang 5 model-00002*")
    with start(storage.model, engine) as process:
        storage.fs.wait_until_hanging()
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline() == "stopped\n"
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


def test_a_closed_iterator_stops_reading(
    slowfs: SlowFsFactory, make_checkpoint: CheckpointFactory, engine: str
) -> None:
    fs = slowfs(latency_us=1000, mb_per_s=40, keep_cache=False)
    written = make_checkpoint(fs.root / "model", tensor_bytes=16 << 20)
    take_one(str(fs.mount / "model"), engine)
    read = fs.counters()["read_bytes"]
    time.sleep(0.2)
    assert fs.counters()["read_bytes"] == read
    assert read < written.size_bytes


def test_tensors_outlive_what_read_them(slow: SlowFs, engine: str) -> None:
    before = footprint()
    loaded = fxload.load_checkpoint(str(slow.mount / "model"), engine=engine)
    assert_returns_to(before, slack_bytes=sum(tensor.nbytes for tensor in loaded.values()) * 2)
    slow.unmount()
    assert all(bool(tensor.isnan().any()) in (True, False) for tensor in loaded.values())
    assert not os.path.ismount(slow.mount)
