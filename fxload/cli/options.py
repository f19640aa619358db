"""Options that several commands share, checked before any work starts."""

from __future__ import annotations

import typer

__all__ = ["checked_engine", "checked_folder"]

_ENGINES = ("auto", "io_uring", "pread")


def checked_engine(engine: str) -> str:
    """The name of an I/O engine, or a usage error."""
    if engine not in _ENGINES:
        raise typer.BadParameter(f"{engine!r} is no engine; choose from {', '.join(_ENGINES)}")
    return engine


def checked_folder(folder: str | None) -> str | None:
    """A folder's name; the empty one would silently mean the current folder."""
    if folder == "":
        raise typer.BadParameter("an empty name is no folder")
    return folder
