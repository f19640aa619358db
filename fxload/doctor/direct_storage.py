"""Whether storage could write into device memory by itself, and if not, what stands in the way.

fxload does not use such a path: it reads into pinned memory and copies from there, which works
everywhere. The verdict tells what another loader could expect on this path.

The rules are those of hipFile's page on its limitations, and of the release notes and the
troubleshooting guide of GPUDirect Storage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fxload.doctor.block_devices import BlockDevice
    from fxload.doctor.host_files import HostFiles
    from fxload.doctor.location import Location

__all__ = ["KernelSupport", "Verdict", "judge_direct_storage", "read_kernel_support"]

_HIPFILE_SINCE = (7, 2)
_P2PDMA_SINCE = (12, 8)  # CUDA
# Their clients move data by RDMA into memory that nvidia-fs names.
_NVIDIA_FS_PARTNERS = frozenset(["lustre", "gpfs", "beegfs", "wekafs"])


@dataclass(frozen=True)
class KernelSupport:
    """What the kernel brings for it; ``p2pdma`` is None where it does not tell."""

    nvidia_fs: bool
    p2pdma: bool | None


@dataclass(frozen=True)
class Verdict:
    """``name`` is that of the interface; ``reasons`` are objections, or what carries it."""

    name: str
    usable: bool
    reasons: tuple[str, ...]


def read_kernel_support(host: HostFiles) -> KernelSupport:
    """Ask /proc and /sys."""
    nvidia_fs = any(
        host.at(path).exists() for path in ("/proc/driver/nvidia-fs", "/sys/module/nvidia_fs")
    )
    # The list of symbols is there for everybody; only their addresses are not.
    symbols = host.text("/proc/kallsyms")
    return KernelSupport(nvidia_fs, " pci_p2pdma_add_resource" in symbols if symbols else None)


def judge_direct_storage(
    platform: str, version: str, place: Location, kernel: KernelSupport
) -> Verdict:
    """Judge a path for a platform ("rocm", "cuda", "ascend") whose runtime has this version."""
    if platform == "rocm":
        objections = (
            *_too_old("ROCm", version, _HIPFILE_SINCE),
            *_no_p2pdma(kernel),
            *_not_local_nvme(place),
        )
        return Verdict("hipFile", not objections, objections or ("local NVMe",))
    if platform == "cuda":
        return _judge_cufile(version, place, kernel)
    return Verdict(
        "direct storage", False, (f"{platform} has no interface from storage to device memory",)
    )


def _judge_cufile(version: str, place: Location, kernel: KernelSupport) -> Verdict:
    name = "GPUDirect Storage"
    through_module = (
        *(() if kernel.nvidia_fs else ("the kernel module nvidia-fs is not loaded",)),
        *_nvidia_fs_objections(place),
    )
    if not through_module:
        return Verdict(name, True, ("through the kernel module nvidia-fs",))
    through_kernel = (
        *_too_old("CUDA", version, _P2PDMA_SINCE),
        *_no_p2pdma(kernel),
        *_not_local_nvme(place),
    )
    if not through_kernel:
        return Verdict(name, True, ("through the kernel's P2PDMA",))
    return Verdict(name, False, tuple(dict.fromkeys((*through_module, *through_kernel))))


def _nvidia_fs_objections(place: Location) -> Iterator[str]:
    mount = place.lowest.mount
    if place.layer is None and mount.file_system in _NVIDIA_FS_PARTNERS:
        return
    if place.layer is None and mount.file_system in ("nfs", "nfs4"):
        if not (mount.option("proto") or "tcp").startswith("rdma"):
            yield "NFS is mounted without proto=rdma"
        return
    yield from _file_system(place)
    for device in _below(place):
        if device.md is None or device.md.level != "raid0":
            yield from _not_nvme(device)
    yield from _reached_by(place, ("tcp", "fc"))


def _too_old(name: str, version: str, since: tuple[int, int]) -> Iterator[str]:
    wanted = ".".join(map(str, since))
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None:
        yield f"it needs {name} {wanted}, and the runtime does not tell its version"
    elif (int(found[1]), int(found[2])) < since:
        yield f"it needs {name} {wanted}, and this is {version}"


def _no_p2pdma(kernel: KernelSupport) -> Iterator[str]:
    if kernel.p2pdma is False:
        yield "the kernel is built without P2PDMA"


def _file_system(place: Location) -> Iterator[str]:
    mount = place.mount
    if mount.file_system not in ("ext4", "xfs"):
        yield f"the file system is {mount.file_system}, not ext4 or XFS"
    elif mount.file_system == "ext4" and mount.option("data") not in (None, "ordered"):
        yield f"ext4 is mounted with data={mount.option('data')}, not data=ordered"
    elif not place.devices:
        yield "its block device is not known here"


def _below(place: Location) -> Iterator[BlockDevice]:
    for device in place.devices:
        for _, each in device.walk():
            yield each


def _not_local_nvme(place: Location) -> Iterator[str]:
    yield from _file_system(place)
    for device in _below(place):
        yield from _not_nvme(device)
    yield from _reached_by(place, ("rdma", "tcp", "fc"))


def _not_nvme(device: BlockDevice) -> Iterator[str]:
    if device.kind == "md":
        level = device.md.level if device.md is not None else "md"
        yield f"{device.name} is a software RAID ({level})"
    elif device.kind == "dm":
        yield f"{device.name} is a device-mapper volume ({device.dm_target or 'unknown'})"
    elif device.kind == "loop":
        yield f"{device.name} is a loop device"
    elif device.kind == "disk":
        yield f"{device.name} is no NVMe device"
    elif device.multipath:
        yield f"{device.name} is multipath"


def _reached_by(place: Location, transports: Sequence[str]) -> Iterator[str]:
    for transport in transports:
        names = [
            device.name
            for device in _below(place)
            if any(controller.transport == transport for controller in device.controllers)
        ]
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield f"{names[0]}{more}: reached by {transport}"
