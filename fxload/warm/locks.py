"""File locks that the kernel drops when their holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import time
from typing import TYPE_CHECKING

from fxload._errors import DeadlineError
from fxload.warm.faults import os_errors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

__all__ = ["FileLock"]

_POLL_S = 0.02


class FileLock:
    """A held ``flock`` on a file. Closing it, or dying, releases it.

    Locks belong to the open file: two threads that take the same path exclude each other.
    A child made by ``fork`` without ``exec`` keeps the lock alive as long as it lives.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        """Use :meth:`take` or :meth:`try_take`."""
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def try_take(cls, path: Path, *, shared: bool = False, create: bool = False) -> FileLock | None:
        """Take the lock now; None if another holds it, or if there is no such file.

        Raises:
            StorageError: the file cannot be opened or locked.
        """
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        while True:
            with os_errors(path, "take the lock"):
                try:
                    descriptor = os.open(path, flags, 0o600)
                except FileNotFoundError:
                    return None
            held = False
            try:
                with os_errors(path, "take the lock"):
                    try:
                        fcntl.flock(
                            descriptor,
                            (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB,
                        )
                    except BlockingIOError:
                        return None
                # The file may have been removed, or replaced, between opening and locking:
                # then the lock is on a file that nobody else will ever lock.
                held = _is_at(descriptor, path)
                if held:
                    return cls(path, descriptor)
            finally:
                if not held:
                    os.close(descriptor)

    @classmethod
    def take(
        cls,
        path: Path,
        *,
        create: bool = False,
        timeout_s: float,
        waiting: Callable[[], float] | None = None,
    ) -> FileLock:
        """Wait for the exclusive lock.

        Args:
            path: the lock file.
            create: make the file if it is missing.
            timeout_s: how long to wait.
            waiting: called between tries; returns the monotonic time from which ``timeout_s``
                counts, so that a holder who visibly makes progress extends the wait.

        Raises:
            DeadlineError: another held it for ``timeout_s``.
            StorageError: the file cannot be opened or locked.
        """
        since = time.monotonic()
        while True:
            lock = cls.try_take(path, create=create)
            if lock is not None:
                return lock
            if waiting is not None:
                since = waiting()
            if time.monotonic() - since > timeout_s:
                raise DeadlineError(
                    f"another process held this lock for {timeout_s:g} s without progress",
                    path=str(path),
                    hint="see who with: fuser " + str(path),
                )
            time.sleep(_POLL_S)

    @property
    def descriptor(self) -> int:
        """The open lock file."""
        return self._descriptor

    def remove(self) -> None:
        """Delete the lock file, then release: nobody can take a lock on a deleted path."""
        try:
            self.path.unlink(missing_ok=True)
        finally:
            self.close()

    def close(self) -> None:
        """Release. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> FileLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        there = path.lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)
