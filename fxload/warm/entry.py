"""One staged model in a store, as ``fxload cache ls`` shows it."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fxload._errors import ChangedError, StorageError, UnsupportedError
from fxload.warm.faults import os_errors
from fxload.warm.locks import FileLock
from fxload.warm.manifest import MANIFEST, Manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fxload.warm.store import Store, StoreKind

__all__ = [
    "DAMAGED_MANIFEST",
    "Entry",
    "EntryState",
    "disk_bytes",
    "read_entries",
    "read_entry",
    "read_trusted",
    "touch",
]

EntryState = Literal["ready", "damaged", "unreadable", "newer"]

DAMAGED_MANIFEST = "manifest.damaged.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Entry:
    """A staged model.

    Attributes:
        name: the entry's folder in the store.
        store: the store's folder.
        kind: "ram" or "disk".
        state: "ready" to be used; "damaged": its content is wrong, it is not used;
            "unreadable": its manifest cannot be understood; "newer": another fxload's format.
        digest: digest of the model's weights, "" where the manifest is not readable.
        path: what to point an engine at.
        size_bytes: room it takes in the store.
        files: number of files.
        source: where it was copied from.
        created_unix_s: when; 0 if unknown.
        last_used_unix_s: when it was last staged, found or held.
        in_use: somebody is reading it.
        problem: why it is not ready, or "".
    """

    name: str
    store: Path
    kind: StoreKind
    state: EntryState
    digest: str
    path: Path
    size_bytes: int
    files: int
    source: str
    created_unix_s: float
    last_used_unix_s: float
    in_use: bool
    problem: str

    @property
    def folder(self) -> Path:
        """The entry's own folder, which holds manifest, lock and model."""
        return self.store / "entries" / self.name


def read_entries(store: Store) -> list[Entry]:
    """Every entry of a store, most recently used first."""
    if not store.entries.is_dir():
        return []
    with os_errors(store.entries, "list the store"):
        names = [path.name for path in store.entries.iterdir() if _NAME.fullmatch(path.name)]
    entries = [entry for name in names if (entry := read_entry(store, name)) is not None]
    return sorted(entries, key=lambda entry: (-entry.last_used_unix_s, entry.name))


def read_trusted(folder: Path) -> Manifest:
    """The manifest of an entry whose files are all as they were when it was published.

    Raises:
        ChangedError: a file is missing or was touched since.
        UnsupportedError, StorageError: as :meth:`Manifest.read`.
    """
    manifest = Manifest.read(folder / MANIFEST)
    model = folder / "model"
    for file in manifest.files:
        if not file.looks_untouched(model):
            raise ChangedError(
                "the staged file is not as it was published",
                path=str(model / file.name),
                hint="stage the model again with: fxload warm",
            )
    return manifest


def touch(folder: Path) -> None:
    """Make the entry the most recently used one."""
    now = time.time_ns()
    with os_errors(folder, "mark the entry as used"):
        os.utime(folder, ns=(now, now))


def disk_bytes(folder: Path) -> int:
    """Room that everything below a folder takes; files that vanish meanwhile count as none."""
    return sum(_blocks(entry) for entry in _walk(folder))


def read_entry(store: Store, name: str) -> Entry | None:
    """The entry of this name in whatever state; None if there is none."""
    folder = store.entries / name
    state: EntryState = "ready"
    problem = ""
    manifest: Manifest | None = None
    try:
        used = folder.stat().st_mtime
        if (folder / DAMAGED_MANIFEST).exists():
            state, problem = "damaged", "its content did not match its digests"
            manifest = Manifest.read(folder / DAMAGED_MANIFEST)
        else:
            manifest = read_trusted(folder)
    except FileNotFoundError:
        return None  # removed between listing and reading
    except UnsupportedError as error:
        state, problem = "newer", error.reason
    except ChangedError as error:
        state, problem = "damaged", str(error)
        manifest = Manifest.read(folder / MANIFEST)
    except StorageError as error:
        if not folder.exists():
            return None
        state, problem = ("damaged" if state == "damaged" else "unreadable"), error.reason
    lock = FileLock.try_take(folder / "lock")
    in_use = lock is None and (folder / "lock").exists()
    if lock is not None:
        lock.close()
    model = folder / "model"
    return Entry(
        name=name,
        store=store.root,
        kind=store.kind,
        state=state,
        digest=manifest.digest if manifest else "",
        path=model / manifest.file if manifest else model,
        size_bytes=disk_bytes(folder),
        files=len(manifest.files) if manifest else 0,
        source=manifest.source if manifest else "",
        created_unix_s=manifest.created_unix_s if manifest else 0.0,
        last_used_unix_s=used,
        in_use=in_use,
        problem=problem,
    )


def _walk(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except FileNotFoundError:
        return
    for entry in entries:
        yield entry
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(folder / entry.name)


def _blocks(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * 512
    except FileNotFoundError:
        return 0
