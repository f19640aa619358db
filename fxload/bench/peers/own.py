"""fxload itself, through the same public call that users make."""

from __future__ import annotations

import importlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from fxload._native import MemoryPool
    from fxload.bench.peers import Job
    from fxload.loader import LoadReport

__all__ = ["OwnRun", "check"]

_SLACK_BYTES = 64 << 20  # alignment gaps and headers come on top of the payload


def check(job: Job) -> None:  # noqa: ARG001 - it has no variants
    """Import it, as the packages of the others are, before the clock starts."""
    importlib.import_module("fxload.loader")


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
        import fxload.tensors  # noqa: F401

        if self._job.prefault:
            from fxload._native import MemoryPool

            self._pool = MemoryPool()
            self._pool.prefault(self._job.payload_bytes + _SLACK_BYTES)

    def load(self) -> Iterator[tuple[str, Tensor]]:
        """The model itself, never a staged copy of it: the copy is on another storage."""
        from fxload.config import load_config
        from fxload.loader import open_checkpoint

        config = replace(load_config(), state_dir=Path(self._state.name))
        with open_checkpoint(
            self._job.model,
            engine=self._job.engine,
            digest=self._job.digest,
            pool=self._pool,
            staged=False,
            config=config,
        ) as checkpoint:
            yield from checkpoint
            self._report = checkpoint.report()

    def details(self) -> dict[str, object]:
        """What the loader reports of itself: engine, request size, depth, bytes, digest."""
        if self._report is None:
            return {}
        stats = {str(key): value for key, value in self._report.stats.items()}
        return {"engine": self._report.engine, "digest": self._report.digest, "stats": stats}
