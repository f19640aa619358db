"""What the file system says of a file, without opening it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from fxload._errors import ModelNotFoundError, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["FileStat", "stat_files"]

_THREADS = 32
_FEW = 4


class FileStat(NamedTuple):
    """A file's identity; ``opened_ns`` is the wall-clock time just before it was asked for."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    opened_ns: int


def stat_files(paths: Sequence[Path]) -> list[FileStat]:
    """The identity of each file, links followed; many at once, since each may be a round trip.

    Raises ModelNotFoundError or StorageError for the first that cannot be asked for.
    """
    if len(paths) <= _FEW:
        return [_stat(path) for path in paths]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(_THREADS, len(paths))) as pool:
        return list(pool.map(_stat, paths))


def _stat(path: Path) -> FileStat:
    now_ns = time.time_ns()
    try:
        found = path.stat()
    except FileNotFoundError as error:
        raise ModelNotFoundError("no such file", path=str(path)) from error
    except OSError as error:
        raise StorageError(
            f"cannot be asked for: {error.strerror}", path=str(path), os_errno=error.errno
        ) from error
    return FileStat(
        found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, now_ns
    )
