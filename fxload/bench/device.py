"""What a benchmark asks of the device that it loads to."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fxload._errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fxload.bench.peers import Job

__all__ = ["need_device", "on_host", "synchronize"]


def on_host(device: str) -> bool:
    """Whether tensors stay in the host's memory."""
    return device == "cpu"


def need_device(job: Job, kinds: Sequence[str]) -> None:
    """Raises UnsupportedError unless a peer, which loads to these kinds with torch, can run."""
    if job.raw:
        raise UnsupportedError("it loads with torch alone, and --raw is memory without torch")
    kind = job.device.partition(":")[0]
    if kind not in kinds:
        where = "host memory" if on_host(job.device) else job.device
        raise UnsupportedError(f"it does not load to {where}, but to {' and '.join(kinds)}")
    if not on_host(job.device):
        from fxload.devices.resolve import resolve_device

        resolve_device(job.device)


def synchronize(job: Job) -> None:
    """Wait until all that torch has queued on the device has run: the tensors are there then.

    Raw memory needs no such wait: what fxload hands out has arrived.
    """
    if on_host(job.device) or job.raw:
        return
    torch: Any = importlib.import_module("torch")
    getattr(torch, job.device.partition(":")[0]).synchronize(job.device)
