"""What ``fxload cache`` does: list, remove, verify and sweep what is staged."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fxload._errors import FxloadError, ModelNotFoundError, UsageError
from fxload._native import FileSet, Transfer
from fxload.config import load_config
from fxload.progress import Progress
from fxload.warm.copying import CopyOptions, drive, ring_bytes
from fxload.warm.entry import DAMAGED_MANIFEST, read_entries, read_entry
from fxload.warm.faults import os_errors
from fxload.warm.locks import FileLock
from fxload.warm.manifest import MANIFEST, Manifest
from fxload.warm.registry import known_stores
from fxload.warm.room import sweep_dead, take_out
from fxload.warm.store import Store, sync_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fxload.config import Config
    from fxload.warm.entry import Entry

__all__ = [
    "FileFault",
    "Listing",
    "Removal",
    "SweepReport",
    "Verdict",
    "list_entries",
    "remove",
    "sweep",
    "verify",
]

_SHORTEST_PREFIX = 6


@dataclass(frozen=True)
class Listing:
    """What is staged.

    Attributes:
        entries: of every store, the one in memory first, most recently used first in each.
        unusable: stores that were left aside, each with the reason.
    """

    entries: tuple[Entry, ...]
    unusable: tuple[str, ...]


@dataclass(frozen=True)
class Removal:
    """An entry that was removed, or was not and why."""

    entry: Entry
    removed: bool
    reason: str


@dataclass(frozen=True)
class FileFault:
    """A staged file that is not what it should be."""

    name: str
    problem: str
    expected: str
    found: str


@dataclass(frozen=True)
class Verdict:
    """What a full reading of an entry showed.

    Attributes:
        entry: the entry as it was before.
        good: every byte is what was staged.
        checked_bytes: bytes that were read.
        faults: what is wrong, file by file.
        reason: why the entry could not be checked, or "".
    """

    entry: Entry
    good: bool
    checked_bytes: int
    faults: tuple[FileFault, ...]
    reason: str


@dataclass(frozen=True)
class SweepReport:
    """Bytes that dead stagers had left in a store, now free."""

    store: Path
    freed_bytes: int


def list_entries(*, config: Config | None = None, to: Path | None = None) -> Listing:
    """What is staged in all known stores, or in the store ``to``; leftovers are swept first.

    Raises:
        ModelNotFoundError: ``to`` is no store.
        StorageError, UnsupportedError: the store ``to`` cannot be used.
    """
    stores, unusable = _stores(config, to)
    for store in stores:
        _sweep(store)
    entries = tuple(entry for store in stores for entry in read_entries(store))
    return Listing(entries, tuple(unusable))


def remove(
    names: Sequence[str],
    *,
    everything: bool = False,
    force: bool = False,
    config: Config | None = None,
    to: Path | None = None,
) -> list[Removal]:
    """Remove entries.

    Args:
        names: each the name or digest of an entry (six characters or more will do), its path, or
            the path of the source that it was copied from.
        everything: remove all entries instead.
        force: also those that somebody is reading; the reader keeps the files that it has open.
        config: names the stores.
        to: only in this store.

    Returns one result for each entry that matched. Entries of a newer format are never removed.

    Raises:
        ModelNotFoundError: a name matches nothing.
        UsageError: no name was given, or one is too short.
    """
    stores, _ = _stores(config, to)
    chosen = _choose(stores, names, everything=everything)
    results = []
    for store, entry in chosen:
        with store.lock():
            results.append(_remove(store, entry, force=force))
    return results


def verify(
    names: Sequence[str] = (),
    *,
    config: Config | None = None,
    to: Path | None = None,
    options: CopyOptions | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> list[Verdict]:
    """Read every byte of entries again and compare with the digests; by default of all entries.

    An entry whose bytes are wrong is taken out of service: it stays to be looked at, is shown as
    damaged, never used again, and makes room when room is needed.

    Raises:
        ModelNotFoundError: a name matches nothing.
        UsageError: a name is too short.
    """
    stores, _ = _stores(config, to)
    chosen = _choose(stores, names, everything=not names)
    options = CopyOptions() if options is None else options
    total = sum(entry.size_bytes for _, entry in chosen)
    before = 0
    verdicts = []
    for store, entry in chosen:

        def tell(now: Progress, before: int = before) -> None:
            if progress is not None:
                progress(Progress(before + now.done_bytes, total))

        verdicts.append(_verify(store, entry, options, tell))
        before += entry.size_bytes
        tell(Progress(0, 0), before)
    return verdicts


def sweep(*, config: Config | None = None, to: Path | None = None) -> list[SweepReport]:
    """Remove what stagers that died left in the stores."""
    stores, _ = _stores(config, to)
    return [_sweep(store) for store in stores]


def _stores(config: Config | None, to: Path | None) -> tuple[list[Store], list[str]]:
    if to is None:
        stores, unusable = known_stores(load_config() if config is None else config)
        return stores, [item.reason for item in unusable]
    store = Store.open(to, create=False)
    if store is None:
        raise ModelNotFoundError(
            "no warm store", path=str(to), hint="make one with: fxload warm MODEL --to DIR"
        )
    return [store], []


def _sweep(store: Store) -> SweepReport:
    with store.lock():
        return SweepReport(store.root, sweep_dead(store))


def _choose(
    stores: Sequence[Store], names: Sequence[str], *, everything: bool
) -> list[tuple[Store, Entry]]:
    if not names and not everything:
        raise UsageError("no entry was named", hint="see the names with: fxload cache ls")
    present = [(store, entry) for store in stores for entry in read_entries(store)]
    if everything:
        return present
    chosen: list[tuple[Store, Entry]] = []
    for name in names:
        matches = [item for item in present if _matches(item[1], name)]
        if not matches:
            short = len(name) < _SHORTEST_PREFIX
            raise ModelNotFoundError(
                f"nothing staged is named {name!r}"
                + (f" (at least {_SHORTEST_PREFIX} characters are needed)" if short else ""),
                hint="see what there is with: fxload cache ls",
            )
        chosen += [item for item in matches if item not in chosen]
    return chosen


def _matches(entry: Entry, name: str) -> bool:
    if name == entry.name or (len(name) >= _SHORTEST_PREFIX and entry.name.startswith(name)):
        return True
    bare = entry.name.partition("-")[2]
    if len(name) >= _SHORTEST_PREFIX and bare.startswith(name):
        return True
    path = Path(name)
    places = {entry.path, entry.folder, entry.folder / "model", Path(entry.source)}
    return path.absolute() in places or path.resolve() in places


def _remove(store: Store, entry: Entry, *, force: bool) -> Removal:
    now = read_entry(store, entry.name)
    if now is None:
        return Removal(entry, False, "it is gone already")
    if now.state == "newer":
        return Removal(now, False, f"it is left to the fxload that wrote it: {now.problem}")
    lock = FileLock.try_take(now.folder / "lock", create=True)
    if lock is None and not force:
        return Removal(now, False, "somebody is reading it")
    try:
        take_out(store, now.folder)
    finally:
        if lock is not None:
            lock.close()
    return Removal(now, True, "")


def _verify(
    store: Store, entry: Entry, options: CopyOptions, progress: Callable[[Progress], None]
) -> Verdict:
    if entry.state in ("newer", "unreadable"):
        return Verdict(entry, False, 0, (), entry.problem)
    lock = FileLock.try_take(entry.folder / "lock", shared=True, create=True)
    if lock is None:
        return Verdict(entry, False, 0, (), "it is being removed")
    with lock:
        try:
            damaged = entry.folder / DAMAGED_MANIFEST
            known = damaged if damaged.exists() else entry.folder / MANIFEST
            manifest = Manifest.read(known)
            faults = _compare(manifest, entry.folder / "model", options, progress)
        except FxloadError as error:
            return Verdict(entry, False, 0, (), str(error))
        if faults:
            _take_out_of_service(store, entry)
    if not faults and entry.state == "damaged":
        # The bytes are right, but the files are not the ones that were published.
        return Verdict(entry, False, manifest.size_bytes, (), entry.problem)
    return Verdict(entry, not faults, manifest.size_bytes, tuple(faults), "")


def _compare(
    manifest: Manifest, model: Path, options: CopyOptions, progress: Callable[[Progress], None]
) -> list[FileFault]:
    faults = []
    readable = []
    for file in manifest.files:
        path = model / file.name
        found = path.lstat().st_size if path.is_file() and not path.is_symlink() else None
        if found == file.size_bytes:
            readable.append(file)
        elif found is None:
            faults.append(FileFault(file.name, "missing", f"{file.size_bytes} bytes", ""))
        else:
            faults.append(
                FileFault(file.name, "size", f"{file.size_bytes} bytes", f"{found} bytes")
            )
    if readable:
        paths = [str(model / file.name) for file in readable]
        with closing(FileSet(paths, timeout_s=options.stall_timeout_s)) as files:
            transfer = Transfer(
                files,
                digest=True,
                ring_bytes=options.ring_bytes or ring_bytes(),
                engine=options.engine,
                # What the memory holds says nothing about what the disk holds.
                use_page_cache=False,
                limit_bytes_per_s=options.limit_bytes_per_s,
                stall_timeout_s=options.stall_timeout_s,
            )
            with transfer:
                drive(transfer, progress)
                digests = transfer.digests()
        for file, digest in zip(readable, digests, strict=True):
            if digest != file.digest:
                faults.append(FileFault(file.name, "digest", file.digest, digest))
    return faults


def _take_out_of_service(store: Store, entry: Entry) -> None:
    """One rename, after which no lookup takes the entry for one."""
    with store.lock(), os_errors(entry.folder, "take the entry out of service"):
        manifest = entry.folder / MANIFEST
        if manifest.exists():
            manifest.rename(entry.folder / DAMAGED_MANIFEST)
            sync_path(entry.folder)
