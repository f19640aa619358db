"""What an entry of the warm store says about itself; FORMAT.md specifies the file."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from fxload._errors import StorageError, UnsupportedError
from fxload.warm.faults import os_errors

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FORMAT", "MANIFEST", "Manifest", "ManifestFile", "load_marker", "write_durably"]

FORMAT = 1
MANIFEST = "manifest.json"
_LIMIT_BYTES = 64 << 20


@dataclass(frozen=True)
class ManifestFile:
    """One staged file, and how the copy looked when it was finished.

    Attributes:
        name: path below the entry's model folder, with forward slashes.
        size_bytes: size of source and copy.
        digest: digest of every byte that was copied.
        weights: part of the model's digest; otherwise a file beside the weights.
        inode: of the copy.
        mtime_ns: of the copy.
        ctime_ns: of the copy.
    """

    name: str
    size_bytes: int
    digest: str
    weights: bool
    inode: int
    mtime_ns: int
    ctime_ns: int

    def looks_untouched(self, folder: Path) -> bool:
        """Whether the copy below ``folder`` is still the file that was written."""
        try:
            now = (folder / self.name).lstat()
        except OSError:
            return False
        return stat.S_ISREG(now.st_mode) and (
            now.st_size,
            now.st_ino,
            now.st_mtime_ns,
            now.st_ctime_ns,
        ) == (self.size_bytes, self.inode, self.mtime_ns, self.ctime_ns)


@dataclass(frozen=True)
class Manifest:
    """The content of one entry.

    Attributes:
        digest: digest of the model's weights.
        file: the file that the source named, weights or an index, or "" if it named a folder.
        source: where the model was copied from.
        created_unix_s: when.
        writer: which program wrote it.
        files: everything that was staged.
    """

    digest: str
    file: str
    source: str
    created_unix_s: float
    writer: str
    files: tuple[ManifestFile, ...]

    @property
    def size_bytes(self) -> int:
        """The sum of the files' sizes."""
        return sum(file.size_bytes for file in self.files)

    @property
    def weights(self) -> list[ManifestFile]:
        """The files that hold weights, in load order."""
        return [file for file in self.files if file.weights]

    def to_json(self) -> bytes:
        """The manifest file's content."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode()

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read and judge a manifest file.

        Raises:
            UnsupportedError: a newer fxload wrote it.
            StorageError: it cannot be read, or is not a manifest.
        """
        content = _object(path)
        version = _format(content, path)
        if version > FORMAT:
            raise _newer(path, version)
        try:
            files = tuple(_file(item) for item in _typed(content, "files", list))
            manifest = cls(
                digest=_typed(content, "digest", str),
                file=_typed(content, "file", str),
                source=_typed(content, "source", str),
                created_unix_s=float(_typed(content, "created_unix_s", (int, float))),
                writer=_typed(content, "writer", str),
                files=files,
            )
            names = {file.name for file in files}
            if len(names) != len(files):
                raise ValueError("a file is listed twice")
            if manifest.file and manifest.file not in names:
                raise ValueError("'file' is not among 'files'")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _damaged(path, f"not a manifest: {error}") from error
        return manifest


def _format(content: dict[str, Any], path: Path) -> int:
    """The format version of a JSON object; every version keeps it in ``format``."""
    version = content.get("format")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _damaged(path, "no format version")
    return version


def write_durably(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: a new file, made durable, then renamed to ``path``."""
    temporary = path.with_name(f".fxload-{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    with os_errors(path, "write"):
        try:
            descriptor = os.open(
                temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
            )
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def load_marker(path: Path) -> dict[str, Any]:
    """A small versioned JSON object of the store.

    Raises:
        UnsupportedError: a newer fxload wrote it.
        StorageError: it cannot be read, or is no such object.
    """
    content = _object(path)
    version = _format(content, path)
    if version > FORMAT:
        raise _newer(path, version)
    return content


def _object(path: Path) -> dict[str, Any]:
    with os_errors(path, "read"), path.open("rb") as file:
        # What it would take is known before it is taken.
        size_bytes = os.fstat(file.fileno()).st_size
        raw = b"" if size_bytes > _LIMIT_BYTES else file.read(size_bytes)
    if size_bytes > _LIMIT_BYTES:
        raise _damaged(path, "larger than any manifest")
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"not JSON: {error}") from error
    if not isinstance(content, dict):
        raise _damaged(path, "not a JSON object")
    return content


def _file(item: dict[str, Any]) -> ManifestFile:
    file = ManifestFile(
        name=_typed(item, "name", str),
        size_bytes=_typed(item, "size_bytes", int),
        digest=_typed(item, "digest", str),
        weights=_typed(item, "weights", bool),
        inode=_typed(item, "inode", int),
        mtime_ns=_typed(item, "mtime_ns", int),
        ctime_ns=_typed(item, "ctime_ns", int),
    )
    path = PurePosixPath(file.name)
    if not file.name or path.is_absolute() or ".." in path.parts or "\0" in file.name:
        raise ValueError(f"the file name {file.name!r} leaves the folder")
    if file.size_bytes < 0:
        raise ValueError(f"the size of {file.name!r} is negative")
    return file


def _typed(content: dict[str, Any], key: str, kind: type | tuple[type, ...]) -> Any:
    value = content[key]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{key!r} has the wrong type")
    return value


def _damaged(path: Path, reason: str) -> StorageError:
    return StorageError(reason, path=str(path), hint="remove the entry with: fxload cache rm")


def _newer(path: Path, version: int) -> UnsupportedError:
    return UnsupportedError(
        f"written in format {version}, this fxload knows formats up to {FORMAT}",
        path=str(path),
        hint="use the newer fxload that wrote it",
    )
