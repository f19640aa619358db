"""Counting the bytes that really came from storage, and emptying the page cache before it.

A read is proven cold by one of, in this order:

- ``slowfs``: the mount serves a file ``.slowfs`` with counters of what crossed it;
- ``proc_io``: ``read_bytes`` of ``/proc/self/io``, which counts what a process made block devices
  and NFS read (FUSE reads count as 0);
- ``residency``: nothing of the files was in the page cache right before;
- ``assumed``: the kernel tells nothing to believe (the files of another user): treated as cold.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Counters",
    "Proof",
    "evict",
    "prove_cold",
    "read_counters",
    "read_into_cache",
    "resident",
]

# Headers and the last block of a file may be read through the cache by several loaders.
_COLD_SHARE = 0.99
_WARM_CHUNK_BYTES = 8 << 20
_COUNTER_FILE = ".slowfs"
# What read-only file systems answer to fsync: they have nothing to write back.
_NO_FSYNC = frozenset({errno.EINVAL, errno.EROFS, errno.ENOSYS, errno.EBADF, errno.ENOTSUP})


@dataclass(frozen=True)
class Counters:
    """Bytes that storage has delivered so far: to this process, and by mounts that count."""

    process_bytes: int | None
    mount_bytes: int | None

    def since(self, before: Counters) -> Counters:
        """The difference of two readings."""
        return Counters(
            _difference(self.process_bytes, before.process_bytes),
            _difference(self.mount_bytes, before.mount_bytes),
        )


@dataclass(frozen=True)
class Proof:
    """Whether a read was cold, and how that is known.

    ``physical_bytes`` is None where nothing counted them.
    """

    cold: bool
    method: str
    physical_bytes: int | None
    expected_bytes: int
    resident_before_bytes: int | None
    reason: str = ""

    def as_json(self) -> dict[str, object]:
        """All fields."""
        return asdict(self)


def _difference(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else now - before


def read_counters(paths: Sequence[str]) -> Counters:
    """The counters that concern ``paths``; the process's are those of the caller."""
    mounts = {counter for path in paths if (counter := _mount_counter(path)) is not None}
    mount_bytes = sum(_slowfs_bytes(counter) for counter in mounts) if mounts else None
    return Counters(_process_bytes(), mount_bytes)


def _process_bytes() -> int | None:
    try:
        text = Path("/proc/self/io").read_text()
    except OSError:
        return None  # hidden in some containers: then residency has to prove it
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == "read_bytes":
            return int(value)
    return None


def _mount_counter(path: str) -> Path | None:
    """The counters' file of the mount that holds ``path``, if it serves one."""
    place = Path(os.path.realpath(path)).parent
    device = place.stat().st_dev
    while place != place.parent and place.parent.stat().st_dev == device:
        place = place.parent
    counter = place / _COUNTER_FILE
    return counter if counter.is_file() else None


def _slowfs_bytes(counter: Path) -> int:
    return int(json.loads(counter.read_text())["read_bytes"])


def evict(paths: Sequence[str]) -> None:
    """Drop the files' clean pages from the page cache; dirty ones are written first."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _write_back(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _write_back(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FSYNC:
            raise


def read_into_cache(paths: Sequence[str]) -> None:
    """Read every byte through the page cache."""
    buffer = bytearray(_WARM_CHUNK_BYTES)
    for path in paths:
        with Path(path).open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def resident(paths: Sequence[str]) -> int | None:
    """Bytes of the files that are in the page cache; None where the kernel does not tell."""
    from fxload import _native

    total = 0
    for path in paths:
        answer = _native.residency(path)
        if not answer["provable"]:
            return None
        total += answer["bytes"]
    return total


def prove_cold(spent: Counters, resident_before: int | None, expected_bytes: int) -> Proof:
    """Judge a read of ``expected_bytes`` by what storage delivered meanwhile."""
    for method, delivered in (("slowfs", spent.mount_bytes), ("proc_io", spent.process_bytes)):
        if delivered is not None and delivered >= _COLD_SHARE * expected_bytes:
            return Proof(True, method, delivered, expected_bytes, resident_before)
        if method == "slowfs" and delivered is not None:
            reason = f"the mount delivered {delivered} of {expected_bytes} bytes"
            return Proof(False, method, delivered, expected_bytes, resident_before, reason)
    physical = spent.process_bytes or None
    if resident_before is None:
        reason = "the kernel does not tell what it caches of these files"
        return Proof(True, "assumed", physical, expected_bytes, None, reason)
    cached_share = resident_before / max(expected_bytes, 1)
    if physical is None and cached_share <= 1 - _COLD_SHARE:
        return Proof(True, "residency", None, expected_bytes, resident_before)
    reason = (
        f"{resident_before} of {expected_bytes} bytes were cached before, "
        f"{physical or 0} came from storage"
    )
    return Proof(False, "proc_io", physical, expected_bytes, resident_before, reason)
