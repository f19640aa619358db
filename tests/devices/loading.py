"""Loads into raw device memory, and what safetensors makes of the same files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safetensors import deserialize

from fxload.devices.resolve import raw_target
from fxload.load_options import LoadOptions
from fxload.loader import open_target

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from fxload.devices.raw_windows import RawTensor
    from fxload.loader import Checkpoint, LoadReport

MIB = 1 << 20


def open_raw(path: Path, device: str = "host", **options: Any) -> Checkpoint:
    return open_target(path, raw_target(device), LoadOptions(**options))


def load_raw(
    path: Path, device: str = "host", **options: Any
) -> tuple[dict[str, RawTensor], LoadReport]:
    """Every tensor, kept on the device, and the report."""
    with open_raw(path, device, **options) as opened:
        tensors: Any = dict(opened)
        return tensors, opened.report()


def reference_bytes(files: Iterable[Path]) -> dict[str, bytes]:
    """The bytes of every tensor, as the reference implementation reads them."""
    parse: Any = deserialize  # safetensors leaves it untyped
    return {
        name: bytes(entry["data"]) for file in files for name, entry in parse(file.read_bytes())
    }
