"""The exceptions of fxload.

Each also derives from the builtin that a caller would expect, and says where it happened::

    FxloadError(Exception)
    ├── UsageError          (ValueError)           an argument or a setting makes no sense
    ├── ModelNotFoundError  (FileNotFoundError)    no such model, file or shard
    ├── CheckpointError     (ValueError)           the files break a rule of their format
    ├── UnsupportedError    (NotImplementedError)  valid, but this torch or host lacks it
    ├── StorageError        (OSError)              the storage refused or failed a request
    │   ├── TruncatedError                         a file ended before its size said so
    │   ├── ChangedError                           a file changed while it was read
    │   └── CapacityError                          no room: file system, quota or memory limit
    ├── DeadlineError       (TimeoutError)         a wait ended without what it waited for
    ├── DeviceError         (RuntimeError)         the device or its runtime refused or failed
    └── OutOfMemoryError    (MemoryError)          the host, or the device, refused memory
"""

from __future__ import annotations

import errno
from typing import Any

__all__ = [
    "CapacityError",
    "ChangedError",
    "CheckpointError",
    "DeadlineError",
    "DeviceError",
    "FxloadError",
    "ModelNotFoundError",
    "OutOfMemoryError",
    "StorageError",
    "TruncatedError",
    "UnsupportedError",
    "UsageError",
]


class FxloadError(Exception):
    """Base of every error that fxload raises on purpose.

    Attributes:
        reason: what went wrong, without the place.
        path: the file or folder concerned, if any.
        offset: byte offset in ``path``, if known.
        length: bytes concerned, if known.
        rule: for :class:`CheckpointError`, the short name of the broken rule.
        hint: what the user can do next, if there is something to say.
        os_errno: the operating system's errno, if it gave one.

    ``str(error)`` is one line that holds all of them.
    """

    def __init__(
        self,
        reason: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        length: int | None = None,
        rule: str | None = None,
        hint: str | None = None,
        os_errno: int | None = None,
    ) -> None:
        Exception.__init__(self, reason)
        self.reason = reason
        self.path = path
        self.offset = offset
        self.length = length
        self.rule = rule
        self.hint = hint
        self.os_errno = os_errno

    def __str__(self) -> str:
        place = self.path or ""
        if self.offset is not None:
            place += f" at byte {self.offset}"
        if self.length is not None:
            place += f" ({self.length} bytes)"
        line = f"{place.strip()}: {self.reason}" if place else self.reason
        if self.rule:
            line += f" [{self.rule}]"
        if self.hint:
            line += f"; {self.hint}"
        return " ".join(line.split())

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), dict(self.__dict__)))


class UsageError(FxloadError, ValueError):
    """An argument, an option or a setting makes no sense."""


class ModelNotFoundError(FxloadError, FileNotFoundError):
    """No model, file or shard of that name."""


class CheckpointError(FxloadError, ValueError):
    """The files break a rule of their format; ``rule`` names it."""


class UnsupportedError(FxloadError, NotImplementedError):
    """Valid input that this torch, kernel or host cannot take."""


class StorageError(FxloadError, OSError):
    """The storage refused or failed a request; ``os_errno`` (and ``errno``) says how."""

    def __init__(self, reason: str, **place: Any) -> None:
        super().__init__(reason, **place)
        self.errno = self.os_errno


class TruncatedError(StorageError):
    """A file ended before the size it had when it was opened."""


class ChangedError(StorageError):
    """A file changed while it was being read."""


class CapacityError(StorageError):
    """No room left: file system, quota or memory limit."""


class DeadlineError(FxloadError, TimeoutError):
    """A wait ended without what it waited for."""


class DeviceError(FxloadError, RuntimeError):
    """The device, or the runtime that serves it, refused or failed a request."""


class OutOfMemoryError(FxloadError, MemoryError):
    """The host, or the device, refused memory."""


def _rebuild(kind: type[FxloadError], state: dict[str, object]) -> FxloadError:
    error = kind.__new__(kind)
    Exception.__init__(error, state["reason"])
    error.__dict__.update(state)
    return error


# The codes of native/base/status.h, in its order; the bindings raise through `from_status`.
_BY_CODE: dict[str, type[FxloadError]] = {
    "usage": UsageError,
    "not_found": ModelNotFoundError,
    "checkpoint": CheckpointError,
    "unsupported": UnsupportedError,
    "io": StorageError,
    "truncated": TruncatedError,
    "changed": ChangedError,
    "capacity": CapacityError,
    "deadline": DeadlineError,
    "memory": OutOfMemoryError,
    "device": DeviceError,
}

_HINTS_BY_ERRNO = {
    errno.EACCES: "run as a user who may read it",
    errno.EPERM: "run as a user who may do so",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.EIO: "look for the device in the kernel's log (dmesg)",
    errno.ENOSPC: "free space on that file system",
    errno.EROFS: "it is mounted read-only",
}
_HINTS_BY_CODE = {
    "not_found": "check the path",
    "truncated": "copy the file again",
    "changed": "load again when nobody writes to it",
    "deadline": "see whether the storage answers, or allow it more time (stall_timeout_s)",
    "memory": "free memory, raise the limit, or stream with open_checkpoint(budget_bytes=…)",
}


def from_status(
    code: str,
    reason: str,
    path: str | None,
    offset: int | None,
    length: int | None,
    os_errno: int | None,
) -> FxloadError:
    """Turn a native status into the exception that stands for it."""
    return _BY_CODE[code](
        reason,
        path=path,
        offset=offset,
        length=length,
        hint=_HINTS_BY_ERRNO.get(os_errno or 0, _HINTS_BY_CODE.get(code)),
        os_errno=os_errno,
    )
