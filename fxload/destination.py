"""Where the bytes of one load go, and what tensors are made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from fxload.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fxload._native import DeviceLoad, FileInfo, FileSet, Load
    from fxload.checkpoint.header import TensorInfo
    from fxload.checkpoint.plan import ReadPlan

__all__ = ["Destination", "wait_landed"]

_PROGRESS_S = 0.1
_WAIT_S = 1.0


class Destination(Protocol):
    """The destination of one load, used once, in this order: start, expect, tensors, close.

    Not thread-safe. Errors are those of :func:`fxload.open_checkpoint`.
    """

    device: str  # as torch calls it
    block_bytes: int  # what the plan must keep extents apart by

    def start(self, files: FileSet, plan: ReadPlan) -> None:
        """Start reading what the plan says."""

    def expect(self, wanted: Sequence[Sequence[TensorInfo]], infos: Sequence[FileInfo]) -> None:
        """These tensors of each file will be asked for, in storage order."""

    def tensors(self) -> Iterator[tuple[str, Any]]:
        """Each of them with its name, as its last byte arrives."""

    def finish(self) -> None:
        """Wait for what belongs to no tensor."""

    def digests(self) -> list[str]:
        """The digest of each file, once all of them have landed."""

    def stats(self) -> dict[str, Any]:
        """What the core, and this destination, have counted."""

    @property
    def realigned_bytes(self) -> int:
        """Bytes of tensors that were copied because the file stores them misaligned."""

    def close(self, timeout_s: float) -> None:
        """Stop; release all that no tensor, read or copy still needs. Idempotent."""


def wait_landed(
    load: Load | DeviceLoad, end: int, progress: Callable[[Progress], None] | None
) -> int:
    """Wait until everything below ``end`` has landed; return how far all has."""
    while True:
        landed = load.wait_past(end, _WAIT_S if progress is None else _PROGRESS_S)
        if progress is not None:
            stats = load.stats()
            progress(Progress(stats["landed_bytes"], stats["planned_bytes"]))
        if landed >= end:
            return landed
