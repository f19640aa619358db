"""The index of a sharded checkpoint: which file holds which tensor."""

from __future__ import annotations

import json
import os
import posixpath
from typing import TYPE_CHECKING, Any

from fxload._errors import CheckpointError, ModelNotFoundError, StorageError
from fxload._native import FileSet

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["INDEX_SUFFIX", "read_index"]

INDEX_SUFFIX = ".safetensors.index.json"

_LARGE_BYTES = 1 << 20


def read_index(path: Path) -> dict[str, str]:
    """Tensor name → file name relative to the folder of the index, normalised.

    Raises CheckpointError with the rule index-not-json, index-wrong-type, index-empty or
    index-escapes (a file name that leaves the folder); StorageError if it cannot be read.
    """
    try:
        text = _read_whole(path).decode("utf-8")
        document = json.loads(text)
    except FileNotFoundError as error:
        raise ModelNotFoundError(
            "no such index, or a dangling link", path=str(path), hint="download it again"
        ) from error
    except OSError as error:
        raise StorageError(
            f"cannot read the index: {error.strerror}", path=str(path), os_errno=error.errno
        ) from error
    except UnicodeDecodeError as error:
        raise _broken(path, "not-json", f"not UTF-8: {error.reason}", error.start) from error
    except json.JSONDecodeError as error:
        offset = len(text[: error.pos].encode("utf-8"))
        raise _broken(path, "not-json", f"not JSON: {error.msg}", offset) from error
    except (ValueError, RecursionError) as error:
        raise _broken(path, "not-json", f"JSON of an absurd depth or number: {error}") from error
    return _checked(document, path)


def _read_whole(path: Path) -> bytes:
    """A large index in one direct request: the page cache would ask for it piece by piece."""
    size = path.stat().st_size
    if size < _LARGE_BYTES:
        return path.read_bytes()
    files = FileSet([str(path)], head_bytes=size)
    try:
        return files.head(0)
    finally:
        files.close()


def _checked(document: Any, path: Path) -> dict[str, str]:
    if not isinstance(document, dict):
        raise _broken(path, "wrong-type", "the index is not an object")
    weight_map = document.get("weight_map")
    if not isinstance(weight_map, dict):
        raise _broken(path, "wrong-type", "the index has no object weight_map")
    if not weight_map:
        raise _broken(path, "empty", "weight_map names no tensor")
    known: dict[str, str] = {}
    for tensor, file in weight_map.items():
        if not isinstance(file, str):
            raise _broken(path, "wrong-type", f"weight_map[{tensor!r}] is not a file name")
        if file not in known:
            known[file] = _inside(file, tensor, path)
        weight_map[tensor] = known[file]
    return weight_map


def _inside(file: str, tensor: str, path: Path) -> str:
    """The normalised name, if it stays in the folder; links in the folder are the owner's."""
    parts = file.split("/")
    if file.startswith("/") or ".." in parts or "\0" in file or not file.strip("./"):
        raise _broken(
            path, "escapes", f"weight_map[{tensor!r}] leaves the folder of the index: {file!r}"
        )
    try:
        os.fsencode(file)
    except UnicodeEncodeError:
        raise _broken(
            path, "wrong-type", f"weight_map[{tensor!r}] is no possible file name: {file!r}"
        ) from None
    if not file.endswith(".safetensors"):
        raise _broken(
            path, "wrong-type", f"weight_map[{tensor!r}] is no safetensors file: {file!r}"
        )
    return posixpath.normpath(file)


def _broken(path: Path, rule: str, reason: str, offset: int | None = None) -> CheckpointError:
    return CheckpointError(
        reason, path=str(path), offset=offset, rule=f"index-{rule}", hint="download the index again"
    )
