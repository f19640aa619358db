"""The files that a storage benchmark reads: a model's shards, a folder's files, or made ones."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fxload._errors import CapacityError, ModelNotFoundError, StorageError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["made_files", "readable_files"]

_MIN_FILE_BYTES = 1 << 20
_BLOCK_BYTES = 8 << 20
_FILES = 4
_FOLDER_PREFIX = ".fxload-bench-"


def readable_files(path: Path) -> list[str]:
    """The file itself, or a folder's shards, or else its regular files from 1 MiB on.

    Raises ModelNotFoundError where nothing is worth reading.
    """
    if path.is_file():
        return [str(path)]
    if not path.is_dir():
        raise ModelNotFoundError("no such file or folder", path=str(path), hint="check the name")
    entries = sorted(entry for entry in path.iterdir() if entry.is_file())
    shards = [entry for entry in entries if entry.suffix == ".safetensors"]
    if shards:
        return [str(entry) for entry in shards]
    large = [str(entry) for entry in entries if entry.stat().st_size >= _MIN_FILE_BYTES]
    if not large:
        raise ModelNotFoundError(
            "holds no file of 1 MiB or more to read",
            path=str(path),
            hint="give a model's folder, or let the benchmark write its own with --make 4GB",
        )
    return large


@contextmanager
def made_files(folder: Path, size_bytes: int) -> Iterator[list[str]]:
    """Random files of ``size_bytes`` together, in a new folder that is removed at the end."""
    if not folder.is_dir():
        raise ModelNotFoundError("no such folder", path=str(folder), hint="create it first")
    each = size_bytes // _FILES
    if each < _MIN_FILE_BYTES:
        raise UsageError("--make wants at least 4MiB")
    free = shutil.disk_usage(folder).free
    if free < size_bytes:
        raise CapacityError(
            f"{free} bytes are free, {size_bytes} would be written",
            path=str(folder),
            hint="free space or give a smaller --make",
        )
    try:
        place = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX, dir=folder))
    except OSError as error:
        raise StorageError(
            f"cannot write here: {error.strerror}", path=str(folder), os_errno=error.errno
        ) from error
    try:
        paths = [place / f"{index}.bin" for index in range(_FILES)]
        for path in paths:
            _write_random(path, each)
        yield [str(path) for path in paths]
    finally:
        shutil.rmtree(place)


def _write_random(path: Path, size_bytes: int) -> None:
    """Bytes that neither compress nor repeat: arrays that do either would look too fast."""
    with path.open("wb", buffering=0) as file:
        left = size_bytes
        while left:
            left -= file.write(secrets.token_bytes(min(left, _BLOCK_BYTES)))
        os.fsync(file.fileno())
