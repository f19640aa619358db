"""Copying a source into a staging folder, checked while the bytes pass."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fxload._errors import ChangedError, StorageError
from fxload._native import FileSet, Transfer
from fxload.checkpoint.header import header_size, parse_header
from fxload.checkpoint.shards import allowed_tensors, find_shards
from fxload.host_memory import read_host_memory
from fxload.progress import Progress
from fxload.warm.faults import os_errors
from fxload.warm.source import identity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from fxload.warm.source import Source


__all__ = ["CopyOptions", "copy_checked", "drive", "ring_bytes"]

_TICK_S = 0.1
# What the core takes where memory is plenty: 32 requests of 8 MiB, and some to work on.
_FULL_RING_BYTES = 288 << 20
_LEAST_RING_BYTES = 16 << 20


@dataclass(frozen=True)
class CopyOptions:
    """How to read a source.

    Attributes:
        engine: "auto", "io_uring" or "pread".
        limit_bytes_per_s: leave the rest of the link to others; 0: no limit.
        ring_bytes: memory to read through; 0: as much as is useful, and half of what is left.
        stall_timeout_s: give up when no byte has come for this long.
    """

    engine: str = "auto"
    limit_bytes_per_s: int = 0
    ring_bytes: int = 0
    stall_timeout_s: float = 120.0


def copy_checked(
    source: Source,
    folder: Path,
    *,
    remembered: Mapping[str, str],
    memory_bytes: int,
    options: CopyOptions,
    progress: Callable[[Progress], None],
) -> dict[str, str]:
    """Copy a source's files into an empty folder; return name → digest.

    Args:
        source: what to copy.
        folder: where to; subfolders are made as needed.
        remembered: name → digest, where it is known from before.
        memory_bytes: what the copy itself takes of this host's memory.
        options: how to read.
        progress: told about ten times a second.

    Raises:
        CheckpointError: the headers or the index break a rule; nothing is copied.
        ChangedError: the source changed while it was copied.
        StorageError: it cannot be read, or its bytes are not the ones that are remembered.
        CapacityError: the file system of ``folder`` is full.
        DeadlineError: no byte came for the stall timeout.
    """
    sinks = [folder / file.name for file in source.files]
    with os_errors(folder, "make the staging folder"):
        for parent in {sink.parent for sink in sinks}:
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = FileSet(
        [str(file.path) for file in source.files],
        whole_header=True,
        timeout_s=options.stall_timeout_s,
    )
    with closing(files):
        _check_identity(source, files)
        _check_headers(source, files)
        with os_errors(folder, "write the copy"):
            transfer = Transfer(
                files,
                sinks=[os.fspath(sink) for sink in sinks],
                digest=True,
                ring_bytes=options.ring_bytes or ring_bytes(memory_bytes),
                engine=options.engine,
                limit_bytes_per_s=options.limit_bytes_per_s,
                stall_timeout_s=options.stall_timeout_s,
            )
        with transfer:
            drive(transfer, progress)
            found = transfer.digests()
        files.check_unchanged()
    digests = {file.name: digest for file, digest in zip(source.files, found, strict=True)}
    for file in source.files:
        known = remembered.get(file.name)
        if known is not None and known != digests[file.name]:
            raise StorageError(
                f"its bytes have the digest {digests[file.name]}, but {known} is remembered and "
                "the file says that it did not change",
                path=str(file.path),
                hint="check the storage; then read it again with: fxload inspect --digest",
            )
    _check_copy(source, folder)
    return digests


def ring_bytes(memory_bytes: int = 0) -> int:
    """Memory to read through; 0, which lets the core decide, unless memory is scarce.

    Args:
        memory_bytes: what is spoken for beside.
    """
    left = (read_host_memory().available_bytes - memory_bytes) // 2
    return 0 if left >= _FULL_RING_BYTES else max(_LEAST_RING_BYTES, left)


def drive(transfer: Transfer, progress: Callable[[Progress], None]) -> None:
    """Wait for a transfer, telling how far it has come."""
    done = False
    while not done:
        done = transfer.wait(_TICK_S)
        stats = transfer.stats()
        progress(Progress(stats["done_bytes"], stats["total_bytes"]))


def _check_identity(source: Source, files: FileSet) -> None:
    for file, info in zip(source.files, files.infos, strict=True):
        opened = (info.device, info.inode, info.size_bytes, info.mtime_ns, info.ctime_ns)
        if identity_of(file.stat) != opened:
            raise ChangedError(
                "the file changed between listing and opening it",
                path=str(file.path),
                hint="wait until it is written, then try again",
            )


def _check_headers(source: Source, files: FileSet) -> None:
    """What no engine could load is not staged."""
    headers = []
    for number, file in enumerate(source.files):
        if not file.weights:
            continue
        raw = files.head(number)
        length = header_size(raw[:8], file.size_bytes, str(file.path))
        if len(raw) < length:
            raw = files.read(number, 0, length)
        headers.append(parse_header(raw[:length], file.size_bytes, str(file.path)))
    allowed_tensors(source.shards, headers)


def _check_copy(source: Source, folder: Path) -> None:
    """The copy must be taken for the same checkpoint as the source."""
    staged = find_shards(folder / source.file)
    if staged.files != source.shards.files:
        raise StorageError(
            f"the copy would be read as {staged.files}, the source is {source.shards.files}",
            path=str(source.path),
            hint="give the path of the index or of the weight file to stage",
        )
