"""Safetensors files written byte by byte: what no library would write, and the format allows."""

from __future__ import annotations

import json
import os
from math import prod
from typing import TYPE_CHECKING

from fxload.checkpoint.dtypes import bits_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def write_raw(
    path: Path, tensors: Sequence[tuple[str, str, Sequence[int]]], *, pad_to: int = 8
) -> dict[str, bytes]:
    """Write tensors of (name, dtype, shape) with random bytes, in this order; return the bytes.

    The data begins at a multiple of `pad_to`; 1 leaves the header as it falls.
    """
    header = {}
    content = {}
    end = 0
    for name, dtype, shape in tensors:
        size_bytes = prod(shape) * bits_of(dtype) // 8
        content[name] = os.urandom(size_bytes)
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [end, end + size_bytes],
        }
        end += size_bytes
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % pad_to)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(content.values()))
    return content
