"""What one load did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["LoadReport"]


@dataclass(frozen=True)
class LoadReport:
    """What one load did.

    Attributes:
        model: the checkpoint that was asked for, resolved to a path.
        read_from: the files that were read: the model's own, or a staged copy of them.
        staged: whether ``read_from`` is a staged copy.
        reason: why that copy was used.
        engine: what did the reads ("io_uring" or "pread").
        wanted_bytes: bytes of the tensors that were asked for.
        realigned_bytes: bytes of tensors that the file stores misaligned, and that were copied
            once more: on the host, or within the device.
        elapsed_s: from opening to the last tensor handed out.
        first_tensor_s: from opening to the first tensor handed out; None before.
        digest: the checkpoint's digest, if it was computed or is remembered.
        stats: the core's own counters.
        device: where the tensors went, as torch calls it.
        read_s: of a load to a device, how long a read was in flight; None on the host.
        copy_s: how long a copy to the device was in flight.
        overlap_s: how long both were.
    """

    model: str
    read_from: str
    staged: bool
    reason: str
    engine: str
    wanted_bytes: int
    realigned_bytes: int
    elapsed_s: float
    first_tensor_s: float | None
    digest: str | None
    stats: dict[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    read_s: float | None = None
    copy_s: float | None = None
    overlap_s: float | None = None
