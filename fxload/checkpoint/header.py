"""The header of a safetensors file: which tensors it holds, and where.

The reference implementation decides what is a good file; this module asks it, and only explains
its refusals. The rules, in the order in which they are judged::

    too-short         the file has fewer than 8 bytes
    header-too-large  the header claims more than 100,000,000 bytes
    header-truncated  the header ends behind the end of the file
    not-utf8          the header is not UTF-8
    not-json          the header is not JSON
    wrong-type        a value is not of the type it must have
    unknown-dtype     a dtype that the format does not have
    missing-field     a tensor without dtype, shape or data_offsets
    duplicate-field   one of these (or __metadata__) twice
    end-before-begin  a tensor ends before it begins
    hole, overlap     a tensor does not begin where the one before it ends
    overflow          a shape with more than 2**64 bits
    sub-byte          a tensor of 4- or 6-bit elements that does not fill its last byte
    size-mismatch     shape and dtype do not give the length of data_offsets
    truncated         the file ends before the last tensor does
    trailing-bytes    the file goes on after the last tensor
    rejected          the reference gave a reason that this version does not know
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from fxload._collector import paused_collector
from fxload._errors import CheckpointError, UsageError
from fxload.checkpoint._objection import explain
from fxload.checkpoint._reference import reference_objection

__all__ = ["MAX_HEADER_BYTES", "Header", "TensorInfo", "header_size", "parse_header"]

MAX_HEADER_BYTES = 100_000_000


class TensorInfo(NamedTuple):
    """One tensor of a file.

    ``shape`` is the logical shape of the header (F4 counts single elements). ``begin`` and
    ``end`` are byte offsets from the start of the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def size_bytes(self) -> int:
        """Bytes that the tensor takes in the file."""
        return self.end - self.begin


@dataclass(frozen=True)
class Header:
    """A judged header. ``tensors`` are in storage order: ascending, without gap or overlap.

    ``length_bytes`` counts the 8 bytes of the length too: the first tensor begins there.
    """

    length_bytes: int
    tensors: list[TensorInfo]
    metadata: dict[str, str] = field(default_factory=dict)


def header_size(first8: bytes, file_size: int, path: str) -> int:
    """Bytes of the header, its 8 bytes of length included, of a file that begins with ``first8``.

    Raises CheckpointError with the rule too-short, header-too-large or header-truncated.
    """
    if file_size < 8:
        raise CheckpointError(
            f"{file_size} bytes cannot be a safetensors file, which begins with 8 bytes of length",
            path=path,
            offset=0,
            rule="too-short",
            hint="copy or download the file again",
        )
    if len(first8) < 8:
        raise UsageError(f"{len(first8)} of the first 8 bytes were given", path=path)
    length = int.from_bytes(first8[:8], "little")
    if length > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"the header claims {length} bytes, more than the {MAX_HEADER_BYTES} allowed",
            path=path,
            offset=0,
            rule="header-too-large",
            hint="this is no safetensors file, or its start is damaged",
        )
    if 8 + length > file_size:
        raise CheckpointError(
            f"the header ends at byte {8 + length}, the file at byte {file_size}",
            path=path,
            offset=file_size,
            rule="header-truncated",
            hint="copy or download the file again",
        )
    return 8 + length


def parse_header(raw: bytes, file_size: int, path: str) -> Header:
    """Judge and read a header.

    Args:
        raw: the first :func:`header_size` bytes of the file (more are ignored).
        file_size: bytes of the whole file.
        path: what errors name; nothing is read from it.

    Raises CheckpointError naming the broken rule and its byte offset, exactly for the files that
    the reference rejects.
    """
    size = header_size(raw[:8], file_size, path)
    if len(raw) < size:
        raise UsageError(f"{len(raw)} of the {size} bytes of the header were given", path=path)
    if len(raw) > size:
        raw = raw[:size]
    objection = reference_objection(raw, file_size, path)
    if objection is not None:
        raise explain(objection, raw, file_size, path)
    with paused_collector():
        document: dict[str, Any] = json.loads(raw[8:].decode("utf-8"))
        metadata = document.pop("__metadata__", None) or {}
        return Header(size, _tensors(document, size), metadata)


def _tensors(document: dict[str, Any], base: int) -> list[TensorInfo]:
    make = TensorInfo._make
    tensors = []
    for name, entry in document.items():
        # The reference also takes an entry as an array of its fields, and a dtype as {"F32": null}.
        if type(entry) is dict:
            dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        else:
            dtype, shape, (begin, end) = entry
        if type(dtype) is not str:
            (dtype,) = dtype
        tensors.append(make((name, dtype, tuple(shape), base + begin, base + end)))
    tensors.sort(key=itemgetter(3, 4))
    return tensors
