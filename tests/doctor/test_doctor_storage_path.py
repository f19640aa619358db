from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fxload.doctor.findings import Level
from fxload.doctor.location import locate
from fxload.doctor.storage_path import check_storage_path
from tests.doctor.fake_host import FakeHost

if TYPE_CHECKING:
    from fxload.doctor.findings import Finding, Section


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def examine(host: FakeHost, path: str) -> Section:
    place = locate(Path(path), host.files)
    assert place is not None
    return check_storage_path(place)


def faults(section: Section) -> dict[str, Finding]:
    return {
        finding.name.strip(): finding
        for finding in section.findings
        if finding.level in (Level.WARN, Level.FAIL)
    }


def named(section: Section, name: str) -> Finding:
    return next(finding for finding in section.findings if finding.name.strip() == name)


def test_a_healthy_raid_over_fabrics_is_all_green(host: FakeHost) -> None:
    host.fabric_raid("/mnt/fx")
    section = examine(host, "/mnt/fx/model")
    assert faults(section) == {}
    array = named(section, "md0").value
    assert "raid0 of 4" in array
    assert "chunks of 512 KiB" in array
    disk = named(section, "nvme2n1").value
    for fact in ("blocks of 512/4096 B", "requests up to 1024 KiB", "1023 a queue", "NUMA node 1"):
        assert fact in disk
    controller = named(section, "nvme2").value
    assert controller.startswith("rdma, traddr=192.168.10.3,trsvcid=4420, 16 queues of 127")
    # Members are indented below their array, controllers below their disk.
    names = [finding.name for finding in section.findings]
    assert names[1:4] == ["md0", "  nvme0n1", "    nvme0"]
    data = json.loads(json.dumps(section.as_json()))["data"]
    assert data["devices"][0]["members"][3]["controllers"][0]["transport"] == "rdma"
    assert data["mount"]["file_system"] == "xfs"


def test_what_slows_a_device_down_comes_with_its_remedy(host: FakeHost) -> None:
    disk = "/sys/devices/pci/nvme/nvme0/nvme0n1"
    host.controller(0, folder="/sys/devices/pci/nvme/nvme0", transport="pcie", state="resetting")
    host.block(disk, "259:0", max_sectors_kb=128, nr_requests=31, scheduler="none [mq-deadline]")
    host.link(f"{disk}/device", "/sys/devices/pci/nvme/nvme0")
    host.mounts("20 1 259:0 / /data rw - ext4 /dev/nvme0n1 rw")
    found = faults(examine(host, "/data/x"))
    assert set(found) == {"nvme0", "request limit", "queue depth", "scheduler"}
    assert "resetting" in found["nvme0"].reason
    assert found["request limit"].hint.endswith("/sys/block/nvme0n1/queue/max_sectors_kb")
    assert found["queue depth"].hint == "echo 256 > /sys/block/nvme0n1/queue/nr_requests"
    assert found["scheduler"].hint == "echo none > /sys/block/nvme0n1/queue/scheduler"


def test_a_limit_that_the_hardware_sets_is_no_fault(host: FakeHost) -> None:
    host.block("/sys/devices/a/block/sda", "8:0", max_sectors_kb=128, max_hw_sectors_kb=128)
    host.mounts("20 1 8:0 / /data rw - ext4 /dev/sda rw")
    assert faults(examine(host, "/data/x")) == {}


def test_a_degraded_array_is_told(host: FakeHost) -> None:
    host.fabric_raid("/mnt/fx", level="raid5", degraded=1)
    found = faults(examine(host, "/mnt/fx"))
    assert found["array"].value == "1 of 4 members missing"
    assert "/dev/md0" in found["array"].hint


def test_the_queue_of_a_partition_is_shown_once_with_its_disk(host: FakeHost) -> None:
    disk = "/sys/devices/a/block/sda"
    host.block(disk, "8:0", nr_requests=8)
    host.partition(f"{disk}/sda1", "8:1")
    host.mounts("20 1 8:1 / /data rw - ext4 /dev/sda1 rw")
    section = examine(host, "/data")
    assert [finding.name.strip() for finding in section.findings].count("queue depth") == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("rw,rsize=1048576,proto=tcp", {"NFS"}),
        ("rw,rsize=262144,nconnect=8", {"NFS rsize"}),
        ("rw,rsize=1048576,proto=rdma", set()),
    ],
)
def test_a_network_mount_is_judged_by_its_options(
    host: FakeHost, options: str, expected: set[str]
) -> None:
    host.mounts(f"20 1 0:50 / /m rw - nfs4 array:/export {options}")
    section = examine(host, "/m/model")
    assert set(faults(section)) == expected
    assert named(section, "block devices").reason == "array:/export is served over the network"


def test_an_overlay_shows_the_layer_and_its_device(host: FakeHost) -> None:
    host.block("/sys/devices/a/block/sda", "8:0")
    (host.root / "lower/models").mkdir(parents=True)
    host.mounts(
        "20 1 8:0 / / rw - ext4 /dev/sda rw",
        "21 20 0:60 / /merged rw - overlay overlay rw,lowerdir=/lower,upperdir=/upper",
    )
    section = examine(host, "/merged/models")
    assert named(section, "overlay layer").value == "/lower/models"
    assert named(section, "sda").level is Level.OK
