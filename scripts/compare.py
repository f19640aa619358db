"""Loads a checkpoint with fxload and with safetensors; fails unless every byte is the same.

    python scripts/compare.py MODEL [--device cuda:0] [--raw]

With --raw it loads into the device's own memory, where this torch cannot use the device.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import fxload
from fxload.devices.resolve import raw_target
from fxload.load_options import LoadOptions
from fxload.loader import open_target


def as_bytes(tensor: Any) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):  # raw device memory
        return torch.frombuffer(bytearray(tensor.to_bytes()) or bytearray(1), dtype=torch.uint8)[
            : tensor.nbytes
        ]
    return tensor.cpu().contiguous().reshape(-1).view(torch.uint8)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--raw", action="store_true")
    arguments = parser.parse_args()
    model, device = arguments.model, arguments.device
    if arguments.raw:
        opened = open_target(model, raw_target(device), LoadOptions())
    else:
        opened = fxload.open_checkpoint(model, device=device)
    with opened as checkpoint:
        loaded = dict(checkpoint)
        report = checkpoint.report()
    compared_bytes = 0
    for file in sorted(model.glob("*.safetensors")):
        for name, expected in load_file(file).items():
            found = loaded.pop(name)
            if found.dtype != expected.dtype or tuple(found.shape) != tuple(expected.shape):
                sys.exit(
                    f"{name}: {found.dtype} {found.shape}, not {expected.dtype} {expected.shape}"
                )
            if not torch.equal(as_bytes(found), as_bytes(expected)):
                sys.exit(f"{name}: the bytes differ")
            compared_bytes += expected.nbytes
    if loaded:
        sys.exit(f"fxload gave tensors that are in no shard: {sorted(loaded)}")
    origin = "the staged copy" if report.staged else "the source"
    where = "" if device == "cpu" else f" to {device}"
    print(
        f"{compared_bytes / 1e9:.3f} GB are equal; fxload read {origin} with {report.engine}{where}"
    )


if __name__ == "__main__":
    main()
