"""The one place where the warm store turns errors of the operating system into its own."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fxload._errors import CapacityError, FxloadError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["os_errors"]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def os_errors(path: Path, doing: str) -> Iterator[None]:
    """Raise a StorageError (CapacityError where there is no room) for an OSError inside."""
    try:
        yield
    except FxloadError:
        raise
    except OSError as error:
        place = error.filename if isinstance(error.filename, str) else str(path)
        full = error.errno in _FULL
        raise (CapacityError if full else StorageError)(
            f"cannot {doing}: {error.strerror or error}",
            path=place,
            hint="free space, or choose another store with --to DIR" if full else None,
            os_errno=error.errno,
        ) from error
