"""What a load would find, and what a store holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxload import warm
from fxload._native import FileSet
from fxload.checkpoint.shards import find_shards

if TYPE_CHECKING:
    from pathlib import Path

    from fxload.config import Config


def find(path: Path, config: Config) -> warm.StagedModel | None:
    """The staged copy that a load of `path` would use."""
    shards = find_shards(path)
    files = FileSet([str(path) for path in shards.paths])
    try:
        return warm.find_staged(shards, files.infos, config)
    finally:
        files.close()


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def leftovers(store: Path) -> list[str]:
    """What is in a store besides published entries."""
    return sorted(
        str(path.relative_to(store))
        for folder in ("staging", "jobs")
        for path in (store / folder).iterdir()
    )
