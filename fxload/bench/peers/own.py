"""fxload itself, through the same public call that users make."""

from __future__ import annotations

import importlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxload.bench.device import on_host

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fxload._native import MemoryPool
    from fxload.bench.peers import Job
    from fxload.devices.resolve import Target
    from fxload.load_report import LoadReport
    from fxload.loader import Checkpoint

__all__ = ["OwnRun", "check"]

_SLACK_BYTES = 64 << 20  # alignment gaps and headers come on top of the payload


def check(job: Job) -> None:
    """Import it, as the packages of the others are, before the clock starts."""
    importlib.import_module("fxload.loader")
    if not on_host(job.device):
        _target(job)


def _target(job: Job) -> Target | None:
    from fxload.devices.resolve import raw_target, resolve_device

    return raw_target(job.device) if job.raw else resolve_device(job.device)


class OwnRun:
    """One load; keeps what has to outlive it: the pool touched beforehand, and the report."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._pool: MemoryPool | None = None
        self._report: LoadReport | None = None
        # What earlier loads remembered must not shorten this one, nor this one the user's.
        self._state = tempfile.TemporaryDirectory(prefix="fxload-bench-")

    def prepare(self) -> None:
        """What is done before the clock starts: the imports, as for the others.

        With ``prefault``, the destination is touched too.
        """
        import fxload.loader
        import fxload.tensors

        if not on_host(self._job.device):
            import fxload.devices.destination
            import fxload.devices.raw_windows
            import fxload.devices.torch_windows  # noqa: F401

            target = _target(self._job)
            if self._job.raw and target is not None:
                target.open().memory()  # opens it, as torch has opened what it loads to

        if self._job.prefault:
            from fxload._native import MemoryPool

            self._pool = MemoryPool()
            self._pool.prefault(self._job.payload_bytes + _SLACK_BYTES)

    def load(self) -> Iterator[tuple[str, Any]]:
        """The model itself, never a staged copy of it: the copy is on another storage."""
        with self._open() as checkpoint:
            yield from checkpoint
            self._report = checkpoint.report()

    def _open(self) -> Checkpoint:
        from fxload.config import load_config
        from fxload.load_options import LoadOptions
        from fxload.loader import open_checkpoint, open_target

        job = self._job
        config = replace(load_config(), state_dir=Path(self._state.name))
        if not job.raw:
            return open_checkpoint(
                job.model,
                device=job.device,
                engine=job.engine,
                digest=job.digest,
                pool=self._pool,
                ring_bytes=job.ring_bytes,
                staged=False,
                config=config,
            )
        options = LoadOptions(engine=job.engine, digest=job.digest, ring_bytes=job.ring_bytes)
        return open_target(job.model, _target(job), options, staged=False, config=config)

    def details(self) -> dict[str, object]:
        """What the loader reports of itself: engine, request size, depth, bytes, digest.

        Of a load to a device also where its time went, and its ring.
        """
        report = self._report
        if report is None:
            return {}
        stats = {str(key): value for key, value in report.stats.items()}
        details: dict[str, object] = {
            "engine": report.engine,
            "digest": report.digest,
            "stats": stats,
        }
        if report.copy_s is not None:
            details["device"] = {
                "device": report.device,
                "platform": stats["platform"],
                "name": stats["device_name"],
                "read_s": report.read_s,
                "copy_s": report.copy_s,
                "overlap_s": report.overlap_s,
                "realigned_bytes": report.realigned_bytes,
                "ring_bytes": stats["ring_bytes"],
                "ring_open_bytes": stats["ring_open_bytes"],
                "pinned": stats["pinned"],
                "ring_method": stats["ring_method"],
            }
        return details
