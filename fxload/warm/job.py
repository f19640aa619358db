"""One stager for a source at a time; the others wait for its result and see its progress."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from fxload._errors import CapacityError
from fxload.progress import Progress
from fxload.warm.faults import os_errors
from fxload.warm.locks import FileLock
from fxload.warm.manifest import FORMAT

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from fxload.warm.store import Store

__all__ = ["Job"]

_RECORD_BYTES = 128


class Job:
    """The right to stage one source into one store, until it is closed or its holder dies."""

    def __init__(self, lock: FileLock) -> None:
        """Use :meth:`take`."""
        self._lock = lock

    @classmethod
    def take(
        cls,
        store: Store,
        key: str,
        *,
        stall_timeout_s: float,
        progress: Callable[[Progress], None] | None,
    ) -> Job:
        """Become the stager of the source ``key``, after whoever is at it now.

        Args:
            store: where it is staged.
            key: of the source, :attr:`Source.key`.
            stall_timeout_s: how long a stager ahead may show no progress.
            progress: told how far the stager ahead has come.

        Raises:
            DeadlineError: the stager ahead made no progress for ``stall_timeout_s``.
        """
        path = store.jobs / f"v{FORMAT}-{key}.lock"
        seen = Progress(-1, -1)
        since = time.monotonic()

        def watch() -> float:
            nonlocal seen, since
            with os_errors(path, "read how far another process has come"):
                try:
                    now = _decode(path.read_bytes())
                except FileNotFoundError:
                    now = None
            if now is not None and now != seen:
                seen, since = now, time.monotonic()
                if progress is not None:
                    progress(now)
            return since

        lock = FileLock.take(path, create=True, timeout_s=stall_timeout_s, waiting=watch)
        job = cls(lock)
        job.tell(Progress(0, 0))
        return job

    def tell(self, progress: Progress) -> None:
        """Show those who wait how far this stager has come."""
        record = json.dumps({"pid": os.getpid(), "done": progress[0], "total": progress[1]})
        try:
            with os_errors(self._lock.path, "show progress"):
                os.pwrite(self._lock.descriptor, record.encode().ljust(_RECORD_BYTES), 0)
        except CapacityError:
            # On a full store this comes before the eviction that makes room.
            return

    def close(self) -> None:
        """Let the next one go on. Idempotent."""
        if self._lock.descriptor >= 0:
            self._lock.remove()

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _decode(raw: bytes) -> Progress | None:
    """None while the record is not whole yet."""
    try:
        record = json.loads(raw)
        return Progress(int(record["done"]), int(record["total"]))
    except (ValueError, KeyError, TypeError):
        return None
