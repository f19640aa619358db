"""The stores that this user has: two by default, and every folder that was named once."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fxload._errors import FxloadError
from fxload.warm.faults import os_errors
from fxload.warm.manifest import write_durably
from fxload.warm.store import Store, make_folder

if TYPE_CHECKING:
    from fxload.config import Config

__all__ = ["Unusable", "known_stores", "register"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Unusable:
    """A store that was left aside, and why."""

    path: Path
    reason: str


def known_stores(config: Config) -> tuple[list[Store], list[Unusable]]:
    """Existing stores, the one in memory first, and those that cannot be used."""
    stores: list[Store] = []
    unusable: list[Unusable] = []
    for path in (config.warm_ram_dir, config.warm_disk_dir, *_named(config.state_dir)):
        try:
            store = Store.open(path, create=False)
        except FxloadError as error:
            _log.warning("the warm store is left aside: %s", error)
            unusable.append(Unusable(path, str(error)))
            continue
        if store is not None and store not in stores:
            stores.append(store)
    stores.sort(key=lambda store: store.kind != "ram")
    return stores, unusable


def register(root: Path, config: Config) -> None:
    """Remember a store that was named with ``to``, so that later loads look there too."""
    if root in {config.warm_ram_dir.absolute(), config.warm_disk_dir.absolute()}:
        return
    folder = config.state_dir / "stores"
    name = hashlib.sha256(str(root).encode()).hexdigest()[:16]
    path = folder / name
    if path.exists():
        return
    with os_errors(folder, "remember the store"):
        config.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_folder(folder)
    write_durably(path, str(root).encode())


def _named(state_dir: Path) -> list[Path]:
    folder = state_dir / "stores"
    try:
        names = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        return [Path(path.read_text(encoding="utf-8")) for path in names]
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        _log.warning("the list of warm stores cannot be read: %s: %s", folder, error)
        return []
