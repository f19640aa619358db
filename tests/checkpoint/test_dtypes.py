from __future__ import annotations

import pytest
import torch
from safetensors import safe_open

from fxload._errors import CheckpointError, UnsupportedError
from fxload.checkpoint import DTYPES, bits_of, storage_shape, torch_dtype

IN_TORCH = {
    "BOOL": torch.bool,
    "F4": torch.float4_e2m1fn_x2,
    "U8": torch.uint8,
    "I8": torch.int8,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E8M0": torch.float8_e8m0fnu,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "I16": torch.int16,
    "U16": torch.uint16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "F32": torch.float32,
    "C64": torch.complex64,
    "F64": torch.float64,
    "I64": torch.int64,
    "U64": torch.uint64,
}


@pytest.mark.parametrize("dtype", IN_TORCH)
def test_torch_has_it(dtype: str) -> None:
    found = torch_dtype(dtype)
    assert found is IN_TORCH[dtype]
    assert found.itemsize * 8 == bits_of(dtype) * DTYPES[dtype].packed


def test_every_type_of_the_format_is_known() -> None:
    assert set(DTYPES) == {*IN_TORCH, "F6_E2M3", "F6_E3M2"}


@pytest.mark.parametrize("dtype", sorted(IN_TORCH))
def test_the_reference_gives_the_same_tensor_type_and_shape(dtype: str, tmp_path: object) -> None:
    shape = [3, 2]
    data = bits_of(dtype) * 6 // 8
    text = f'{{"t":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{data}]}}}}'.encode()
    path = f"{tmp_path}/model.safetensors"
    with open(path, "wb") as file:  # noqa: PTH123
        file.write(len(text).to_bytes(8, "little") + text + bytes(data))
    with safe_open(path, "pt") as opened:
        expected = opened.get_tensor("t")
    assert expected.dtype == torch_dtype(dtype)
    assert tuple(expected.shape) == storage_shape(dtype, shape)


@pytest.mark.parametrize("dtype", ["F6_E2M3", "F6_E3M2"])
def test_a_type_that_torch_lacks_is_named(dtype: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        torch_dtype(dtype, tensor="a.weight", path="some/file")
    text = str(caught.value)
    for part in (dtype, "a.weight", torch.__version__, "some/file"):
        assert part in text


def test_a_type_that_this_torch_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "float8_e8m0fnu")
    with pytest.raises(UnsupportedError, match=r"float8_e8m0fnu for F8_E8M0.*newer torch"):
        torch_dtype("F8_E8M0", tensor="a")


def test_f4_counts_pairs() -> None:
    assert storage_shape("F4", (3, 8)) == (3, 4)
    assert storage_shape("F4", [0]) == (0,)
    assert storage_shape("F32", [3, 7]) == (3, 7)
    assert storage_shape("F32", []) == ()


def test_an_odd_last_dimension_of_f4_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"\[2, 3\].*packed"):
        storage_shape("F4", [2, 3], tensor="packed")


def test_an_unknown_type_is_refused() -> None:
    for call in (bits_of, torch_dtype):
        with pytest.raises(CheckpointError, match="F7") as caught:
            call("F7")
        assert caught.value.rule == "unknown-dtype"
