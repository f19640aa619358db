"""From what a caller calls a device to the runtime that serves it.

``cuda`` is what torch calls NVIDIA's and AMD's devices alike: the build of torch tells which.
Nothing is opened on any device but the one asked for, and torch_npu is imported for ``npu`` only.
"""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fxload._errors import UnsupportedError, UsageError
from fxload._native import find_platform, platform_names
from fxload.devices.folders import runtime_folders
from fxload.devices.fork import forked_error, mark_used, refuse_forked
from fxload.devices.import_torch import first_line, import_torch, import_torch_npu

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from fxload._native import Device, Platform

__all__ = ["Target", "device_name", "raw_target", "resolve_device"]

_KNOWN = ("cpu", "cuda", "npu")
_NAME = re.compile(r"([a-z_]\w*)(?::(\d+))?", re.ASCII)
_FORMS = "write cpu, cuda:N (NVIDIA and AMD) or npu:N (Ascend)"
# Which platforms may serve a device whose memory torch does not manage.
_RAW = {"cuda": ("rocm", "cuda"), "npu": ("ascend",)}


@dataclass(frozen=True)
class Target:
    """A device that can be loaded to.

    Attributes:
        name: as torch calls it ("npu:0"), or its platform's name and the index.
        index: its number, to torch and to the runtime alike.
        platforms: those that may serve it, the likeliest first.
        torch_type: "cuda" or "npu"; None where torch does not manage its memory.
    """

    name: str
    index: int
    platforms: tuple[str, ...]
    torch_type: str | None = None

    def open(self) -> Device:
        """Open it, and no other.

        Raises UnsupportedError where no runtime serves it, UsageError for an index that does not
        exist, DeviceError where the runtime refuses, or in a forked process.
        """
        real = self.platforms != ("host",)
        if real:
            refuse_forked(self.name)
        device = self._platform().open(self.index)
        if real:
            mark_used()
        return device

    def _platform(self) -> Platform:
        refusals: list[UnsupportedError] = []
        folders = runtime_folders()
        if self.torch_type is None:
            # torch has loaded none, so it is the caller's search path that decides.
            folders[:0] = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
        for name in self.platforms:
            found = _found(name, folders, refusals)
            if found is not None:
                return found
        if len(refusals) == 1:
            raise refusals[0]
        reasons = "; ".join(refusal.reason for refusal in refusals)
        raise UnsupportedError(f"device {self.name!r}: {reasons}", hint=refusals[0].hint)


def _found(
    platform: str, folders: Sequence[str], refusals: list[UnsupportedError]
) -> Platform | None:
    try:
        return find_platform(platform, folders)
    except UnsupportedError as error:
        refusals.append(error)
        return None


def resolve_device(device: str | torch.device) -> Target | None:
    """The device of this name; None for the host.

    Raises UsageError for a name that makes no sense, or an index that does not exist;
    UnsupportedError for a device that this torch, or this host, does not have.
    """
    kind, index = _parse(device)
    if kind == "cpu":
        return None
    return _cuda_target(index) if kind == "cuda" else _npu_target(index)


def raw_target(device: str) -> Target:
    """A device without torch: ``cuda:N``, ``npu:N``, or a platform's own name ("host").

    For runtimes that this torch cannot use. Raises UsageError for any other name.
    """
    kind, index = _split(device)
    platforms = _RAW.get(kind, (kind,) if kind in platform_names() else ())
    if not platforms:
        raise UsageError(f"no device is called {device!r}", hint="write cuda:N or npu:N")
    return Target(f"{kind}:{index or 0}", index or 0, platforms)


def device_name(device: str, *, raw: bool = False) -> str:
    """The full name of a device, index included; looks for nothing.

    Raises what resolve_device and raw_target raise for a name that makes no sense.
    """
    if raw:
        return raw_target(device).name
    kind, index = _parse(device)
    return kind if kind == "cpu" else f"{kind}:{index or 0}"


def _parse(device: str | torch.device) -> tuple[str, int | None]:
    kind, index = _split(device)
    if kind not in _KNOWN:
        raise UnsupportedError(f"device {str(device)!r}: fxload does not load to it", hint=_FORMS)
    if kind == "cpu" and index:
        raise UsageError(f"no device is called {str(device)!r}", hint="the host is cpu")
    return kind, index


def _split(device: str | torch.device) -> tuple[str, int | None]:
    match = _NAME.fullmatch(str(device))
    if match is None:
        raise UsageError(f"no device is called {str(device)!r}", hint=_FORMS)
    return match[1], None if match[2] is None else int(match[2])


def _cuda_target(index: int | None) -> Target:
    torch: Any = import_torch()
    name = "cuda" if index is None else f"cuda:{index}"
    platform = "rocm" if torch.version.hip else "cuda"
    if not (torch.version.hip or torch.version.cuda):
        raise UnsupportedError(
            f"device {name!r}: torch {torch.__version__} is built without CUDA and ROCm",
            hint="install the build of torch that is made for your device",
        )
    _refuse_bad_fork(torch.cuda, name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    if not available:
        why = f": {first_line(caught[0].message)}" if caught else ""  # type: ignore[arg-type]
        tool = "rocminfo" if torch.version.hip else "nvidia-smi"
        raise UnsupportedError(
            f"device {name!r}: torch {torch.__version__} finds no device{why}",
            hint=f"see whether {tool} shows one, and whether this container may use it",
        )
    chosen = _checked_index(torch.cuda, "cuda", index)
    return Target(f"cuda:{chosen}", chosen, (platform,), "cuda")


def _npu_target(index: int | None) -> Target:
    name = "npu" if index is None else f"npu:{index}"
    npu = import_torch_npu(name)
    _refuse_bad_fork(npu, name)
    chosen = _checked_index(npu, "npu", index)
    return Target(f"npu:{chosen}", chosen, ("ascend",), "npu")


def _checked_index(module: Any, kind: str, index: int | None) -> int:
    if index is None:
        return int(module.current_device())
    count = int(module.device_count())
    if index >= count:
        known = f"{kind}:0" + (f" to {kind}:{count - 1}" if count > 1 else "")
        raise UsageError(f"there is no device {kind}:{index}", hint=f"this process sees {known}")
    return index


def _refuse_bad_fork(module: Any, name: str) -> None:
    """What torch remembers of a fork too: others than fxload use devices."""
    refuse_forked(name)
    forked = getattr(module, "_is_in_bad_fork", None)
    if callable(forked) and forked():
        raise forked_error(name)
