"""The machine and the software that a result was measured on."""

from __future__ import annotations

import os
import platform
import re
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from fxload.doctor.host_files import HostFiles
from fxload.doctor.location import locate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fxload.doctor.location import Location

__all__ = ["describe_machine", "describe_place"]

_PACKAGES = (
    "fxload",
    "torch",
    "torch-npu",
    "safetensors",
    "runai-model-streamer",
    "fastsafetensors",
    "instanttensor",
)


def describe_machine(paths: Sequence[str]) -> dict[str, object]:
    """CPU, kernel, memory, limits, versions, date, and the storage that holds ``paths``."""
    from fxload.host_memory import read_host_memory

    host = HostFiles()
    memory = read_host_memory()
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": cpu_model(host),
        "architecture": platform.machine(),
        "cpus_usable": len(os.sched_getaffinity(0)),
        "cpus_online": os.cpu_count(),
        "kernel": platform.release(),
        "virtual_machine": "hypervisor" in (host.text("/proc/cpuinfo") or ""),
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
        "memory_bytes": memory.limit_bytes,
        "memory_available_bytes": memory.available_bytes,
        "memory_limited_by": memory.limited_by,
        "huge_pages": host.text("/sys/kernel/mm/transparent_hugepage/enabled"),
        "python": platform.python_version(),
        "versions": {name: text for name in _PACKAGES if (text := _version(name)) is not None},
        "storage": _places(paths),
    }


def cpu_model(host: HostFiles) -> str:
    """The processor's name; on machines without one in cpuinfo, its implementer and part."""
    fields = host.fields("/proc/cpuinfo")
    name = fields.get("model name") or fields.get("Processor")
    if name:
        return re.sub(r"\s+", " ", name)
    parts = [fields[key] for key in ("CPU implementer", "CPU part") if key in fields]
    return " ".join([platform.machine(), *parts])


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _places(paths: Sequence[str]) -> list[dict[str, object]]:
    """One entry for each mount among the paths."""
    host = HostFiles()
    found: dict[int, dict[str, object]] = {}
    for path in paths:
        place = locate(Path(path), host)
        if place is not None:
            found.setdefault(place.mount.mount_id, describe_place(place))
    return list(found.values())


def describe_place(place: Location) -> dict[str, object]:
    """The mount and its devices, in a few words each."""
    mount = place.mount
    devices = [
        "  " * depth + " ".join(filter(None, (each.name, each.kind, each.model)))
        for device in place.devices
        for depth, each in device.walk()
    ]
    return {
        "mount_point": mount.mount_point,
        "file_system": mount.file_system,
        "source": mount.source,
        "options": ",".join(mount.options),
        "devices": devices,
        "no_devices_because": place.unresolved,
    }
