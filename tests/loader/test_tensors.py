"""What is handed out: the bytes of the file, in memory that stays valid as long as needed."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file

import fxload
from fxload.checkpoint.dtypes import DTYPES
from fxload.loader import load_checkpoint, open_checkpoint
from tests.loader.raw import write_raw

if TYPE_CHECKING:
    from pathlib import Path

    from tests.loader.conftest import CheckpointFactory

LOADABLE = [name for name, dtype in DTYPES.items() if dtype.torch_name]


def raw_bytes(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.reshape(-1).view(torch.uint8).tolist())


@pytest.mark.parametrize("pad_to", [8, 1])
def test_every_dtype_that_torch_has_comes_with_its_bytes(tmp_path: Path, pad_to: int) -> None:
    path = tmp_path / "model.safetensors"
    # One odd byte in front puts everything behind it on addresses that no type would choose.
    tensors = [("odd", "U8", [1 if pad_to == 1 else 8])]
    tensors += [(f"t.{name}", name, [3, 8]) for name in LOADABLE]
    tensors += [(f"scalar.{name}", name, []) for name in LOADABLE if DTYPES[name].bits >= 8]
    tensors += [(f"empty.{name}", name, [0, 4]) for name in LOADABLE]
    content = write_raw(path, tensors, pad_to=pad_to)
    with open_checkpoint(path) as checkpoint:
        loaded = dict(checkpoint)
        report = checkpoint.report()
    assert loaded.keys() == content.keys()
    for name, dtype, shape in tensors:
        tensor = loaded[name]
        expected = list(shape)
        if dtype == "F4":
            expected[-1] //= 2
        assert tensor.dtype == getattr(torch, DTYPES[dtype].torch_name or "")
        assert list(tensor.shape) == expected
        assert tensor.is_contiguous()
        if tensor.numel():
            assert raw_bytes(tensor) == content[name]
            assert tensor.data_ptr() % tensor.dtype.itemsize == 0
    if pad_to == 8:
        assert report.realigned_bytes < sum(map(len, content.values()))
    else:
        assert report.realigned_bytes > 0


def test_what_torch_lacks_is_named_before_anything_is_handed_out(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    content = write_raw(path, [("a", "F32", [4]), ("six", "F6_E2M3", [4])])
    with open_checkpoint(path) as checkpoint, pytest.raises(fxload.UnsupportedError) as caught:
        next(iter(checkpoint))
    assert "F6_E2M3" in str(caught.value)
    assert "six" in str(caught.value)
    assert raw_bytes(load_checkpoint(path, exclude=["six"])["a"]) == content["a"]


@pytest.mark.parametrize("shape", [[0, 2**63], [2**64 - 1, 0]])
def test_a_shape_that_torch_cannot_hold_is_named(tmp_path: Path, shape: list[int]) -> None:
    path = tmp_path / "model.safetensors"
    write_raw(path, [("a", "F32", [4]), ("wide", "F32", shape)])
    with open_checkpoint(path) as checkpoint, pytest.raises(fxload.UnsupportedError) as caught:
        next(iter(checkpoint))
    assert "wide" in str(caught.value)


def test_equal_to_safetensors_and_writable(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint()
    loaded = load_checkpoint(checkpoint.path)
    checkpoint.assert_equal(loaded)
    for file in checkpoint.files:
        for name, tensor in load_file(file).items():
            assert torch.equal(loaded[name].view(torch.uint8), tensor.view(torch.uint8))
    for tensor in loaded.values():
        tensor.zero_()
    checkpoint.assert_equal(load_checkpoint(checkpoint.path))


def test_tensors_stay_valid_after_everything_else_is_gone(
    make_checkpoint: CheckpointFactory,
) -> None:
    checkpoint = make_checkpoint(shards=2, tensors=6, tensor_bytes=3 << 20)
    kept = {}
    for name, tensor in open_checkpoint(checkpoint.path):
        if name in ("layers.0.w1.weight", "layers.1.w5.weight"):
            kept[name] = tensor
    del tensor
    gc.collect()
    for _ in range(3):  # whoever takes freed memory writes into it
        load_checkpoint(checkpoint.path)["layers.0.w0.weight"].fill_(1)
    for name, tensor in kept.items():
        assert torch.equal(tensor.view(torch.int16), checkpoint.tensors[name].view(torch.int16))


def test_one_tensor_kept_alone_keeps_little_else_alive(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint(shards=1, tensors=60, tensor_bytes=4 << 20)
    pool = fxload.MemoryPool()
    with open_checkpoint(checkpoint.path, pool=pool) as opened:
        kept = next(tensor for name, tensor in opened if name == "layers.0.w30.weight")
    gc.collect()
    assert kept.nbytes <= pool.live_bytes <= kept.nbytes + (64 << 20)
    del kept
    assert pool.live_bytes == 0


def test_shards_may_lie_behind_links_and_on_other_mounts(
    make_checkpoint: CheckpointFactory, memory_folder: Path
) -> None:
    checkpoint = make_checkpoint()
    moved = memory_folder / "elsewhere.bin"
    moved.write_bytes(checkpoint.files[1].read_bytes())
    checkpoint.files[1].unlink()
    checkpoint.files[1].symlink_to(moved)
    assert moved.stat().st_dev != checkpoint.files[0].stat().st_dev
    checkpoint.assert_equal(load_checkpoint(checkpoint.path))
