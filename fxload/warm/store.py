"""One folder of staged models: its place, its owner, and what lies where in it."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fxload._errors import StorageError, UsageError
from fxload.warm.faults import os_errors
from fxload.warm.locks import FileLock
from fxload.warm.manifest import FORMAT, load_marker, write_durably

__all__ = ["Store", "StoreKind", "make_folder", "sync_path"]

StoreKind = Literal["ram", "disk"]

_MARKER = "fxload-store.json"
_LOCK_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Store:
    """A store folder that was found safe to use; FORMAT.md specifies what is in it.

    Attributes:
        root: the folder, resolved.
        kind: "ram" where its files are memory (tmpfs), else "disk".
    """

    root: Path
    kind: StoreKind

    @classmethod
    def open(cls, path: Path, *, create: bool) -> Store | None:
        """Open a store folder; None if there is none and ``create`` is false.

        A folder is only used if this user owns it, nobody else may write to it and nobody could
        have put it there in this user's place: names of stores in shared folders such as
        ``/dev/shm`` can be guessed.

        Raises:
            UnsupportedError: a newer fxload owns the folder.
            StorageError: it cannot be made or read, or is not safe.
            UsageError: it is a folder of something else.
        """
        path = path.absolute()
        with os_errors(path, "use the store folder"):
            if create:
                missing = [folder for folder in path.parents if not folder.exists()]
                for folder in (*reversed(missing), path):
                    make_folder(folder)
            elif not os.path.lexists(path):
                return None
            root = _safe(path)
        marker = root / _MARKER
        if not marker.exists():
            if not create:
                return None
            _claim(root, marker)
        _keep_private(root)
        load_marker(marker)
        store = cls(root, _kind(root))
        for folder in (store.entries, store.staging, store.jobs):
            _refuse_foreign(folder)
        if create:
            with os_errors(root, "make the store folder"):
                for folder in (store.entries, store.staging, store.jobs):
                    make_folder(folder)
        return store

    @property
    def entries(self) -> Path:
        """Published models, a folder each."""
        return self.root / "entries"

    @property
    def staging(self) -> Path:
        """Models on their way in or out, a folder each."""
        return self.root / "staging"

    @property
    def jobs(self) -> Path:
        """A lock file for each source that is being staged."""
        return self.root / "jobs"

    def lock(self) -> FileLock:
        """Exclude others from deciding on room, publishing and removing. Held shortly.

        Raises:
            DeadlineError: another process held it for two minutes.
        """
        return FileLock.take(self.root / "lock", create=True, timeout_s=_LOCK_TIMEOUT_S)


def make_folder(path: Path) -> None:
    """Make a folder for this user alone, unless it is there."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise


def sync_path(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _safe(path: Path) -> Path:
    """The resolved folder, if it is safe to use."""
    user = os.geteuid()
    link = path.lstat()
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in (user, 0):
        raise _unsafe(path, f"a symbolic link of another user (uid {link.st_uid})")
    root = path.resolve(strict=True)
    folder = root.lstat()
    if not stat.S_ISDIR(folder.st_mode):
        raise _unsafe(path, "not a folder")
    if folder.st_uid != user:
        raise _unsafe(path, f"the folder belongs to another user (uid {folder.st_uid})")
    above = root.parent.lstat()
    if above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
        raise _unsafe(path, f"anyone can replace it: {root.parent} is writable for all")
    return root


def _refuse_foreign(folder: Path) -> None:
    """What is swept and published must lie in the store: no link, no other user's folder."""
    with os_errors(folder, "use the store folder"):
        if not os.path.lexists(folder):
            return
        found = folder.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise _unsafe(folder, "a symbolic link where the store's own folder should be")
    if not stat.S_ISDIR(found.st_mode):
        raise _unsafe(folder, "not a folder")
    if found.st_uid != os.geteuid():
        raise _unsafe(folder, f"the folder belongs to another user (uid {found.st_uid})")


def _claim(root: Path, marker: Path) -> None:
    """Turn an empty folder into a store."""
    with os_errors(root, "use the store folder"):
        foreign = [path.name for path in root.iterdir() if not path.name.startswith(".fxload-")]
    if foreign and not marker.exists():
        raise UsageError(
            f"the folder holds other things ({foreign[0]}, …) and is no warm store",
            path=str(root),
            hint=f"name a new folder, such as {root / 'fxload'}",
        )
    with os_errors(root, "make the store folder private"):
        root.chmod(0o700)
    content = {"format": FORMAT, "created_unix_s": time.time()}
    write_durably(marker, json.dumps(content).encode())


def _keep_private(root: Path) -> None:
    mode = root.stat().st_mode
    if mode & 0o022:
        raise _unsafe(root, "other users may write to it, its content cannot be trusted")
    if mode & 0o055:
        with os_errors(root, "make the store folder private"):
            root.chmod(0o700)


def _kind(root: Path) -> StoreKind:
    """Whether files here are memory: told by the mount that the folder's device belongs to."""
    number = root.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    try:
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "disk"
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        place = left.split()
        if len(place) > 2 and place[2] == device:
            return "ram" if re.match(r"(tmpfs|ramfs|devtmpfs)\b", right) else "disk"
    return "disk"


def _unsafe(path: Path, reason: str) -> StorageError:
    return StorageError(
        f"refused as a store: {reason}",
        path=str(path),
        hint="choose another folder with --to DIR, or in the config file",
    )
