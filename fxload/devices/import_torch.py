"""torch and torch_npu, imported where they are needed, with one line where that fails."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fxload._errors import UnsupportedError

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["import_torch", "import_torch_npu"]

_CANN = "install CANN and source its set_env.sh"


def import_torch() -> ModuleType:
    """Torch itself.

    Raises UnsupportedError where a device backend that torch loads by itself keeps it from being
    imported: torch_npu does, where CANN is missing.
    """
    try:
        return importlib.import_module("torch")
    except RuntimeError as error:
        cause = error.__cause__ or error
        npu = "torch_npu" in f"{error} {cause}" or "libhccl" in str(cause)
        raise UnsupportedError(
            f"torch cannot be imported with the device backend it loads: {first_line(cause)}",
            hint=(f"{_CANN}, or go on" if npu else "repair that backend, or go on")
            + " without it: TORCH_DEVICE_BACKEND_AUTOLOAD=0",
        ) from error


def import_torch_npu(device: str) -> Any:
    """``torch.npu``, of a torch_npu that works here; ``device`` is who needs it.

    Raises UnsupportedError where torch_npu is missing or cannot be loaded, or finds no device.
    """
    torch: Any = import_torch()
    # Whoever has loaded it already, has found CANN.
    if not (hasattr(torch, "npu") and torch.npu.is_available()):
        try:
            importlib.import_module("torch_npu")
        except ModuleNotFoundError as error:
            if error.name != "torch_npu":
                raise _unloadable(device, error) from error
            raise UnsupportedError(
                f"device {device!r}: torch_npu is not installed",
                hint="pip install 'fxload[ascend]', which needs CANN on this host",
            ) from error
        except Exception as error:
            # Without CANN it raises whatever its own imports run into.
            raise _unloadable(device, error) from error
        if not torch.npu.is_available():
            raise UnsupportedError(
                f"device {device!r}: torch_npu works, but finds no Ascend device",
                hint="see whether npu-smi info shows one, and whether this container may use it",
            )
    return torch.npu


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    said = str(error).strip().splitlines()
    return said[0].strip() if said else type(error).__name__


def _unloadable(device: str, error: Exception) -> UnsupportedError:
    return UnsupportedError(
        f"device {device!r}: torch_npu is installed, but cannot be loaded: {first_line(error)}",
        hint=_CANN,
    )
