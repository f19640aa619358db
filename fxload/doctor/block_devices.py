"""The block devices below a file system: md and dm members, partitions, NVMe controllers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fxload.doctor.host_files import HostFiles

__all__ = ["BlockDevice", "MdArray", "NvmeController", "Queue", "device_by_name", "read_device"]

_CONTROLLER = re.compile(r"nvme\d+$")
_MAX_STACK = 16  # deeper than any real stack of dm, md and partitions


@dataclass(frozen=True)
class Queue:
    """Limits of a request queue; None where the kernel does not say."""

    scheduler: str | None
    nr_requests: int | None
    max_sectors_kb: int | None
    max_hw_sectors_kb: int | None
    logical_block_bytes: int | None
    physical_block_bytes: int | None
    optimal_io_bytes: int | None
    read_ahead_kb: int | None
    rotational: bool | None


@dataclass(frozen=True)
class MdArray:
    """A software RAID: its level, chunk and health."""

    level: str
    chunk_bytes: int | None
    state: str | None
    disks: int | None
    degraded: int


@dataclass(frozen=True)
class NvmeController:
    """One path to an NVMe subsystem.

    ``transport`` is "pcie", "rdma", "tcp" or "fc"; ``address`` is the PCI address, or the
    target's as ``traddr=…,trsvcid=…``; ``io_queues`` counts without the admin queue.
    """

    name: str
    transport: str | None
    address: str | None
    state: str | None
    model: str | None
    subsystem: str | None
    io_queues: int | None
    queue_entries: int | None
    numa_node: int | None

    @property
    def is_fabric(self) -> bool:
        """Whether requests cross a network."""
        return self.transport in ("rdma", "tcp", "fc")


@dataclass(frozen=True)
class BlockDevice:
    """A device and what it is made of.

    ``kind`` is md, dm, loop, partition, nvme or disk; ``dm_target`` what made a dm device ("lvm",
    "crypt", "multipath", …); ``multipath`` says that NVMe's own multipath stands before the paths.
    """

    name: str
    number: str
    kind: str
    size_bytes: int | None
    model: str | None
    numa_node: int | None
    queue: Queue
    md: MdArray | None
    dm_name: str | None
    dm_target: str | None
    multipath: bool
    backing_file: str | None
    controllers: tuple[NvmeController, ...]
    members: tuple[BlockDevice, ...]

    def walk(self, depth: int = 0) -> Iterator[tuple[int, BlockDevice]]:
        """This device and all below it, each with its depth."""
        yield depth, self
        for member in self.members:
            yield from member.walk(depth + 1)


def read_device(host: HostFiles, number: str) -> BlockDevice | None:
    """The device ``major:minor`` with all below it, None if sysfs does not know it."""
    folder = host.at(f"/sys/dev/block/{number}")
    return _read(host, folder.resolve(), 0) if folder.exists() else None


def device_by_name(host: HostFiles, source: str) -> BlockDevice | None:
    """The device that a mount's source such as ``/dev/mapper/data`` names."""
    name = host.at(source).resolve().name
    if source.startswith("/dev/mapper/"):
        wanted = source.removeprefix("/dev/mapper/")
        for block in host.names(host.at("/sys/class/block")):
            if host.text(f"/sys/class/block/{block}/dm/name") == wanted:
                name = block
    folder = host.at(f"/sys/class/block/{name}")
    return _read(host, folder.resolve(), 0) if name and folder.exists() else None


def _read(host: HostFiles, folder: Path, depth: int) -> BlockDevice:
    name = folder.name
    partition = (folder / "partition").exists()
    holder = folder.parent if partition else folder
    slaves = [] if partition else host.names(folder / "slaves")
    below = [folder.parent] if partition else [(folder / "slaves" / each) for each in slaves]
    members = tuple(_read(host, each.resolve(), depth + 1) for each in below if depth < _MAX_STACK)
    sectors = host.integer(folder / "size")
    controllers = () if partition or slaves else tuple(_controllers(host, folder))
    return BlockDevice(
        name=name,
        number=host.text(folder / "dev") or "",
        kind=_kind(folder, partition),
        size_bytes=None if sectors is None else sectors * 512,
        model=host.text(folder / "device" / "model"),
        numa_node=_node(host, folder / "device"),
        queue=_queue(host, holder / "queue"),
        md=_md(host, folder / "md"),
        dm_name=host.text(folder / "dm" / "name"),
        dm_target=_dm_target(host.text(folder / "dm" / "uuid")),
        multipath=_is_multipath(folder),
        backing_file=host.text(folder / "loop" / "backing_file"),
        controllers=controllers,
        members=members,
    )


def _kind(folder: Path, partition: bool) -> str:
    if partition:
        return "partition"
    for kind in ("md", "dm", "loop"):
        if (folder / kind).is_dir():
            return kind
    return "nvme" if folder.name.startswith("nvme") else "disk"


def _queue(host: HostFiles, folder: Path) -> Queue:
    schedulers = host.text(folder / "scheduler") or ""
    active = re.search(r"\[([^\]]+)\]", schedulers)
    rotational = host.integer(folder / "rotational")
    return Queue(
        scheduler=active[1] if active else (schedulers or None),
        nr_requests=host.integer(folder / "nr_requests"),
        max_sectors_kb=host.integer(folder / "max_sectors_kb"),
        max_hw_sectors_kb=host.integer(folder / "max_hw_sectors_kb"),
        logical_block_bytes=host.integer(folder / "logical_block_size"),
        physical_block_bytes=host.integer(folder / "physical_block_size"),
        optimal_io_bytes=host.integer(folder / "optimal_io_size"),
        read_ahead_kb=host.integer(folder / "read_ahead_kb"),
        rotational=None if rotational is None else bool(rotational),
    )


def _md(host: HostFiles, folder: Path) -> MdArray | None:
    level = host.text(folder / "level")
    if level is None:
        return None
    return MdArray(
        level=level,
        chunk_bytes=host.integer(folder / "chunk_size"),
        state=host.text(folder / "array_state"),
        disks=host.integer(folder / "raid_disks"),
        degraded=host.integer(folder / "degraded") or 0,
    )


def _dm_target(uuid: str | None) -> str | None:
    """Who made a dm device: by convention its uuid begins with that."""
    if not uuid:
        return None
    return "multipath" if "mpath-" in uuid else uuid.partition("-")[0].lower()


def _is_multipath(folder: Path) -> bool:
    """Whether a namespace hangs on its subsystem, not on a controller."""
    device = folder / "device"
    if not folder.name.startswith("nvme") or not device.exists():
        return False
    return not (device.resolve() / "transport").exists()


def _node(host: HostFiles, folder: Path) -> int | None:
    """The NUMA node of the nearest device above that has one."""
    place = folder.resolve()
    for _ in range(_MAX_STACK):
        node = host.integer(place / "numa_node")
        if node is not None:
            return None if node < 0 else node
        if place.parent == place or place.name == "sys":
            break
        place = place.parent
    return None


def _controllers(host: HostFiles, folder: Path) -> Iterator[NvmeController]:
    """The controllers of a namespace: one, or with native multipath all of its subsystem."""
    device = folder / "device"
    if not folder.name.startswith("nvme") or not device.exists():
        return
    owner = device.resolve()
    if (owner / "transport").exists():
        yield _controller(host, owner)
        return
    for name in host.names(owner):
        if _CONTROLLER.match(name):
            yield _controller(host, (owner / name).resolve())


def _controller(host: HostFiles, folder: Path) -> NvmeController:
    queues = host.integer(folder / "queue_count")
    return NvmeController(
        name=folder.name,
        transport=host.text(folder / "transport"),
        address=host.text(folder / "address"),
        state=host.text(folder / "state"),
        model=host.text(folder / "model"),
        subsystem=host.text(folder / "subsysnqn"),
        io_queues=None if queues is None else max(0, queues - 1),
        queue_entries=host.integer(folder / "sqsize"),
        numa_node=_node(host, folder),
    )
