"""Windows in memory of the runtime's own, for platforms that this torch cannot use."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NamedTuple

from fxload._errors import OutOfMemoryError
from fxload.devices.memory import no_memory

if TYPE_CHECKING:
    import torch

    from fxload._native import Device
    from fxload.checkpoint.header import TensorInfo
    from fxload.tensors import TorchTypes

__all__ = ["RawBlock", "RawMemory", "RawTensor"]


class RawBlock:
    """A buffer of the runtime, from its first aligned byte on."""

    def __init__(self, device: Device, size_bytes: int) -> None:
        # A runtime's own alignment is at least this; memory of the host is not a runtime's.
        spare = device.tensor_align
        self._buffer = device.allocate(size_bytes + spare)
        self._skipped = -self._buffer.address % spare
        self.address = self._buffer.address + self._skipped
        self.size_bytes = size_bytes

    @property
    def owner(self) -> RawBlock:
        """The block keeps its own memory."""
        return self

    def watch(self) -> _RawWatch:
        """Tells whether the block lives."""
        return _RawWatch(self)

    def to_bytes(self, offset: int, length: int) -> bytes:
        """Copy a part back to the host."""
        return self._buffer.to_bytes(self._skipped + offset, length)


class _RawWatch:
    def __init__(self, block: RawBlock) -> None:
        self._block = weakref.ref(block)

    def alive(self) -> bool:
        return self._block() is not None


class RawTensor(NamedTuple):
    """A tensor in raw device memory; keeps that memory alive.

    ``shape`` is torch's, and so is ``dtype``, though torch cannot reach the bytes.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    nbytes: int
    block: RawBlock | None
    offset: int

    @property
    def address(self) -> int:
        """Where it begins on the device; 0 if it holds no byte."""
        return 0 if self.block is None else self.block.address + self.offset

    def to_bytes(self) -> bytes:
        """Copy it back to the host."""
        return b"" if self.block is None else self.block.to_bytes(self.offset, self.nbytes)


class RawMemory:
    """Allocates from the runtime, which has waited for whoever used the memory before."""

    def __init__(self, name: str, device: Device, types: TorchTypes) -> None:
        self._name = name
        self._device = device
        self._types = types

    def allocate(self, size_bytes: int) -> RawBlock:
        """Raises OutOfMemoryError, DeviceError."""
        try:
            return RawBlock(self._device, size_bytes)
        except OutOfMemoryError as error:
            raise no_memory(self._name, self._device, size_bytes) from error

    def last_user(self) -> None:
        """Nobody."""

    def make(self, block: RawBlock, offset: int, info: TensorInfo) -> RawTensor:
        """The tensor at ``offset``."""
        dtype, shape = self._types.of(info)
        return RawTensor(dtype, shape, info.end - info.begin, block, offset)

    def empty(self, info: TensorInfo) -> RawTensor:
        """A tensor without elements."""
        dtype, shape = self._types.of(info)
        return RawTensor(dtype, shape, 0, None, 0)
