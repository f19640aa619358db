"""A file tree that looks like the /proc and /sys of another host."""

from __future__ import annotations

import os
from pathlib import Path

from fxload.doctor.host_files import HostFiles


class FakeHost:
    """Builds the tree under ``root``; ``files`` reads it as the doctor does."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = HostFiles(root)

    def write(self, path: str, content: object) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{content}\n")

    def link(self, path: str, target: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(os.path.relpath(self.root / target.lstrip("/"), place.parent))

    def mounts(self, *lines: str) -> None:
        self.write("/proc/self/mountinfo", "\n".join(lines))

    def block(self, folder: str, number: str, **queue: object) -> None:
        """A whole disk at ``folder`` with its class links and queue limits."""
        name = Path(folder).name
        limits: dict[str, object] = {
            "scheduler": "[none] mq-deadline",
            "nr_requests": 1023,
            "max_sectors_kb": 1024,
            "max_hw_sectors_kb": 1024,
            "logical_block_size": 512,
            "physical_block_size": 4096,
            "optimal_io_size": 0,
            "read_ahead_kb": 128,
            "rotational": 0,
        }
        for key, value in (limits | queue).items():
            self.write(f"{folder}/queue/{key}", value)
        self.write(f"{folder}/dev", number)
        self.write(f"{folder}/size", 8 * 2**31)
        self.link(f"/sys/dev/block/{number}", folder)
        self.link(f"/sys/class/block/{name}", folder)

    def partition(self, folder: str, number: str) -> None:
        self.write(f"{folder}/partition", 1)
        self.write(f"{folder}/dev", number)
        self.write(f"{folder}/size", 2**31)
        self.link(f"/sys/dev/block/{number}", folder)
        self.link(f"/sys/class/block/{Path(folder).name}", folder)

    def controller(self, index: int, *, folder: str, **fields: object) -> None:
        values: dict[str, object] = {
            "transport": "rdma",
            "address": f"traddr=192.168.10.{index + 1},trsvcid=4420",
            "state": "live",
            "model": "FX100 namespace",
            "subsysnqn": "nqn.2020-01.example:array",
            "queue_count": 17,
            "sqsize": 127,
            "numa_node": 1,
        }
        for key, value in (values | fields).items():
            self.write(f"{folder}/{key}", value)
        self.link(f"/sys/class/nvme/nvme{index}", folder)

    def fabric_raid(self, mount_point: str, **md: object) -> None:
        """md RAID0 over four NVMe-oF namespaces (rdma), XFS on top."""
        array = "/sys/devices/virtual/block/md0"
        self.block(array, "9:0", scheduler="none", nr_requests=128, read_ahead_kb=4096)
        values: dict[str, object] = {
            "level": "raid0",
            "chunk_size": 524288,
            "raid_disks": 4,
            "array_state": "clean",
        }
        for key, value in (values | md).items():
            self.write(f"{array}/md/{key}", value)
        for index in range(4):
            owner = f"/sys/devices/virtual/nvme-fabrics/ctl/nvme{index}"
            self.controller(index, folder=owner)
            disk = f"{owner}/nvme{index}n1"
            self.block(disk, f"259:{index}")
            self.link(f"{disk}/device", owner)
            self.link(f"{array}/slaves/nvme{index}n1", disk)
        self.mounts(
            "1 0 8:1 / / rw - ext4 /dev/root rw",
            f"36 1 9:0 / {mount_point} rw,noatime shared:1 - xfs /dev/md0 rw,attr2,inode64,noquota",
        )
