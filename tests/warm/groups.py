"""Memory control groups of this machine's own, of either version."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.needs import cannot, need_root

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path]:
    """A new group with a limit; write a process number to its cgroup.procs to move it there."""
    need_root("making a control group")
    candidates = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        controllers = line.split(":", 2)[1]
        if "memory" in controllers.split(","):
            candidates.append((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"))
        elif not controllers:
            candidates.append((Path("/sys/fs/cgroup"), "memory.max"))
    for top, limit in candidates:
        group = top / f"fxload-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / limit).exists():
                (group / limit).write_text(str(limit_bytes))
                yield group
                return
        finally:
            group.rmdir()
    cannot("no memory control group can be made here")
