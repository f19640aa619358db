"""How much more a store may hold: its quota, its file system, and the memory behind a tmpfs."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fxload._errors import CapacityError, StorageError
from fxload.host_memory import read_host_memory
from fxload.warm.entry import disk_bytes, read_entries
from fxload.warm.faults import os_errors
from fxload.warm.locks import FileLock
from fxload.warm.manifest import FORMAT, load_marker, write_durably

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fxload.host_memory import HostMemory
    from fxload.warm.entry import Entry
    from fxload.warm.store import Store

__all__ = ["Demand", "Limits", "Reservation", "evict_for", "room", "sweep_dead", "take_out"]

_PREFIX = f"v{FORMAT}-"
_RESERVATION = "reservation.json"
_MEMORY_MARGIN_BYTES = 1 << 30
_BLOCK_BYTES = 4096
_OVERHEAD_BYTES = 64 << 10


@dataclass(frozen=True)
class Limits:
    """What bounds a store.

    Attributes:
        quota_bytes: what the store may hold in all; None: no quota.
        margin_bytes: room that is left free on the file system.
        memory: reads the memory left to this process; matters to stores in memory only.
    """

    quota_bytes: int | None = None
    margin_bytes: int = 0
    memory: Callable[[], HostMemory] = read_host_memory


class Demand(NamedTuple):
    """Room needed for files: blocks that they fill, and what the store adds."""

    size_bytes: int

    @classmethod
    def of(cls, sizes_bytes: list[int]) -> Demand:
        """Room for files of these sizes."""
        blocks = sum(-(-size // _BLOCK_BYTES) + 1 for size in sizes_bytes)
        return cls(blocks * _BLOCK_BYTES + _OVERHEAD_BYTES)


class Room(NamedTuple):
    """Bytes that may still be staged, and what sets the bound."""

    available_bytes: int
    bound: str


class Reservation:
    """A private folder of a store for one model on its way in, with room set aside for it.

    The room is claimed while the folder's lock is held; a reservation whose holder died is
    removed by whoever looks next.
    """

    def __init__(self, folder: Path, lock: FileLock) -> None:
        """Use :meth:`make`."""
        self.folder = folder
        self._lock = lock

    @classmethod
    def make(cls, store: Store, demand: Demand, source: str) -> Reservation:
        """Set room aside; the caller holds the store's lock and has found that it is there."""
        folder = store.staging / f"{_PREFIX}{secrets.token_hex(8)}"
        with os_errors(folder, "make the staging folder"):
            folder.mkdir(mode=0o700)
        lock = FileLock.try_take(folder / "lock", create=True)
        if lock is None:
            raise StorageError("the new staging folder vanished", path=str(folder))
        try:
            content = {
                "format": FORMAT,
                "reserved_bytes": demand.size_bytes,
                "pid": os.getpid(),
                "source": source,
                "started_unix_s": time.time(),
            }
            write_durably(folder / _RESERVATION, json.dumps(content).encode())
        except BaseException:
            remove_folder(folder)
            lock.close()
            raise
        return cls(folder, lock)

    @property
    def entry(self) -> Path:
        """Where the entry is built."""
        return self.folder / "entry"

    def drop(self) -> None:
        """Remove the folder with all that was not published. Idempotent.

        The lock file goes last: as long as it is there, nobody else removes the folder.
        """
        try:
            remove_folder(self.entry)
            with os_errors(self.folder, "remove the staging folder"):
                (self.folder / _RESERVATION).unlink(missing_ok=True)
                self._lock.remove()
                remove_folder(self.folder)
        finally:
            self._lock.close()


class _Live(NamedTuple):
    reserved_bytes: int
    written_bytes: int


def room(store: Store, limits: Limits) -> Room:
    """Bytes that may still be staged; the caller holds the store's lock.

    Everybody's entries and everybody's reservations count, whichever process made them: of a
    reservation, what is not yet written counts against the file system and the memory, for what
    is written they count themselves.
    """
    live = _reservations(store)
    unwritten = sum(max(0, item.reserved_bytes - item.written_bytes) for item in live)
    with os_errors(store.root, "ask for free space"):
        space = os.statvfs(store.root)
    free = space.f_bavail * space.f_frsize - unwritten - limits.margin_bytes
    bounds = [Room(free, f"free space of the file system below {store.root}")]
    if limits.quota_bytes is not None:
        held = sum(entry.size_bytes for entry in read_entries(store))
        taken = held + sum(max(item) for item in live)
        bounds.append(
            Room(limits.quota_bytes - taken, f"the store's limit of {limits.quota_bytes} bytes")
        )
    if store.kind == "ram":
        memory = limits.memory()
        margin = min(_MEMORY_MARGIN_BYTES, memory.limit_bytes // 16)
        left = memory.available_bytes - unwritten - margin
        bounds.append(Room(left, f"memory ({memory.limited_by})"))
    least = min(bounds)
    return Room(max(0, least.available_bytes), least.bound)


def evict_for(store: Store, demand: Demand, limits: Limits, *, evict: bool) -> list[Entry]:
    """Make room by removing entries, least recently used first; return what was removed.

    Nothing is removed unless that makes enough room. Entries that are being read stay, and so
    do those that this fxload does not understand. The caller holds the store's lock.

    Raises:
        CapacityError: there is not enough room.
    """
    now = room(store, limits)
    if now.available_bytes >= demand.size_bytes:
        return []
    candidates = _evictable(store) if evict else []
    possible = sum(entry.size_bytes for entry, _ in candidates)
    removed: list[Entry] = []
    try:
        if now.available_bytes + possible >= demand.size_bytes:
            for entry, lock in candidates:
                take_out(store, entry.folder)
                lock.close()
                removed.append(entry)
                now = room(store, limits)
                if now.available_bytes >= demand.size_bytes:
                    return removed
    finally:
        for _, lock in candidates:
            lock.close()
    could = f", {possible} more if unused entries are evicted" if possible and not removed else ""
    raise CapacityError(
        f"no room: {demand.size_bytes} bytes needed, {now.available_bytes} left by {now.bound}"
        f"{could}",
        path=str(store.root),
        length=demand.size_bytes,
        hint="see what is staged with: fxload cache ls; remove with: fxload cache rm"
        + ("" if evict else "; or allow eviction"),
    )


def take_out(store: Store, entry: Path) -> None:
    """Remove an entry: it leaves the store at once, its files follow.

    The caller holds the store's lock, and the entry's or does not care who reads it.
    """
    grave = store.staging / f"{_PREFIX}{secrets.token_hex(8)}"
    # A rename within the store works on a full file system, too.
    with os_errors(entry, "remove the entry"):
        entry.rename(grave)
    remove_folder(grave)


def sweep_dead(store: Store) -> int:
    """Remove what dead processes left; return the bytes. The caller holds the store's lock."""
    freed = 0
    for folder in _staging_folders(store):
        if not folder.name.startswith(_PREFIX):
            continue
        # A folder without a lock is a removal, or a reservation, that was cut short: both
        # happen under the store's lock, so nobody is at it now.
        lock = FileLock.try_take(folder / "lock")
        if lock is None and (folder / "lock").exists():
            continue
        try:
            freed += disk_bytes(folder)
            remove_folder(folder)
        finally:
            if lock is not None:
                lock.close()
    for path in _job_files(store):
        job = FileLock.try_take(path)
        if job is not None:
            job.remove()
    return freed


def remove_folder(folder: Path) -> None:
    """Delete a folder and everything in it; one that is gone already is fine."""
    with os_errors(folder, "remove the folder"):
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            if folder.exists():
                raise


def _evictable(store: Store) -> list[tuple[Entry, FileLock]]:
    found = []
    entries = [entry for entry in read_entries(store) if entry.state in ("ready", "damaged")]
    for entry in sorted(
        entries, key=lambda entry: (entry.state == "ready", entry.last_used_unix_s)
    ):
        lock = FileLock.try_take(entry.folder / "lock", create=True)
        if lock is not None:
            found.append((entry, lock))
    return found


def _reservations(store: Store) -> list[_Live]:
    live = []
    for folder in _staging_folders(store):
        written = disk_bytes(folder)
        try:
            reserved = load_marker(folder / _RESERVATION).get("reserved_bytes", 0)
        except (StorageError, NotImplementedError):
            reserved = 0  # a removal, or another format: what is there still counts
        live.append(_Live(reserved if isinstance(reserved, int) else 0, written))
    return live


def _staging_folders(store: Store) -> list[Path]:
    with os_errors(store.staging, "list the store"):
        return [path for path in store.staging.iterdir() if path.is_dir()]


def _job_files(store: Store) -> list[Path]:
    with os_errors(store.jobs, "list the store"):
        return [path for path in store.jobs.iterdir() if path.name.startswith(_PREFIX)]
