"""How far a piece of long work has come."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Progress"]


class Progress(NamedTuple):
    """Bytes done and bytes to do; both grow while work is discovered."""

    done_bytes: int
    total_bytes: int
