"""Torch tensors over memory that the core has filled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxload.checkpoint.dtypes import storage_shape, torch_dtype

if TYPE_CHECKING:
    import torch

    from fxload._native import Lease, Load
    from fxload.checkpoint.header import TensorInfo

__all__ = ["TensorMaker"]


class TensorMaker:
    """Makes the tensors of one load.

    A tensor is a view of the load's destination, and keeps the windows under it alive. Where the
    file puts a tensor on an address that its element type cannot have, it gets memory of its own;
    ``realigned_bytes`` counts that.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._dtypes: dict[str, torch.dtype] = {}
        self.realigned_bytes = 0

    def dtype(self, info: TensorInfo, path: str) -> torch.dtype:
        """The torch type of a tensor. Raises UnsupportedError where this torch has none."""
        found = self._dtypes.get(info.dtype)
        if found is None:
            found = torch_dtype(info.dtype, tensor=info.name, path=path)
            self._dtypes[info.dtype] = found
        return found

    def make(self, info: TensorInfo, destination: int) -> torch.Tensor:
        """The tensor whose bytes have landed at ``destination``."""
        import torch

        dtype = self._dtypes[info.dtype]
        shape = info.shape if info.dtype != "F4" else storage_shape(info.dtype, info.shape)
        if info.begin == info.end:
            return torch.empty(shape, dtype=dtype)
        memory: Lease | bytearray = self._load.lease(destination, info.end - info.begin)
        if destination % dtype.itemsize:
            self.realigned_bytes += len(memory)
            memory = bytearray(memory)
        # Not view(): that would cost more, and make every tensor a view of another.
        made: torch.Tensor = torch.frombuffer(memory, dtype=dtype).resize_(shape)
        return made
