"""Asks one device runtime about itself, in a process of its own; prints JSON, one object a line.

    python -m fxload.doctor.accelerator_probe find PLATFORM [FOLDER...]
    python -m fxload.doctor.accelerator_probe measure PLATFORM INDEX FILE [FOLDER...]
    python -m fxload.doctor.accelerator_probe torch

A runtime may crash or hang when it is loaded, and a device that was opened keeps some of its memory
from others: both end with this process. FILE is one to read past the page cache into pinned memory;
"" stands for the core's own.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

__all__ = ["main"]

_RING_BYTES = 64 << 20


def main(arguments: Sequence[str]) -> int:
    """Answer one question. What fails is an answer too."""
    from fxload._errors import FxloadError, UnsupportedError

    answers = _own_stdout()
    question, *rest = arguments
    try:
        if question == "find":
            _say(answers, **_find(rest[0], rest[1:]))
        elif question == "measure":
            _measure(answers, rest[0], int(rest[1]), rest[2], rest[3:])
        else:
            _say(answers, **_torch())
    except FxloadError as error:
        absent = isinstance(error, UnsupportedError)
        _say(answers, error=str(error), absent=absent)
    return 0


def _own_stdout() -> TextIO:
    """Runtimes print what they like to standard output; here that goes to standard error."""
    kept = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(kept, "w", buffering=1)


def _say(answers: TextIO, **facts: object) -> None:
    answers.write(json.dumps(facts) + "\n")


def _find(name: str, folders: Sequence[str]) -> dict[str, object]:
    from fxload import _native

    platform = _native.find_platform(name, folders)
    return {
        "library": platform.library,
        "found_by": platform.found_by,
        "version": platform.version,
        "device_count": platform.device_count,
    }


def _measure(
    answers: TextIO, name: str, index: int, probe_path: str, folders: Sequence[str]
) -> None:
    from fxload import _native

    device = _native.find_platform(name, folders).open(index)
    free_bytes, total_bytes = device.memory()
    _say(
        answers,
        index=device.index,
        name=device.name,
        pci_bus=device.pci_bus,
        numa_node=None if device.numa_node < 0 else device.numa_node,
        free_bytes=free_bytes,
        total_bytes=total_bytes,
    )
    ring = _native.PinnedRing(device, _RING_BYTES, probe_path=probe_path or _native.__file__)
    try:
        facts: dict[str, object] = {
            "pinned": ring.pinned,
            "method": ring.method,
            "reason": ring.reason,
            "numa_node": None if ring.numa_node < 0 else ring.numa_node,
            "takes_direct_reads": ring.takes_direct_reads,
            "size_bytes": ring.size_bytes,
        }
        _say(answers, ring=facts)
        rate = ring.copy_rate()
        _say(answers, bytes_per_s=rate["bytes"] / rate["seconds"] if rate["seconds"] else None)
    finally:
        ring.close()


def _torch() -> dict[str, object]:
    """What torch was built for and sees. Every import may fail in its own way."""
    from fxload.devices.import_torch import first_line

    found: dict[str, object] = {"torch": _version("torch"), "torch_npu": _version("torch_npu")}
    try:
        import torch
    except Exception as error:  # noqa: BLE001 - a broken installation raises anything
        return {**found, "error": first_line(error)}
    found["torch"] = torch.__version__
    found |= {"hip": torch.version.hip, "cuda": torch.version.cuda}
    try:
        found["cuda_devices"] = torch.cuda.device_count() if torch.cuda.is_available() else 0
    except Exception as error:  # noqa: BLE001 - the same
        found["cuda_error"] = first_line(error)
    if found["torch_npu"] is not None:
        try:
            import torch_npu

            npu: Any = torch_npu.npu
            found["npu_devices"] = npu.device_count() if npu.is_available() else 0
        except Exception as error:  # noqa: BLE001 - without CANN its import fails
            found["npu_error"] = first_line(error)
    return found


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
