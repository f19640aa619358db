"""The mount of a path and the devices below it, with what slows them down."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from fxload.doctor.findings import Finding, Level, Section

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fxload.doctor.block_devices import BlockDevice, NvmeController, Queue
    from fxload.doctor.location import Location
    from fxload.doctor.mounts import Mount

__all__ = ["check_storage_path"]

_GOOD_REQUEST_KB = 512
_GOOD_REQUESTS = 64
_GOOD_RSIZE_BYTES = 1 << 20
_QUIET_SCHEDULERS = (None, "none")


def check_storage_path(place: Location) -> Section:
    """One finding for the mount, and for each device one with its limits and one a fault."""
    findings = [_mount(place)]
    if place.layer is not None:
        layer = place.lowest
        findings.append(
            Finding(
                Level.INFO,
                "overlay layer",
                str(layer.path),
                f"{layer.mount.file_system} on {layer.mount.source}",
            )
        )
    findings += _network(place.lowest.mount)
    for device in place.devices:
        for depth, each in device.walk():
            findings += _device(each, depth)
    if place.unresolved:
        findings.append(Finding(Level.INFO, "block devices", "none", place.unresolved))
    data: dict[str, object] = {
        "path": str(place.path),
        "mount": asdict(place.mount),
        "layer": None if place.layer is None else asdict(place.lowest.mount),
        "devices": [asdict(device) for device in place.devices],
        "no_devices_because": place.unresolved,
    }
    return Section("storage", tuple(findings), data)


def _mount(place: Location) -> Finding:
    mount = place.mount
    value = f"{mount.file_system} on {mount.source} at {mount.mount_point}"
    shown = "" if mount.root == "/" else f"shows {mount.root} of it; "
    return Finding(Level.OK, "mount", value, shown + "options " + ",".join(mount.options))


def _network(mount: Mount) -> Iterator[Finding]:
    if mount.file_system not in ("nfs", "nfs4"):
        return
    connections = int(mount.option("nconnect") or 1)
    transport = mount.option("proto") or "tcp"
    value = f"{transport}, {connections} connection{'s' if connections > 1 else ''}"
    if connections < 2 and not transport.startswith("rdma"):
        yield Finding(
            Level.WARN,
            "NFS",
            value,
            "one TCP connection seldom fills a fast link",
            "mount with nconnect=8, or with proto=rdma",
        )
    else:
        yield Finding(Level.OK, "NFS", value)
    size = int(mount.option("rsize") or 0)
    if 0 < size < _GOOD_RSIZE_BYTES:
        reason = "every read is split into requests of this size"
        yield Finding(Level.WARN, "NFS rsize", str(size), reason, "mount with rsize=1048576")


def _device(device: BlockDevice, depth: int) -> Iterator[Finding]:
    name = "  " * depth + device.name
    yield Finding(Level.OK, name, ", ".join(_facts(device)))
    indent = "  " * (depth + 1)
    for controller in device.controllers:
        yield _controller(controller, indent)
    if device.md is not None and device.md.degraded:
        yield Finding(
            Level.WARN,
            f"{indent}array",
            f"{device.md.degraded} of {device.md.disks} members missing",
            "a degraded array reads slowly, or not at all",
            f"cat /proc/mdstat; mdadm --detail /dev/{device.name}",
        )
    # A partition shares the queue of its disk, which follows.
    if device.kind != "partition":
        yield from _queue_faults(device, indent)


def _facts(device: BlockDevice) -> Iterator[str]:
    yield device.kind if device.dm_name is None else f"dm {device.dm_name}"
    if device.md is not None:
        yield f"{device.md.level} of {device.md.disks}"
        if device.md.chunk_bytes:
            yield f"chunks of {device.md.chunk_bytes >> 10} KiB"
    if device.backing_file:
        yield f"backed by {device.backing_file}"
    if device.model:
        yield device.model
    if device.size_bytes:
        yield f"{device.size_bytes / 1e9:.0f} GB"
    if device.kind != "partition":
        yield from _queue_facts(device.queue)
    if device.numa_node is not None:
        yield f"NUMA node {device.numa_node}"


def _queue_facts(queue: Queue) -> Iterator[str]:
    if queue.logical_block_bytes:
        yield f"blocks of {queue.logical_block_bytes}/{queue.physical_block_bytes} B"
    if queue.max_sectors_kb is not None:
        yield f"requests up to {queue.max_sectors_kb} KiB"
    if queue.nr_requests is not None:
        yield f"{queue.nr_requests} a queue"
    if queue.scheduler is not None:
        yield f"scheduler {queue.scheduler}"


def _controller(controller: NvmeController, indent: str) -> Finding:
    facts = [controller.transport or "unknown transport"]
    if controller.address:
        facts.append(controller.address)
    if controller.io_queues is not None:
        facts.append(f"{controller.io_queues} queues of {controller.queue_entries}")
    if controller.numa_node is not None:
        facts.append(f"NUMA node {controller.numa_node}")
    value = ", ".join(facts)
    name = f"{indent}{controller.name}"
    if controller.state not in (None, "live"):
        return Finding(
            Level.WARN,
            name,
            value,
            f"the controller is {controller.state}, not live",
            "nvme list-subsys; dmesg",
        )
    return Finding(Level.OK, name, value)


def _queue_faults(device: BlockDevice, indent: str) -> Iterator[Finding]:
    queue, name = device.queue, device.name
    limit, hardware = queue.max_sectors_kb, queue.max_hw_sectors_kb
    setting = f"/sys/block/{name}/queue"
    if limit is not None and hardware is not None and limit < min(hardware, _GOOD_REQUEST_KB):
        yield Finding(
            Level.WARN,
            f"{indent}request limit",
            f"{limit} KiB",
            f"larger reads are split, though the device takes {hardware} KiB",
            f"echo {min(hardware, 1024)} > {setting}/max_sectors_kb",
        )
    if queue.rotational and not device.members:
        yield Finding(
            Level.INFO,
            f"{indent}rotational",
            "yes",
            "the device says that it is a spinning disk (virtual disks often do)",
        )
    # md and dm pass requests on: only the queues of real devices schedule them.
    if device.members:
        return
    if queue.nr_requests is not None and queue.nr_requests < _GOOD_REQUESTS:
        yield Finding(
            Level.WARN,
            f"{indent}queue depth",
            str(queue.nr_requests),
            "fewer requests than a deep reader keeps in flight",
            f"echo 256 > {setting}/nr_requests",
        )
    if device.kind == "nvme" and queue.scheduler not in _QUIET_SCHEDULERS:
        yield Finding(
            Level.WARN,
            f"{indent}scheduler",
            str(queue.scheduler),
            "sorting requests only costs time on flash",
            f"echo none > {setting}/scheduler",
        )
