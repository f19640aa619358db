"""Small checkpoints of random content, as engines and users write them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from torch import Tensor


@dataclass(frozen=True)
class Checkpoint:
    """A folder of shards and what they hold."""

    path: Path
    tensors: dict[str, Tensor]
    files: list[Path]

    @property
    def size_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files)

    def assert_equal(self, loaded: dict[str, Tensor]) -> None:
        """Fail unless `loaded` has these names, dtypes, shapes and bytes."""
        assert loaded.keys() == self.tensors.keys()
        for name, tensor in self.tensors.items():
            assert same_bytes(loaded[name], tensor), f"{name} differs"


def same_bytes(left: Tensor, right: Tensor) -> bool:
    """Equal dtype, shape and bytes: NaN equals the same NaN, and 0.0 is not -0.0."""
    import torch

    return (
        left.dtype == right.dtype
        and left.shape == right.shape
        and torch.equal(
            left.detach().cpu().contiguous().reshape(-1).view(torch.uint8),
            right.detach().cpu().contiguous().reshape(-1).view(torch.uint8),
        )
    )


def write_checkpoint(
    folder: Path, *, shards: int = 3, tensors: int = 4, tensor_bytes: int = 256 << 10, seed: int = 0
) -> Checkpoint:
    """Write `shards` files of `tensors` bfloat16 matrices and one odd-sized float32 vector each.

    More than one shard brings an index, as `save_pretrained` writes it; one is model.safetensors.
    """
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(seed)
    folder.mkdir(parents=True, exist_ok=True)
    everything: dict[str, Tensor] = {}
    weight_map: dict[str, str] = {}
    files = []
    for shard in range(shards):
        content = {
            f"layers.{shard}.w{number}.weight": _random_bfloat16(tensor_bytes, generator)
            for number in range(tensors)
        }
        content[f"layers.{shard}.bias"] = torch.randn(37, generator=generator)
        name = "model.safetensors"
        if shards > 1:
            name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        save_file(content, folder / name, metadata={"format": "pt"})
        (folder / name).chmod(0o644)  # it was written for its owner alone
        files.append(folder / name)
        everything |= content
        weight_map |= dict.fromkeys(content, name)
    if shards > 1:
        index = {
            "metadata": {"total_size": sum(tensor.nbytes for tensor in everything.values())},
            "weight_map": weight_map,
        }
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return Checkpoint(path=folder, tensors=everything, files=files)


def evict(files: Iterable[Path]) -> None:
    """Drop these files from the page cache, as far as the file system allows it."""
    for file in files:
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def write_holes(file: Path, *, tensors: int, tensor_bytes: int) -> None:
    """Write one large file of zeros that takes no room."""
    header = {
        f"layers.{number}.weight": {
            "dtype": "U8",
            "shape": [tensor_bytes],
            "data_offsets": [number * tensor_bytes, (number + 1) * tensor_bytes],
        }
        for number in range(tensors)
    }
    text = json.dumps(header).encode()
    with file.open("wb") as handle:
        handle.write(len(text).to_bytes(8, "little") + text)
        handle.truncate(8 + len(text) + tensors * tensor_bytes)


def _random_bfloat16(size_bytes: int, generator: object) -> Tensor:
    import torch

    assert isinstance(generator, torch.Generator)
    words = torch.randint(
        -(2**15), 2**15, (size_bytes // 2,), dtype=torch.int16, generator=generator
    )
    columns = 64 if words.numel() % 64 == 0 else 1
    return words.view(torch.bfloat16).reshape(-1, columns)
