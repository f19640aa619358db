"""Loads a checkpoint with fxload and with safetensors; fails unless every byte is the same."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

import fxload


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def main(model: Path) -> None:
    with fxload.open_checkpoint(model) as checkpoint:
        loaded = dict(checkpoint)
        report = checkpoint.report()
    compared_bytes = 0
    for file in sorted(model.glob("*.safetensors")):
        for name, expected in load_file(file).items():
            found = loaded.pop(name)
            if found.dtype != expected.dtype or found.shape != expected.shape:
                sys.exit(
                    f"{name}: {found.dtype} {found.shape}, not {expected.dtype} {expected.shape}"
                )
            if not torch.equal(as_bytes(found), as_bytes(expected)):
                sys.exit(f"{name}: the bytes differ")
            compared_bytes += expected.nbytes
    if loaded:
        sys.exit(f"fxload gave tensors that are in no shard: {sorted(loaded)}")
    origin = "the staged copy" if report.staged else "the source"
    print(f"{compared_bytes / 1e9:.3f} GB are equal; fxload read {origin} with {report.engine}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
