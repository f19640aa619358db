"""From a path to its mount and to the devices that hold its bytes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fxload.doctor.block_devices import device_by_name, read_device
from fxload.doctor.mounts import mount_id_of, mount_of, read_mounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fxload.doctor.block_devices import BlockDevice
    from fxload.doctor.host_files import HostFiles
    from fxload.doctor.mounts import Mount

__all__ = ["Location", "locate"]

_MAX_LAYERS = 8  # overlays on overlays


@dataclass(frozen=True)
class Location:
    """Where the bytes of a path are.

    Attributes:
        path: the path with all links resolved.
        mount: the mount that shows it.
        devices: the block devices of that file system, none for network and memory file systems.
        layer: for an overlay, where the layer that holds the path was found.
        unresolved: why there are no devices, "" if there are.
    """

    path: Path
    mount: Mount
    devices: tuple[BlockDevice, ...]
    layer: Location | None
    unresolved: str

    @property
    def lowest(self) -> Location:
        """The location in the last overlay layer; this one where there is no overlay."""
        return self.layer.lowest if self.layer is not None else self


def locate(path: Path, host: HostFiles, mounts: Sequence[Mount] | None = None) -> Location | None:
    """Resolve ``path``; None if the host has no mount that could show it.

    ``path`` is a path of the host that ``host`` reads. Raises the OSError of a path that is
    not there.
    """
    real = Path(os.path.realpath(path))
    # A replaced root is a picture of another host: only its mountinfo knows its mounts.
    mount_id = mount_id_of(real) if host.root == Path("/") else None
    return _locate(real, host, read_mounts(host) if mounts is None else mounts, mount_id, 0)


def _locate(
    path: Path, host: HostFiles, mounts: Sequence[Mount], mount_id: int | None, depth: int
) -> Location | None:
    mount = mount_of(path, mounts, mount_id)
    if mount is None:
        return None
    if mount.file_system == "overlay" and depth < _MAX_LAYERS:
        inner = _overlay_layer(path, mount, host)
        layer = None if inner is None else _locate(inner, host, mounts, None, depth + 1)
        missing = "" if layer else "the layers of this overlay are outside what this process sees"
        devices = () if layer is None else layer.lowest.devices
        return Location(path, mount, devices, layer, missing if not devices else "")
    devices = _devices_of(mount, host)
    return Location(path, mount, devices, None, "" if devices else _why_none(mount))


def _overlay_layer(path: Path, mount: Mount, host: HostFiles) -> Path | None:
    """The path in the uppermost layer that holds it and can be seen from here."""
    inside = path.relative_to(mount.mount_point)
    layers = [mount.option("upperdir"), *(mount.option("lowerdir") or "").split(":")]
    for layer in layers:
        if layer and host.at(str(Path(layer) / inside)).exists():
            return Path(layer) / inside
    return None


def _devices_of(mount: Mount, host: HostFiles) -> tuple[BlockDevice, ...]:
    if mount.file_system == "btrfs":
        # Its device number is an anonymous one for each subvolume, and it may span several disks.
        first = device_by_name(host, mount.source)
        for folder in map(host.at, _btrfs_folders(host)):
            names = host.names(folder)
            if first is not None and first.name in names:
                found = (device_by_name(host, f"/dev/{name}") for name in names)
                return tuple(device for device in found if device is not None)
        return () if first is None else (first,)
    device = None
    if not mount.device.startswith("0:"):
        device = read_device(host, mount.device)
    if device is None and mount.source.startswith("/dev/"):
        device = device_by_name(host, mount.source)
    return () if device is None else (device,)


def _btrfs_folders(host: HostFiles) -> list[str]:
    return [f"/sys/fs/btrfs/{uuid}/devices" for uuid in host.names(host.at("/sys/fs/btrfs"))]


def _why_none(mount: Mount) -> str:
    if mount.is_network:
        return f"{mount.source} is served over the network"
    if mount.is_fuse:
        return "a FUSE process serves this mount"
    if mount.file_system in ("tmpfs", "ramfs", "hugetlbfs"):
        return "the files are in memory"
    return f"{mount.file_system} on {mount.source} names no block device that sysfs knows"
