"""What this process holds of the machine, to show that a failed load has given it back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple


class Footprint(NamedTuple):
    """Open files, threads and touched private memory of this process."""

    files: int
    threads: int
    anonymous_bytes: int


def footprint() -> Footprint:
    anonymous = next(
        line
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines()
        if line.startswith("Anonymous:")
    )
    return Footprint(
        files=sum(1 for _ in Path("/proc/self/fd").iterdir()),
        threads=sum(1 for _ in Path("/proc/self/task").iterdir()),
        anonymous_bytes=int(anonymous.split()[1]) << 10,
    )


def assert_returns_to(before: Footprint, *, slack_bytes: int, timeout_s: float = 20.0) -> None:
    """Fail unless files and threads are back at `before`, and memory within `slack_bytes`.

    What a request in flight holds is given back when it completes: that may take a moment.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        now = footprint()
        if (
            now.files <= before.files
            and now.threads <= before.threads
            and now.anonymous_bytes <= before.anonymous_bytes + slack_bytes
        ):
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"held after the load: {now}; before it: {before}")
        time.sleep(0.02)
