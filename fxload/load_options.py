"""What a load is asked for, judged before any file is opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fxload._errors import UsageError
from fxload.checkpoint.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Callable

    from fxload._native import MemoryPool
    from fxload.progress import Progress

__all__ = ["LoadOptions"]

_ENGINES = ("auto", "io_uring", "pread")


@dataclass(frozen=True)
class LoadOptions:
    """The options of :func:`fxload.open_checkpoint`; raises UsageError for what makes no sense.

    ``depth`` is how many requests are in flight; 0 lets the core choose.
    """

    selection: Selection = field(default_factory=Selection)
    budget_bytes: int | None = None
    device_memory_budget: int | None = None
    ring_bytes: int | None = None
    digest: bool = False
    engine: str = "auto"
    depth: int = 0
    pool: MemoryPool | None = None
    progress: Callable[[Progress], None] | None = None
    stall_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        if self.engine not in _ENGINES:
            raise UsageError(
                f"no I/O engine named {self.engine!r}", hint="one of " + ", ".join(_ENGINES)
            )
        if self.digest and not self.selection.everything:
            raise UsageError("a digest covers every byte: it needs a load without filters")
        for name in ("budget_bytes", "device_memory_budget", "ring_bytes"):
            size = getattr(self, name)
            if size is not None and (not isinstance(size, int) or size <= 0):
                raise UsageError(
                    f"{name} is {size!r}, not a number of bytes",
                    hint="leave it out for "
                    + ("a default" if name == "ring_bytes" else "no budget"),
                )
        timeout_s = self.stall_timeout_s
        if not isinstance(timeout_s, (int, float)) or not timeout_s > 0:
            raise UsageError(f"stall_timeout_s is {timeout_s!r}, not a number of seconds")
        if self.progress is not None and not callable(self.progress):
            raise UsageError(f"progress is {self.progress!r}, not a function of a Progress")

    def check_for(self, *, on_device: bool) -> None:
        """Raises UsageError for an option that only the other kind of destination has."""
        host = {"budget_bytes": self.budget_bytes, "pool": self.pool}
        device = {"device_memory_budget": self.device_memory_budget, "ring_bytes": self.ring_bytes}
        for name, given in (host if on_device else device).items():
            if given is not None:
                where = "the host's memory" if on_device else "a device"
                raise UsageError(
                    f"{name} is about loads into {where}",
                    hint="a device has device_memory_budget"
                    if on_device
                    else 'leave it out, or load to a device ("cuda:0", "npu:0")',
                )
