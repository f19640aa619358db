"""Which stores a model may be staged to, in order of preference, and what bounds each."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fxload._errors import FxloadError, StorageError
from fxload.host_memory import read_host_memory
from fxload.warm.faults import os_errors
from fxload.warm.room import Limits
from fxload.warm.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from fxload.config import Config

__all__ = ["Place", "choose_places"]

_log = logging.getLogger(__name__)

_DISK_MARGIN_BYTES = 10 << 30


@dataclass(frozen=True)
class Place:
    """A store that may be staged to.

    Attributes:
        store: the open store.
        limits: what bounds it.
        reason: why it comes where it comes.
    """

    store: Store
    limits: Limits
    reason: str


def choose_places(
    to: Path | None, config: Config, *, quota_bytes: int | None = None
) -> list[Place]:
    """The stores to try, best first; they are made where they are missing.

    Without ``to``: the one in memory, then the one on the local disk. One that cannot be used is
    left out, and the reason is logged and goes into the next one's.

    Args:
        to: the only store to use.
        config: names the default stores and their quotas.
        quota_bytes: replaces the configured quota.

    Raises:
        FxloadError: of ``to``, or of the last default store if none can be used.
    """
    if to is not None:
        place = _open(to, config)
        return [_with_quota(replace(place, reason="this store was named"), quota_bytes)]
    places: list[Place] = []
    refused: list[str] = []
    last: FxloadError | None = None
    for path in (config.warm_ram_dir, config.warm_disk_dir):
        try:
            place = _open(path, config)
            if path == config.warm_ram_dir and place.store.kind != "ram":
                raise StorageError("not in memory (no tmpfs)", path=str(path))
        except FxloadError as error:
            _log.warning("the warm store is left aside: %s", error)
            refused.append(str(error))
            last = error
            continue
        has_room = "memory has room" if place.store.kind == "ram" else "the local disk has room"
        reason = "; ".join([*refused, has_room])
        places.append(_with_quota(replace(place, reason=reason), quota_bytes))
    if not places and last is not None:
        raise last
    return places


def _open(path: Path, config: Config) -> Place:
    store = Store.open(path, create=True)
    if store is None:
        raise StorageError("the store vanished while it was opened", path=str(path))
    if path.absolute() == config.warm_ram_dir.absolute():
        quota = config.warm_ram_limit_bytes
        if quota is None:
            # The other half is for loading what is staged, and for everybody else.
            quota = read_host_memory().limit_bytes // 2
        return Place(store, Limits(quota), "")
    if path.absolute() == config.warm_disk_dir.absolute():
        with os_errors(store.root, "ask for free space"):
            space = os.statvfs(store.root)
        margin = min(_DISK_MARGIN_BYTES, space.f_blocks * space.f_frsize // 20)
        return Place(store, Limits(config.warm_disk_limit_bytes, margin), "")
    return Place(store, Limits(), "")


def _with_quota(place: Place, quota_bytes: int | None) -> Place:
    if quota_bytes is None:
        return place
    return replace(place, limits=replace(place.limits, quota_bytes=quota_bytes))
