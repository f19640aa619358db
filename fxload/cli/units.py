"""Sizes, rates and durations, as people write and read them."""

from __future__ import annotations

import re

from fxload._errors import UsageError

__all__ = ["format_bytes", "format_request", "format_seconds", "parse_size"]

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(text: str, option: str) -> int:
    """Bytes of ``512``, ``4MiB``, ``1.5G`` (powers of 1000, or of 1024 with an i).

    Raises:
        UsageError: the text is no size, or zero; it names ``option``.
    """
    match = _SIZE.fullmatch(text)
    if match is not None:
        base = 1024 if match[3] else 1000
        size = int(float(match[1]) * base ** _POWERS[match[2].lower()])
        if size > 0 and not (match[3] and not match[2]):
            return size
    raise UsageError(
        f"{option} got {text!r}, which is no size", hint="write bytes, or 4MiB, 512KiB, 2GB"
    )


def format_bytes(size: float) -> str:
    """A size in powers of 1000, as storage is sold: ``4.83 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def format_request(size: int) -> str:
    """A size in powers of 1024, as requests and pages are: ``4 MiB``."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024 or size % 1024:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} GiB"


def format_seconds(seconds: float) -> str:
    """``480 ms``, ``12.3 s``, ``4:05 min``, ``7.5 h``, ``12 days``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds >= 2 * 86400:
        return f"{seconds / 86400:.0f} days"
    if seconds >= 7200:
        return f"{seconds / 3600:.1f} h"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min"
