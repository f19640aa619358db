"""What is copied when a model is staged: its weights, and the small files an engine needs."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from fxload.checkpoint.file_stat import stat_files
from fxload.checkpoint.identity import model_digest
from fxload.checkpoint.shards import find_shards
from fxload.warm.faults import os_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fxload.checkpoint.file_stat import FileStat
    from fxload.checkpoint.shards import ShardList

__all__ = ["Source", "SourceFile", "entry_name", "find_source", "identity_of"]

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
    path: Path
    weights: bool
    stat: FileStat

    @property
    def size_bytes(self) -> int:
        """Its size."""
        return self.stat.size_bytes


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
        files = [(file.name, identity_of(file.stat)) for file in self.files]
        raw = json.dumps([str(self.root), self.file, files])
        return hashlib.sha256(raw.encode()).hexdigest()[:32]


def find_source(path: Path) -> Source:
    """List what to stage of the model at ``path``, a folder or one file.

    Of a folder: its weights, and files beside them and one level below that are small, not
    hidden and not weights of another format. Links are followed to files, not to folders.

    Raises:
        ModelNotFoundError, CheckpointError, StorageError: as :func:`find_shards`.
    """
    shards = find_shards(path)
    weights = _look(shards.root, shards.files, weights=True)
    file = path.name if path.is_file() else ""
    if file and shards.index is None:
        return Source(shards.root, file, weights, (), shards)
    names, left_out = _beside(shards.root)
    wanted = [name for name in names if name not in shards.files]
    small = {
        side.name: side
        for side in _look(shards.root, [name for name in wanted if _may_stay(name)], weights=False)
        if side.size_bytes <= _SIDE_FILE_LIMIT_BYTES or side.name == shards.index
    }
    if shards.index is not None and shards.index not in small:
        (small[shards.index],) = _look(shards.root, [shards.index], weights=False)
    kept = [small[name] for name in wanted if name in small][:_SIDE_FILES_LIMIT]
    names_kept = {side.name for side in kept}
    left_out += [name for name in wanted if name not in names_kept]
    return Source(shards.root, file, (*weights, *kept), tuple(sorted(left_out)), shards)


def identity_of(stat: FileStat) -> tuple[int, ...]:
    """Device, inode, size, mtime and ctime: equal for the same file in the same state."""
    return (stat.device, stat.inode, stat.size_bytes, stat.mtime_ns, stat.ctime_ns)


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


def _may_stay(name: str) -> bool:
    """Whether the name is not that of other weights, nor of an index of them."""
    suffix = PurePosixPath(name).suffix.lower()
    return suffix not in _OTHER_WEIGHTS and not name.endswith(_INDEX_SUFFIX)


def _look(root: Path, names: Sequence[str], *, weights: bool) -> tuple[SourceFile, ...]:
    paths = [root / name for name in names]
    return tuple(
        SourceFile(name, path, weights, stat)
        for name, path, stat in zip(names, paths, stat_files(paths), strict=True)
    )
