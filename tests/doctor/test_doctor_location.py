from __future__ import annotations

from pathlib import Path

import pytest

from fxload.doctor.block_devices import read_device
from fxload.doctor.host_files import HostFiles
from fxload.doctor.location import locate
from fxload.doctor.mounts import mount_id_of, mount_of, read_mounts
from tests.doctor.fake_host import FakeHost


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def test_a_raid_over_fabrics_resolves_to_its_four_controllers(host: FakeHost) -> None:
    host.fabric_raid("/mnt/fx")
    place = locate(Path("/mnt/fx/model"), host.files)
    assert place is not None
    assert (place.mount.file_system, place.mount.source) == ("xfs", "/dev/md0")
    (array,) = place.devices
    assert (array.name, array.kind, array.number) == ("md0", "md", "9:0")
    assert array.md is not None
    assert (array.md.level, array.md.chunk_bytes, array.md.disks) == ("raid0", 524288, 4)
    assert [member.name for member in array.members] == [f"nvme{i}n1" for i in range(4)]
    for index, member in enumerate(array.members):
        (controller,) = member.controllers
        assert controller.transport == "rdma"
        assert controller.is_fabric
        assert controller.address == f"traddr=192.168.10.{index + 1},trsvcid=4420"
        assert (controller.io_queues, controller.queue_entries, controller.numa_node) == (
            16,
            127,
            1,
        )
        assert (member.queue.nr_requests, member.queue.max_sectors_kb) == (1023, 1024)
        assert member.queue.scheduler == "none"
        assert member.queue.rotational is False


def test_native_multipath_lists_every_controller_of_the_subsystem(host: FakeHost) -> None:
    subsystem = "/sys/devices/virtual/nvme-subsystem/nvme-subsys0"
    for index in range(2):
        folder = f"/sys/devices/virtual/nvme-fabrics/ctl/nvme{index}"
        host.controller(index, folder=folder, transport="tcp")
        host.link(f"{subsystem}/nvme{index}", folder)
    host.block(f"{subsystem}/nvme0n1", "259:0")
    host.link(f"{subsystem}/nvme0n1/device", subsystem)
    host.mounts("36 1 259:0 / /data rw - ext4 /dev/nvme0n1 rw")
    place = locate(Path("/data"), host.files)
    assert place is not None
    assert [each.name for each in place.devices[0].controllers] == ["nvme0", "nvme1"]
    assert {each.transport for each in place.devices[0].controllers} == {"tcp"}


def test_a_partition_takes_the_queue_of_its_disk(host: FakeHost) -> None:
    disk = "/sys/devices/pci0000:00/0000:00:02.0/block/sda"
    host.write("/sys/devices/pci0000:00/0000:00:02.0/numa_node", 0)
    host.block(disk, "8:0", rotational=1, scheduler="[mq-deadline] none")
    host.partition(f"{disk}/sda1", "8:1")
    host.mounts("20 1 8:1 / / rw - ext4 /dev/sda1 rw")
    place = locate(Path("/etc"), host.files)
    assert place is not None
    (partition,) = place.devices
    assert (partition.kind, partition.name) == ("partition", "sda1")
    assert partition.queue.rotational is True
    assert partition.queue.scheduler == "mq-deadline"
    assert [member.name for member in partition.members] == ["sda"]


def test_a_mapped_device_is_found_by_its_name_and_shows_its_slaves(host: FakeHost) -> None:
    host.block("/sys/devices/a/block/sda", "8:0")
    dm = "/sys/devices/virtual/block/dm-3"
    host.block(dm, "253:3")
    host.write(f"{dm}/dm/name", "vg-models")
    host.link(f"{dm}/slaves/sda", "/sys/devices/a/block/sda")
    host.mounts("20 1 0:50 / /m rw - bcachefs /dev/mapper/vg-models rw")
    place = locate(Path("/m/x"), host.files)
    assert place is not None
    (device,) = place.devices
    assert (device.name, device.kind, device.dm_name) == ("dm-3", "dm", "vg-models")
    assert [member.name for member in device.members] == ["sda"]


def test_a_subvolume_shows_all_disks_of_its_file_system(host: FakeHost) -> None:
    for index in range(2):
        host.block(f"/sys/devices/a/block/sd{'ab'[index]}", f"8:{16 * index}")
        host.write(f"/sys/fs/btrfs/uuid-1/devices/sd{'ab'[index]}/size", 1)
    host.mounts("20 1 0:44 /@home /home rw,subvol=/@home - btrfs /dev/sda rw")
    place = locate(Path("/home/models"), host.files)
    assert place is not None
    assert [device.name for device in place.devices] == ["sda", "sdb"]
    assert place.mount.root == "/@home"


def test_an_overlay_resolves_through_the_layer_that_holds_the_path(host: FakeHost) -> None:
    host.block("/sys/devices/a/block/sda", "8:0")
    (host.root / "lower/models").mkdir(parents=True)
    (host.root / "upper").mkdir()
    host.mounts(
        "20 1 8:0 / / rw - ext4 /dev/sda rw",
        "21 20 0:60 / /merged rw - overlay overlay rw,lowerdir=/none:/lower,upperdir=/upper",
    )
    place = locate(Path("/merged/models"), host.files)
    assert place is not None
    assert place.layer is not None
    assert place.lowest.path == Path("/lower/models")
    assert [device.name for device in place.devices] == ["sda"]
    hidden = locate(Path("/merged/absent"), host.files)
    assert hidden is not None
    assert "outside" in hidden.unresolved


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("20 1 0:50 / /m rw - nfs4 array:/export rw,nconnect=8", "array:/export"),
        ("20 1 0:50 / /m rw - fuse.slowfs slowfs rw", "FUSE"),
        ("20 1 0:50 / /m rw - tmpfs tmpfs rw", "memory"),
        ("20 1 0:50 / /m rw - zfs pool/data rw", "zfs on pool/data"),
    ],
)
def test_no_device_has_a_reason(host: FakeHost, line: str, said: str) -> None:
    host.mounts(line)
    place = locate(Path("/m/x"), host.files)
    assert place is not None
    assert place.devices == ()
    assert said in place.unresolved


def test_escapes_bind_mounts_and_covered_mounts(host: FakeHost) -> None:
    host.mounts(
        "20 1 8:1 / / rw - ext4 /dev/sda1 rw",
        r"21 20 8:1 /a\040b /mnt/with\040space rw - ext4 /dev/sda1 rw",
        "22 20 0:9 / /mnt rw - tmpfs first rw",
        "23 20 0:10 / /mnt rw - tmpfs second rw",
        "broken line",
    )
    mounts = read_mounts(host.files)
    assert [mount.mount_id for mount in mounts] == [20, 21, 22, 23]
    inside = mount_of(Path("/mnt/with space/x"), mounts)
    assert inside is not None
    assert inside.root == "/a b"
    covered = mount_of(Path("/mnt/x"), mounts)
    assert covered is not None
    assert covered.source == "second"
    by_number = mount_of(Path("/mnt/x"), mounts, mount_id=22)
    assert by_number is not None
    assert by_number.source == "first"
    assert mount_of(Path("/mntx"), mounts) is mounts[0]


def test_this_host_resolves_through_links(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    link = tmp_path / "link"
    link.symlink_to(model)
    place = locate(link, HostFiles())
    assert place is not None
    assert place.path == model.resolve()
    assert place.mount.mount_id == mount_id_of(model)
    assert bool(place.devices) != bool(place.unresolved)


def test_an_unknown_device_number_is_none(host: FakeHost) -> None:
    assert read_device(host.files, "9:9") is None
