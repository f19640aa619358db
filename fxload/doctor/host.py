"""What the host allows: kernel, memory, limits, huge pages."""

from __future__ import annotations

import os
import platform
import resource
from typing import TYPE_CHECKING

from fxload._errors import FxloadError
from fxload.doctor.findings import Finding, Level, Section

if TYPE_CHECKING:
    from fxload.doctor.host_files import HostFiles

__all__ = ["check_host"]

_MIN_KERNEL = (4, 19)
_MIN_MEMLOCK_BYTES = 64 << 20
_MIN_OPEN_FILES = 1024


def check_host(host: HostFiles) -> Section:
    """Kernel, processors, memory limit, RLIMIT_MEMLOCK, open files, aio, huge pages."""
    checks = (_kernel(), _processors(host), _memory(host), _memlock(), _open_files())
    findings = [*checks, _aio(host), _huge_pages(host)]
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    data: dict[str, object] = {
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpus_usable": len(os.sched_getaffinity(0)),
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
        "memlock_bytes": None if soft == resource.RLIM_INFINITY else soft,
        "memlock_hard_bytes": None if hard == resource.RLIM_INFINITY else hard,
        "aio_max_nr": host.integer("/proc/sys/fs/aio-max-nr"),
        "aio_nr": host.integer("/proc/sys/fs/aio-nr"),
        "numa_nodes": len(_numa_nodes(host)),
    }
    return Section("host", tuple(findings), data)


def _kernel() -> Finding:
    release = platform.release()
    numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
    page = os.sysconf("SC_PAGE_SIZE")
    value = f"{platform.system()} {release}, {platform.machine()}, pages of {page} bytes"
    if numbers < _MIN_KERNEL:
        return Finding(
            Level.WARN, "kernel", value, "older than 4.19, which nothing here was tested on"
        )
    return Finding(Level.OK, "kernel", value)


def _numa_nodes(host: HostFiles) -> list[str]:
    names = host.names(host.at("/sys/devices/system/node"))
    return [name for name in names if name.startswith("node") and name[4:].isdigit()]


def _processors(host: HostFiles) -> Finding:
    usable, online = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    nodes = len(_numa_nodes(host)) or 1
    value = f"{usable} of {online} usable, {nodes} NUMA node{'s' if nodes > 1 else ''}"
    return Finding(Level.OK, "processors", value)


def _memory(host: HostFiles) -> Finding:
    from fxload.host_memory import read_host_memory

    try:
        memory = read_host_memory(host.root)
    except FxloadError as error:
        return Finding(Level.WARN, "memory", "unknown", str(error))
    gib = 1 << 30
    value = f"{memory.available_bytes / gib:.1f} of {memory.limit_bytes / gib:.1f} GiB available"
    return Finding(Level.OK, "memory", value, f"bounded by {memory.limited_by}")


def _memlock() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        return Finding(Level.OK, "locked memory", "unlimited")
    value = f"{soft >> 10} KiB"
    if soft >= _MIN_MEMLOCK_BYTES:
        return Finding(Level.OK, "locked memory", value)
    room = "unlimited" if hard == resource.RLIM_INFINITY else f"{hard >> 10} KiB"
    return Finding(
        Level.INFO,
        "locked memory",
        value,
        f"too little to register large buffers with the kernel (hard limit: {room}); "
        "reads then use unregistered ones",
        "ulimit -l unlimited, or LimitMEMLOCK=infinity in the service",
    )


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= _MIN_OPEN_FILES or soft == resource.RLIM_INFINITY:
        return Finding(Level.OK, "open files", str(soft))
    return Finding(
        Level.WARN,
        "open files",
        str(soft),
        f"a checkpoint of more shards than this cannot be opened (hard limit: {hard})",
        "ulimit -n 4096",
    )


def _aio(host: HostFiles) -> Finding:
    used, most = host.integer("/proc/sys/fs/aio-nr"), host.integer("/proc/sys/fs/aio-max-nr")
    if used is None or most is None:
        return Finding(Level.INFO, "libaio", "unknown", "/proc/sys/fs/aio-nr cannot be read")
    value = f"{used} of {most} requests in use"
    return Finding(Level.INFO, "libaio", value, "fxload does not use it; other loaders may")


def _huge_pages(host: HostFiles) -> Finding:
    enabled = host.text("/sys/kernel/mm/transparent_hugepage/enabled")
    if enabled is None:
        return Finding(
            Level.WARN, "huge pages", "not available", "this kernel has no transparent huge pages"
        )
    if "[never]" in enabled:
        return Finding(
            Level.WARN,
            "huge pages",
            "never",
            "every page of the destination is faulted in by itself, which costs processor time",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )
    active = enabled.partition("[")[2].partition("]")[0] or enabled
    return Finding(Level.OK, "huge pages", active)
