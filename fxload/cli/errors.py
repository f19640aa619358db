"""From an exception to one line, one exit code and one JSON object."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fxload._errors import FxloadError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["EXIT_FAILED", "EXIT_INTERRUPTED", "EXIT_USAGE", "describe", "exit_code", "named_stdout"]

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
_ACRONYM_GAP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@contextmanager
def named_stdout() -> Iterator[None]:
    """Name the stream in an OSError from writing to stdout, as a file is named in others."""
    try:
        yield
    except OSError as error:
        # With its errno a broken pipe stays a BrokenPipeError.
        raise OSError(error.errno, error.strerror, "standard output") from error


def exit_code(error: BaseException) -> int:
    """1 when the work failed, 2 on bad usage, 130 when the user stopped it."""
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED


def describe(error: BaseException) -> dict[str, object]:
    """The error as JSON: kind, message (one line) and whatever places it."""
    if isinstance(error, FxloadError):
        kind = _ACRONYM_GAP.sub("_", type(error).__name__.removesuffix("Error")).lower()
        places: Mapping[str, object] = {
            "reason": error.reason,
            "path": error.path,
            "offset": error.offset,
            "length": error.length,
            "rule": error.rule,
            "hint": error.hint,
            "errno": error.os_errno,
        }
        known = {key: value for key, value in places.items() if value is not None}
        return {"kind": kind, "message": str(error), **known}
    if isinstance(error, KeyboardInterrupt):
        return {"kind": "interrupted", "message": "interrupted; nothing half-done was kept"}
    if isinstance(error, OSError):
        return _describe_os(error)
    if isinstance(error, ModuleNotFoundError) and error.name:
        message = (
            f"the package {error.name!r} is missing; install it with: pip install {error.name}"
        )
        return {"kind": "missing_package", "message": message}
    name, text = type(error).__name__, " ".join(str(error).split())
    message = f"unexpected {name}: {text}" if text else f"unexpected {name}"
    return {
        "kind": "unexpected",
        "message": f"{message}; set FXLOAD_DEBUG=1 for the traceback and report it",
    }


def _describe_os(error: OSError) -> dict[str, object]:
    reason = error.strerror or " ".join(str(error).split()) or type(error).__name__
    path = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else None
    hint = _OS_HINTS.get(error.errno or 0, "")
    message = f"{path}: {reason}" if path else reason
    known: dict[str, object] = {"kind": "system", "message": f"{message}; {hint}".rstrip("; ")}
    known |= {"reason": reason, "errno": error.errno}
    return known | ({"path": path} if path else {}) | ({"hint": hint} if hint else {})


_OS_HINTS = {
    2: "check the path",
    13: "run as a user who may read it",
    20: "a part of the path is a file",
    24: "raise the limit of open files (ulimit -n)",
    28: "free space on that file system",
    30: "it is mounted read-only",
}
