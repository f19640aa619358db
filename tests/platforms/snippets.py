"""Snippets that speak to a stand-in runtime through `RawRuntime`, in processes of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.simulators import Run, Simulator


def run_raw(standin: Simulator, code: str, *arguments: str | Path, **controls: Any) -> Run:
    """Run a snippet that has selected device 0: device memory, a pinned source, streams, an event.

    The snippet's `raw` speaks to any of the runtimes in the same words.
    """
    opening = f"""
import ctypes, mmap, os, sys, threading
from tests.platforms.raw_runtime import D2D, D2H, H2D, RawRuntime, address_of

raw = RawRuntime(runtime, {standin.kind!r})
SIZE = 1 << 20
assert raw.select(0) == 0
device = raw.allocate(SIZE)
source = raw.pinned(SIZE)
source[:] = b"s" * SIZE
stream, other = raw.stream(), raw.stream()
event = raw.event()

def on_device(length=4, offset=0):
    return ctypes.string_at(device + offset, length)
"""
    return standin.python(opening + code, *arguments, **controls)


def broken_rules(standin: Simulator, code: str, **controls: Any) -> list[str]:
    """The violations that a snippet of `run_raw` leaves."""
    violations: list[str] = run_raw(standin, code, **controls).report["violations"]
    return violations
