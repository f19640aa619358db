"""Finding the staged copy of a source, and only of the very content that the source has now."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fxload._errors import FxloadError
from fxload.checkpoint.identity import DigestMemory, model_digest
from fxload.warm.registry import known_stores
from fxload.warm.staged import StagedModel, hold_entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fxload.checkpoint.identity import FileIdentity
    from fxload.checkpoint.shards import ShardList
    from fxload.config import Config
    from fxload.warm.store import Store

__all__ = ["find_entry", "find_staged"]

_log = logging.getLogger(__name__)


def find_staged(
    shards: ShardList, infos: Sequence[FileIdentity], config: Config
) -> StagedModel | None:
    """The staged copy of these weights, a copy in memory first; None if there is none.

    The source is known by the digests that are remembered for its files' identity (device,
    inode, size, mtime, ctime): if one changed in any way, nothing is found. A copy that was
    touched since it was published is never returned. No byte of the source is read.

    Args:
        shards: the source's weight files.
        infos: what is known of each of them, in the same order.
        config: where stores and remembered digests are.

    Hold the result (:meth:`StagedModel.hold`) while reading it. Faults of a store are logged,
    and mean that it has no copy.
    """
    memory = DigestMemory(config.state_dir)
    files: list[tuple[str, int, str]] = []
    for name, info in zip(shards.files, infos, strict=True):
        digest = memory.lookup(info)
        if digest is None:
            return None
        files.append((name, info.size_bytes, digest))
    wanted = model_digest(files)
    stores, _ = known_stores(config)
    for store in stores:
        for name in _candidates(store, wanted):
            found = find_entry(store, name, reason="the source is unchanged since it was staged")
            if found is not None and found.digest == wanted:
                return found
    return None


def find_entry(
    store: Store, name: str, *, reason: str, file: str | None = None
) -> StagedModel | None:
    """The entry of this name, if it can be trusted; it becomes the most recently used one.

    ``file`` is what to point at in the model's folder, by default what its source named.
    """
    folder = store.entries / name
    if not folder.exists():
        return None
    try:
        with hold_entry(folder) as hold:
            manifest = hold.manifest
    except FxloadError as error:
        _log.warning("a staged copy is left aside: %s", error)
        return None
    return StagedModel(
        path=folder / "model" / (manifest.file if file is None else file),
        root=folder / "model",
        digest=manifest.digest,
        size_bytes=manifest.size_bytes,
        store=store.root,
        reused=True,
        kind=store.kind,
        entry=folder,
        reason=reason,
    )


def _candidates(store: Store, digest: str) -> list[str]:
    """Names of entries with these weights, whatever lies beside them."""
    try:
        names = sorted(path.name for path in store.entries.iterdir())
    except OSError as error:
        _log.warning("the warm store is left aside: %s: %s", store.root, error)
        return []
    return [name for name in names if name == digest or name.startswith(digest + "-")]
