"""Windows in torch's own device memory, recycled by its caching allocator.

torch hands memory out again as soon as the stream that used it has been told to: its kernels may
still run. So copies into a new window wait for what torch's current stream holds at that time; the
core sees to that, given the stream's handle (torch_npu refuses to order streams of others itself).

The other direction needs no such wait. A tensor is handed out when the host has seen its last copy
complete, so any stream may use it, and until then the core keeps the window: it needs no
``record_stream``. A wait of torch's stream for the copies would also cover those into later
windows, and would tie the consumer's kernels to them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fxload._errors import DeviceError
from fxload.devices.import_torch import first_line, import_torch
from fxload.devices.memory import no_memory

if TYPE_CHECKING:
    import torch

    from fxload._errors import OutOfMemoryError
    from fxload._native import Device
    from fxload.checkpoint.header import TensorInfo
    from fxload.tensors import TorchTypes

__all__ = ["TorchBlock", "TorchMemory"]


class TorchBlock:
    """A tensor of bytes that windows or realigned tensors lie in."""

    def __init__(self, memory: torch.Tensor) -> None:
        self.memory = memory
        self.address = memory.data_ptr()
        self.size_bytes = memory.numel()
        self._typed: dict[torch.dtype, torch.Tensor] = {}

    def typed(self, dtype: torch.dtype) -> torch.Tensor:
        """All of it as elements of one type."""
        found = self._typed.get(dtype)
        if found is None:
            found = self._typed[dtype] = self.memory.view(dtype)
        return found

    @property
    def owner(self) -> object:
        """The tensor of bytes."""
        return self.memory

    def watch(self) -> _TorchWatch:
        """Tells whether the storage lives."""
        return _TorchWatch(self.memory)


class _TorchWatch:
    def __init__(self, memory: torch.Tensor) -> None:
        from torch.multiprocessing.reductions import StorageWeakRef

        # A weak reference to the tensor would tell nothing: its views share the storage alone.
        make: Any = StorageWeakRef
        self._storage = make(memory.untyped_storage())

    def alive(self) -> bool:
        return not self._storage.expired()


@lru_cache(maxsize=256)
def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of a contiguous tensor: models have few shapes, and many tensors of each."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


class TorchMemory:
    """Allocates with torch, on the stream that is current where the load is iterated.

    Args:
        name: the device as torch calls it.
        device: the same one, as the core knows it.
    """

    def __init__(self, name: str, device: Device, types: TorchTypes) -> None:
        torch: Any = import_torch()
        self._torch = torch
        self._device = device
        self._torch_device = torch.device(name)
        self._module = getattr(torch, self._torch_device.type)
        self._types = types
        self._out_of_memory: type[BaseException] = getattr(
            torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError
        )

    def allocate(self, size_bytes: int) -> TorchBlock:
        """Raises OutOfMemoryError with what is free, DeviceError."""
        # Whole elements of every type.
        size_bytes = -(-size_bytes // self._device.tensor_align) * self._device.tensor_align
        try:
            memory = self._torch.empty(
                size_bytes, dtype=self._torch.uint8, device=self._torch_device
            )
        except RuntimeError as error:
            raise self._refused(error, size_bytes) from error
        block = TorchBlock(memory)
        if block.address % self._device.tensor_align:
            raise DeviceError(
                f"torch's allocator gave memory at {block.address:#x} on {self._torch_device},"
                f" and tensors begin on {self._device.tensor_align} bytes",
                hint="load without the allocator that was plugged into torch",
            )
        return block

    def last_user(self) -> int:
        """torch's current stream: asked for each time, because the caller may switch it.

        torch_npu issues its calls on a thread of its own, and only reading the handle makes it
        issue those that came before.
        """
        stream = self._module.current_stream(self._torch_device)
        handle: int = getattr(stream, f"{self._torch_device.type}_stream")
        return handle

    def make(self, block: TorchBlock, offset: int, info: TensorInfo) -> torch.Tensor:
        """The tensor at ``offset``: no view to autograd, though it shares the block's storage."""
        dtype, shape = self._types.of(info)
        view = block.typed(dtype).as_strided(shape, _strides(shape), offset // dtype.itemsize)
        # Views share one version counter, and the first change in place would spoil all others.
        made: torch.Tensor = view.data
        return made

    def empty(self, info: TensorInfo) -> torch.Tensor:
        """A tensor without elements."""
        dtype, shape = self._types.of(info)
        made: torch.Tensor = self._torch.empty(shape, dtype=dtype, device=self._torch_device)
        return made

    def _refused(self, error: RuntimeError, size_bytes: int) -> OutOfMemoryError | DeviceError:
        if not isinstance(error, self._out_of_memory) and "out of memory" not in str(error).lower():
            return DeviceError(f"{self._torch_device} gave no memory: {first_line(error)}")
        return no_memory(str(self._torch_device), self._device, size_bytes)
