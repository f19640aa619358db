"""What is copied when a model is staged: its weights, and the small files an engine needs."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fxload._errors import ModelNotFoundError
from fxload.checkpoint.identity import model_digest
from fxload.checkpoint.shards import find_shards
from fxload.warm.faults import os_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fxload.checkpoint.shards import ShardList

__all__ = ["Source", "SourceFile", "entry_name", "find_source"]

# Other formats' weights; an engine that is given safetensors does not read them.
_OTHER_WEIGHTS = frozenset(
    {".bin", ".ckpt", ".engine", ".ggml", ".gguf", ".h5", ".llamafile", ".mlmodel", ".msgpack"}
    | {".nemo", ".npz", ".onnx", ".onnx_data", ".ot", ".pickle", ".pkl", ".pt", ".pth"}
    | {".safetensors", ".tflite"}
)
# Of another checkpoint in the same folder.
_INDEX_SUFFIX = ".safetensors.index.json"
_SIDE_FILE_LIMIT_BYTES = 64 << 20
_SIDE_FILES_LIMIT = 1000


class SourceFile(NamedTuple):
    """A file to stage, and the identity that its digest is remembered by."""

    name: str
    path: str
    weights: bool
    size_bytes: int
    device: int
    inode: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def find(cls, root: Path, name: str, *, weights: bool) -> SourceFile:
        """Look at a file without reading it.

        Raises:
            ModelNotFoundError: it is not there.
            StorageError: it cannot be looked at.
        """
        path = root / name
        with os_errors(path, "stage the file"):
            try:
                found = path.stat()
            except FileNotFoundError as error:
                raise ModelNotFoundError(
                    "the file vanished while it was about to be staged", path=str(path)
                ) from error
        return cls(
            name,
            str(path),
            weights,
            found.st_size,
            found.st_dev,
            found.st_ino,
            found.st_mtime_ns,
            found.st_ctime_ns,
        )


@dataclass(frozen=True)
class Source:
    """A model to be staged.

    Attributes:
        root: the folder that the names are relative to.
        file: the file that was named, weights or an index, or "" for a whole folder.
        files: weights in load order, then the files beside them.
        left_out: names of files beside the weights that are not staged.
        shards: the weights, as the checkpoint sees them.
    """

    root: Path
    file: str
    files: tuple[SourceFile, ...]
    left_out: tuple[str, ...]
    shards: ShardList

    @property
    def path(self) -> Path:
        """What was named."""
        return self.root / self.file

    @property
    def size_bytes(self) -> int:
        """Bytes to copy."""
        return sum(file.size_bytes for file in self.files)

    @property
    def key(self) -> str:
        """Names this source in this state: it changes when any file does."""
        raw = json.dumps([self.file, [tuple(file) for file in self.files]])
        return hashlib.sha256(raw.encode()).hexdigest()[:32]


def find_source(path: Path) -> Source:
    """List what to stage of the model at ``path``, a folder or one file.

    Of a folder: its weights, and files beside them and one level below that are small, not
    hidden and not weights of another format. Links are followed to files, not to folders.

    Raises:
        ModelNotFoundError, CheckpointError, StorageError: as :func:`find_shards`.
    """
    shards = find_shards(path)
    weights = [SourceFile.find(shards.root, name, weights=True) for name in shards.files]
    file = path.name if path.is_file() else ""
    if file and shards.index is None:
        return Source(shards.root, file, tuple(weights), (), shards)
    kept: list[SourceFile] = []
    names, left_out = _beside(shards.root)
    for name in names:
        if name in shards.files:
            continue
        room = len(kept) < _SIDE_FILES_LIMIT and _is_side_file(shards.root / name)
        if name == shards.index or (room and not name.endswith(_INDEX_SUFFIX)):
            kept.append(SourceFile.find(shards.root, name, weights=False))
        else:
            left_out.append(name)
    return Source(shards.root, file, (*weights, *kept), tuple(left_out), shards)


def entry_name(files: Sequence[SourceFile], digests: Mapping[str, str]) -> tuple[str, str]:
    """The name of the entry for this content, and the digest of its weights.

    The name begins with the digest; models with the same weights and other files beside them
    are different entries.
    """

    def digest(weights: bool) -> str:
        return model_digest(
            (file.name, file.size_bytes, digests[file.name])
            for file in files
            if file.weights == weights
        )

    model = digest(weights=True)
    if all(file.weights for file in files):
        return model, model
    return f"{model}-{digest(weights=False).rpartition('-')[2][:16]}", model


def _beside(root: Path) -> tuple[list[str], list[str]]:
    """Names of files here and one level below, and of folders that may not be listed."""
    names: list[str] = []
    closed: list[str] = []
    with os_errors(root, "list the model's folder"), os.scandir(root) as found:
        for entry in found:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                try:
                    with os.scandir(entry.path) as below:
                        names += [
                            f"{entry.name}/{item.name}"
                            for item in below
                            if not item.name.startswith(".") and item.is_file()
                        ]
                except PermissionError:  # such as lost+found at the top of a file system
                    closed.append(entry.name)
            elif entry.is_file():
                names.append(entry.name)
    return sorted(names), sorted(closed)


def _is_side_file(path: Path) -> bool:
    if path.suffix.lower() in _OTHER_WEIGHTS:
        return False
    with os_errors(path, "stage the file"):
        found = path.stat()
    return stat.S_ISREG(found.st_mode) and found.st_size <= _SIDE_FILE_LIMIT_BYTES
