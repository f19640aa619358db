"""One timed read or load, and what it cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fxload.bench.physical import Proof

__all__ = ["Failure", "Sample"]


@dataclass(frozen=True)
class Sample:
    """What one run measured.

    Attributes:
        round_index: the interleaved round it belongs to.
        payload_bytes: bytes that reached their destination.
        elapsed_s: from the call to the last tensor in hand.
        cpu_s: user and system time of the whole process, all threads, within ``elapsed_s``.
        first_tensor_s: until the first tensor was in hand; None for raw reads.
        peak_over_payload_bytes: highest resident memory, less what ``import torch`` had left
            and, where it lies in host memory, less the payload; None for raw reads.
        proof: how the read is known to be cold; None for cached runs.
        details: what the loader says of itself (engine, request size, …).
    """

    round_index: int
    payload_bytes: int
    elapsed_s: float
    cpu_s: float
    first_tensor_s: float | None = None
    peak_over_payload_bytes: int | None = None
    proof: Proof | None = None
    details: dict[str, object] = field(default_factory=dict)

    @property
    def bytes_per_s(self) -> float:
        """Payload over elapsed time."""
        return self.payload_bytes / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def cpu_s_per_gb(self) -> float:
        """Processor seconds for each 1e9 bytes."""
        return self.cpu_s / self.payload_bytes * 1e9 if self.payload_bytes else 0.0

    def as_json(self) -> dict[str, object]:
        """All fields and the derived rates."""
        return asdict(self) | {
            "gb_per_s": self.bytes_per_s / 1e9,
            "cpu_s_per_gb": self.cpu_s_per_gb,
        }


@dataclass(frozen=True)
class Failure:
    """A run that gave no figure. ``kind``: missing, unusable, failed, not_cold, wrong_content."""

    round_index: int
    kind: str
    reason: str

    def as_json(self) -> dict[str, object]:
        """All fields."""
        return asdict(self)
