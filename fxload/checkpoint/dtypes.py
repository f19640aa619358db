"""The element types of the safetensors format, and what this torch calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fxload._errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

__all__ = ["DTYPES", "DType", "bits_of", "storage_shape", "torch_dtype"]


class DType(NamedTuple):
    """One element type: bits of an element, and the attribute of ``torch`` that names it.

    ``torch_name`` is None where no torch has such a type. ``packed`` is how many elements of the
    header's shape one element of torch's type holds.
    """

    bits: int
    torch_name: str | None
    packed: int = 1


DTYPES: dict[str, DType] = {
    "BOOL": DType(8, "bool"),
    "F4": DType(4, "float4_e2m1fn_x2", 2),
    "F6_E2M3": DType(6, None),
    "F6_E3M2": DType(6, None),
    "U8": DType(8, "uint8"),
    "I8": DType(8, "int8"),
    "F8_E5M2": DType(8, "float8_e5m2"),
    "F8_E4M3": DType(8, "float8_e4m3fn"),
    "F8_E8M0": DType(8, "float8_e8m0fnu"),
    "F8_E4M3FNUZ": DType(8, "float8_e4m3fnuz"),
    "F8_E5M2FNUZ": DType(8, "float8_e5m2fnuz"),
    "I16": DType(16, "int16"),
    "U16": DType(16, "uint16"),
    "F16": DType(16, "float16"),
    "BF16": DType(16, "bfloat16"),
    "I32": DType(32, "int32"),
    "U32": DType(32, "uint32"),
    "F32": DType(32, "float32"),
    "C64": DType(64, "complex64"),
    "F64": DType(64, "float64"),
    "I64": DType(64, "int64"),
    "U64": DType(64, "uint64"),
}


def bits_of(dtype: str) -> int:
    """Bits of one element. Raises CheckpointError for a name that the format does not have."""
    return _known(dtype, None, None).bits


def torch_dtype(dtype: str, *, tensor: str | None = None, path: str | None = None) -> torch.dtype:
    """The torch type for a type of the format.

    Raises UnsupportedError, naming the type, the tensor and the torch version, where this torch
    has none; CheckpointError for a name that the format does not have.
    """
    import torch

    name = _known(dtype, tensor, path).torch_name
    found = None if name is None else getattr(torch, name, None)
    if isinstance(found, torch.dtype):
        return found
    wanted = f"no type for {dtype}" if name is None else f"no torch.{name} for {dtype}"
    raise UnsupportedError(
        f"torch {torch.__version__} has {wanted}{_of(tensor)}",
        path=path,
        hint="exclude this tensor"
        + ("" if name is None else ", or install a newer torch")
        + "; its bytes can still be staged and verified",
    )


def storage_shape(
    dtype: str, shape: Sequence[int], *, tensor: str | None = None, path: str | None = None
) -> tuple[int, ...]:
    """The shape that torch gives a tensor whose header says ``shape``.

    They differ for F4 alone: torch counts pairs, so its last dimension is half the header's.
    Raises UnsupportedError if the last dimension of an F4 tensor is odd.
    """
    packed = _known(dtype, tensor, path).packed
    if packed == 1 or not shape:
        return tuple(shape)
    if shape[-1] % packed:
        raise UnsupportedError(
            f"torch cannot hold {dtype} with an odd last dimension: shape {list(shape)}"
            f"{_of(tensor)}",
            path=path,
            hint="exclude this tensor",
        )
    return (*shape[:-1], shape[-1] // packed)


def _known(dtype: str, tensor: str | None, path: str | None) -> DType:
    found = DTYPES.get(dtype)
    if found is None:
        raise CheckpointError(
            f"unknown dtype {dtype!r}{_of(tensor)}",
            path=path,
            rule="unknown-dtype",
            hint="the format has " + ", ".join(DTYPES),
        )
    return found


def _of(tensor: str | None) -> str:
    return "" if tensor is None else f" (tensor {tensor!r})"
