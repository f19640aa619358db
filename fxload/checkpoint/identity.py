"""What a checkpoint is: a digest of every byte of it, and a memory of the digests of files.

An entry of the memory is one small file, ``STATE_DIR/digests/DEVICE-INODE``, of one line of JSON::

    {"version": 1, "size_bytes": …, "mtime_ns": …, "ctime_ns": …, "digest": "…", "check": "…"}

``check`` covers the other fields and the name of the file, so that a torn or damaged entry is not
believed. An entry is replaced atomically. Whatever is wrong with one, the digest is computed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fxload._errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DigestMemory", "FileIdentity", "model_digest"]

_DIGEST = re.compile(r"[0-9a-f]{32}")
_VERSION = 1
_MAX_ENTRY_BYTES = 4096
_RACY_NS = 2_000_000_000


class FileIdentity(Protocol):
    """What the memory asks of a file's description. Times are in nanoseconds."""

    @property
    def device(self) -> int:
        """Number of the file system."""

    @property
    def inode(self) -> int:
        """Number of the file in it."""

    @property
    def size_bytes(self) -> int:
        """Bytes of content."""

    @property
    def mtime_ns(self) -> int:
        """When the content changed; anybody may set it."""

    @property
    def ctime_ns(self) -> int:
        """When anything about the file changed; only the kernel sets it."""

    @property
    def opened_ns(self) -> int:
        """Wall-clock time just before this description was made."""


def model_digest(files: Iterable[tuple[str, int, str]]) -> str:
    """The digest of a checkpoint, ``fx1-`` and 32 hex digits, from those of its files.

    ``files`` holds (name relative to the checkpoint's folder, size in bytes, digest of the
    content), in any order. Equal digests mean equal names and equal bytes, short of an adversary:
    the files' digest detects damage, it does not authenticate.

    Raises UsageError for a digest that is not 32 hex digits, or a name given twice.
    """
    ordered = sorted(files)
    total = hashlib.blake2b(digest_size=16, person=b"fxload-model-1")
    previous = None
    for name, size_bytes, digest in ordered:
        if not _DIGEST.fullmatch(digest):
            raise UsageError(f"{digest!r} is no digest of a file", path=name)
        if name == previous:
            raise UsageError("given twice to one digest", path=name)
        previous = name
        encoded = os.fsencode(name)
        total.update(f"{len(encoded)}:".encode() + encoded + f"{size_bytes}:{digest}".encode())
    return "fx1-" + total.hexdigest()


class DigestMemory:
    """Remembers the digests of files by device, inode, size, mtime and ctime.

    Safe for any number of threads and processes: entries are whole or absent.
    """

    def __init__(self, state_dir: str | os.PathLike[str]) -> None:
        self._folder = Path(state_dir) / "digests"

    def lookup(self, info: FileIdentity) -> str | None:
        """The digest of this very content, or None if there is the least doubt."""
        path = self._entry_path(info)
        try:
            with path.open("rb") as file:
                raw = file.read(_MAX_ENTRY_BYTES)
            entry = json.loads(raw)
        except (OSError, ValueError, RecursionError):
            # Absent, unreadable or damaged: not remembering costs a computation, no more.
            return None
        if not isinstance(entry, dict):
            return None
        digest = entry.get("digest")
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            return None
        return digest if entry == _entry(path.name, info, digest) else None

    def remember(self, info: FileIdentity, digest: str) -> bool:
        """Keep the digest of the content that ``info`` describes; return whether it was kept.

        Not kept: a file that had changed in the 2 seconds before it was opened (a second change,
        while it was read, may have left the same times), or where the folder cannot be written.

        Raises UsageError if ``digest`` is not 32 hex digits.
        """
        if not _DIGEST.fullmatch(digest):
            raise UsageError(f"{digest!r} is no digest of a file")
        if info.opened_ns - max(info.mtime_ns, info.ctime_ns) < _RACY_NS:
            return False
        path = self._entry_path(info)
        line = json.dumps(_entry(path.name, info, digest)) + "\n"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            _replace(path, line)
        except OSError:
            # A home that is full or read-only must not fail a load that has all its bytes.
            return False
        return True

    def _entry_path(self, info: FileIdentity) -> Path:
        return self._folder / f"{info.device:x}-{info.inode:x}"


def _entry(name: str, info: FileIdentity, digest: str) -> dict[str, Any]:
    fields = {
        "version": _VERSION,
        "size_bytes": info.size_bytes,
        "mtime_ns": info.mtime_ns,
        "ctime_ns": info.ctime_ns,
        "digest": digest,
    }
    covered = json.dumps([name, fields]).encode()
    return {**fields, "check": hashlib.blake2b(covered, digest_size=8).hexdigest()}


def _replace(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f"{path.name}.", suffix=".tmp", delete=False
    ) as file:
        temporary = Path(file.name)
        try:
            file.write(text)
            file.flush()
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
