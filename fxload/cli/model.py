"""A model's files opened, with their headers judged."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fxload._native import FileInfo, FileSet
    from fxload.checkpoint.header import Header, TensorInfo
    from fxload.checkpoint.shards import ShardList

__all__ = ["OpenModel", "open_model"]


@dataclass(frozen=True)
class OpenModel:
    """Open files of a checkpoint; ``tensors`` are those that each file hands out."""

    shards: ShardList
    files: FileSet
    infos: list[FileInfo]
    headers: list[Header]
    tensors: list[list[TensorInfo]]

    @property
    def payload_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.end - tensor.begin for some in self.tensors for tensor in some)


@contextmanager
def open_model(shards: ShardList) -> Iterator[OpenModel]:
    """Open all files and read their headers; closed at the end.

    Raises:
        CheckpointError: a header breaks a rule of the format.
        StorageError: a file cannot be opened or read.
    """
    from fxload import _native
    from fxload.checkpoint.header import header_size, parse_header
    from fxload.checkpoint.shards import allowed_tensors

    files = _native.FileSet([str(path) for path in shards.paths], whole_header=True)
    try:
        infos = files.infos
        headers = []
        for index, info in enumerate(infos):
            head = files.head(index)
            length = header_size(head[:8], info.size_bytes, info.path)
            headers.append(parse_header(head[:length], info.size_bytes, info.path))
        yield OpenModel(shards, files, infos, headers, allowed_tensors(shards, headers))
    finally:
        files.close()
