"""Model weights from flash storage to tensors, at the speed of the link.

>>> import fxload
>>> tensors = fxload.load_checkpoint("models/llama")        # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fxload._errors import (
    CapacityError,
    ChangedError,
    CheckpointError,
    DeadlineError,
    FxloadError,
    ModelNotFoundError,
    OutOfMemoryError,
    StorageError,
    TruncatedError,
    UnsupportedError,
    UsageError,
)
from fxload._version import __version__

if TYPE_CHECKING:
    from fxload._native import MemoryPool
    from fxload.loader import Checkpoint, LoadReport, load_checkpoint, open_checkpoint
    from fxload.module import LoadIntoResult, load_into
    from fxload.progress import Progress

__all__ = [
    "CapacityError",
    "ChangedError",
    "Checkpoint",
    "CheckpointError",
    "DeadlineError",
    "FxloadError",
    "LoadIntoResult",
    "LoadReport",
    "MemoryPool",
    "ModelNotFoundError",
    "OutOfMemoryError",
    "Progress",
    "StorageError",
    "TruncatedError",
    "UnsupportedError",
    "UsageError",
    "__version__",
    "load_checkpoint",
    "load_into",
    "open_checkpoint",
]

# Imported at first use: what only catches an error, or asks for the version, pays for no more.
_LAZY = {
    "Checkpoint": "fxload.loader",
    "LoadIntoResult": "fxload.module",
    "LoadReport": "fxload.loader",
    "MemoryPool": "fxload._native",
    "Progress": "fxload.progress",
    "load_checkpoint": "fxload.loader",
    "load_into": "fxload.module",
    "open_checkpoint": "fxload.loader",
}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
