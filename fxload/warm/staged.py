"""A staged model, and the hold that keeps it from being evicted while it is read."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fxload._errors import FxloadError, ModelNotFoundError
from fxload.warm.entry import read_trusted, touch
from fxload.warm.locks import FileLock
from fxload.warm.manifest import MANIFEST, load_marker

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from fxload.warm.manifest import Manifest
    from fxload.warm.store import StoreKind

__all__ = ["EntryHold", "StagedModel", "hold_entry", "hold_path"]

# `cache ls` and an eviction that is considered lock an entry for a moment.
_LOCK_WAIT_S = 2.0
_POLL_S = 0.005


@dataclass(frozen=True)
class StagedModel:
    """A copy of a model in a warm store.

    Attributes:
        path: what to point an engine at: a folder, or a file where the source was one file.
        root: the folder that the names of the staged files are relative to.
        digest: digest of the model's weights.
        size_bytes: bytes of all staged files.
        store: the store's folder.
        reused: it was there already.
        kind: "ram" or "disk".
        entry: the entry's folder in the store.
        reason: why this copy, or this store, was chosen.
    """

    path: Path
    root: Path
    digest: str
    size_bytes: int
    store: Path
    reused: bool
    kind: StoreKind
    entry: Path
    reason: str

    def hold(self) -> EntryHold:
        """Keep the copy from being evicted or removed until the hold is closed.

        Raises:
            ModelNotFoundError: it is already gone.
            StorageError: it was touched since it was published.
        """
        return hold_entry(self.entry)


class EntryHold:
    """A shared lock on a staged model; any number of readers may have one.

    Close it when the files are no longer read. It also ends with the process.
    """

    def __init__(self, entry: Path, lock: FileLock, manifest: Manifest) -> None:
        """Use :meth:`StagedModel.hold` or :func:`hold_path`."""
        self.entry = entry
        self.manifest = manifest
        self._lock = lock

    @property
    def path(self) -> Path:
        """What to point an engine at."""
        return self.entry / "model" / self.manifest.file

    @property
    def digests(self) -> dict[str, str]:
        """Name below the model's folder → digest, of every staged file."""
        return {file.name: file.digest for file in self.manifest.files}

    def close(self) -> None:
        """Let go. Idempotent."""
        self._lock.close()

    def __enter__(self) -> EntryHold:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def hold_entry(entry: Path) -> EntryHold:
    """Hold the entry in this folder, and mark it as used.

    Raises:
        ModelNotFoundError: there is no such entry (any more).
        StorageError: it was touched since it was published.
    """
    deadline = time.monotonic() + _LOCK_WAIT_S
    path = entry / "lock"
    while (lock := FileLock.try_take(path, shared=True)) is None:
        # Who removes an entry moves it away as soon as it has the lock.
        if time.monotonic() > deadline or not path.exists():
            raise ModelNotFoundError(
                "the staged copy is gone or being removed",
                path=str(entry),
                hint="stage it again with: fxload warm",
            )
        time.sleep(_POLL_S)
    try:
        manifest = read_trusted(entry)
        touch(entry)
    except BaseException:
        lock.close()
        raise
    return EntryHold(entry, lock, manifest)


def hold_path(path: Path) -> EntryHold | None:
    """Hold the entry that a path lies in; None if it lies in none that can be used.

    For callers who were pointed at a staged model by its path.
    """
    resolved = path.resolve()
    for folder in (resolved, *resolved.parents):
        if folder.parent.name == "entries" and (folder / MANIFEST).is_file():
            try:
                load_marker(folder.parent.parent / "fxload-store.json")
                return hold_entry(folder)
            except FxloadError:
                return None
    return None
