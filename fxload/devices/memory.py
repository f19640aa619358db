"""Device memory for windows: who allocates it, and what the tensors in it are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from fxload._errors import OutOfMemoryError

if TYPE_CHECKING:
    from fxload._native import Device
    from fxload.checkpoint.header import TensorInfo

__all__ = ["Block", "DeviceMemory", "Ledger", "no_memory"]


class Block(Protocol):
    """Device memory; lives as long as this, or anything made of it."""

    @property
    def address(self) -> int:
        """Where it begins on the device: a multiple of the device's ``tensor_align``."""

    @property
    def size_bytes(self) -> int:
        """Bytes that it takes."""

    @property
    def owner(self) -> object:
        """What keeps the memory alive while the core copies into it."""

    def watch(self) -> Watch:
        """Tells whether the memory lives, without keeping it alive."""


class Watch(Protocol):
    """An observer of a block."""

    def alive(self) -> bool:
        """Whether a tensor, the core, or the block itself still holds the memory."""


class DeviceMemory(Protocol):
    """The allocator of one load. Not thread-safe."""

    def allocate(self, size_bytes: int) -> Any:
        """A Block. Raises OutOfMemoryError with what is free, DeviceError."""

    def last_user(self) -> int | None:
        """The runtime's handle of the stream that may still use what was just allocated.

        Copies into it wait for what this stream holds. None: nobody has used it.
        """

    def make(self, block: Any, offset: int, info: TensorInfo) -> Any:
        """The tensor whose bytes lie at ``offset`` of a block."""

    def empty(self, info: TensorInfo) -> Any:
        """A tensor without elements."""


def no_memory(name: str, device: Device, size_bytes: int) -> OutOfMemoryError:
    """What to raise where a device has no memory of that size left."""
    free, total = device.memory()
    return OutOfMemoryError(
        f"{name} has no {size_bytes} bytes left: {free} of {total} are free",
        hint="free memory of the device, or let go of tensors while they stream"
        " (open_checkpoint with device_memory_budget=…)",
    )


class Ledger:
    """Device memory that is alive. What tensors still hold counts; what is freed does not."""

    def __init__(self) -> None:
        self._watched: list[tuple[Watch, int]] = []
        self.peak_bytes = 0  # as far as live_bytes() was asked for

    def add(self, block: Block) -> None:
        """Count a block until its memory is freed."""
        self._watched.append((block.watch(), block.size_bytes))

    def live_bytes(self) -> int:
        """Bytes alive now; takes time in proportion to the blocks that are."""
        self._watched = [entry for entry in self._watched if entry[0].alive()]
        live = sum(size_bytes for _, size_bytes in self._watched)
        self.peak_bytes = max(self.peak_bytes, live)
        return live
