"""Torch tensors over memory that the core has filled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxload._errors import UnsupportedError
from fxload.checkpoint.dtypes import storage_shape, torch_dtype
from fxload.devices.import_torch import import_torch

if TYPE_CHECKING:
    import torch

    from fxload._native import Lease, Load
    from fxload.checkpoint.header import TensorInfo

__all__ = ["TensorMaker", "TorchTypes"]

_MOST_ELEMENTS = 2**63 - 1


class TorchTypes:
    """What torch calls the tensors of one load.

    Raises UnsupportedError where torch cannot be imported.
    """

    def __init__(self) -> None:
        import_torch()
        self._dtypes: dict[str, torch.dtype] = {}

    def check(self, info: TensorInfo, path: str) -> None:
        """Raises UnsupportedError for a tensor that this torch cannot hold."""
        if info.dtype not in self._dtypes:
            self._dtypes[info.dtype] = torch_dtype(info.dtype, tensor=info.name, path=path)
        # Only what holds no element can be as large as this and fit into a file.
        if info.begin == info.end and max(info.shape, default=0) > _MOST_ELEMENTS:
            raise UnsupportedError(
                f"torch cannot hold the shape {list(info.shape)} (tensor {info.name!r})",
                path=path,
                hint="exclude this tensor",
            )

    def of(self, info: TensorInfo) -> tuple[torch.dtype, tuple[int, ...]]:
        """The type and the shape of a tensor that was checked."""
        if info.dtype == "F4":
            return self._dtypes["F4"], storage_shape(info.dtype, info.shape)
        return self._dtypes[info.dtype], info.shape


class TensorMaker:
    """Makes the tensors of one load.

    A tensor is a view of the load's destination, and keeps the windows under it alive. Where the
    file puts a tensor on an address that its element type cannot have, it gets memory of its own;
    ``realigned_bytes`` counts that.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._types = TorchTypes()
        self.realigned_bytes = 0

    def check(self, info: TensorInfo, path: str) -> None:
        """Raises UnsupportedError for a tensor that this torch cannot hold."""
        self._types.check(info, path)

    def make(self, info: TensorInfo, destination: int) -> torch.Tensor:
        """The tensor whose bytes have landed at ``destination``."""
        import torch

        dtype, shape = self._types.of(info)
        if info.begin == info.end:
            return torch.empty(shape, dtype=dtype)
        memory: Lease | bytearray = self._load.lease(destination, info.end - info.begin)
        if destination % dtype.itemsize:
            self.realigned_bytes += len(memory)
            memory = bytearray(memory)
        # Not view(): that would cost more, and make every tensor a view of another.
        made: torch.Tensor = torch.frombuffer(memory, dtype=dtype).resize_(shape)
        return made
