"""Whether hipFile or GPUDirect Storage could serve a path: the rules, on hosts made of files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fxload.doctor.direct_storage import (
    KernelSupport,
    judge_direct_storage,
    read_kernel_support,
)
from fxload.doctor.location import locate
from tests.doctor.fake_host import FakeHost

if TYPE_CHECKING:
    from fxload.doctor.location import Location

PCI = "/sys/devices/pci0000:c0/nvme/nvme0"
READY = KernelSupport(nvidia_fs=False, p2pdma=True)
WITH_MODULE = KernelSupport(nvidia_fs=True, p2pdma=None)
MODULE_MISSING = "the kernel module nvidia-fs is not loaded"


def located(host: FakeHost) -> Location:
    place = locate(Path("/data/model"), host.files)
    assert place is not None
    return place


def local_nvme(host: FakeHost, mount: str = "ext4 /dev/nvme0n1 rw") -> Location:
    disk = f"{PCI}/nvme0n1"
    host.controller(0, folder=PCI, transport="pcie", address="0000:c1:00.0")
    host.block(disk, "259:0")
    host.link(f"{disk}/device", PCI)
    host.mounts(f"20 1 259:0 / /data rw - {mount}")
    return located(host)


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


@pytest.mark.parametrize("mount", ["ext4 /dev/nvme0n1 rw,data=ordered", "xfs /dev/nvme0n1 rw"])
def test_a_local_nvme_serves_both(host: FakeHost, mount: str) -> None:
    place = local_nvme(host, mount)
    hip = judge_direct_storage("rocm", "7.2.0", place, READY)
    assert (hip.name, hip.usable, hip.reasons) == ("hipFile", True, ("local NVMe",))
    cuda = judge_direct_storage("cuda", "13.0", place, READY)
    assert (cuda.usable, cuda.reasons) == (True, ("through the kernel's P2PDMA",))
    module = judge_direct_storage("cuda", "11.4", place, WITH_MODULE)
    assert (module.usable, module.reasons) == (True, ("through the kernel module nvidia-fs",))


@pytest.mark.parametrize(
    ("platform", "version", "kernel", "reasons"),
    [
        ("rocm", "7.1.52802", READY, ("it needs ROCm 7.2, and this is 7.1.52802",)),
        ("rocm", "10.0", READY, ()),
        ("rocm", "", READY, ("it needs ROCm 7.2, and the runtime does not tell its version",)),
        ("rocm", "7.2", KernelSupport(True, False), ("the kernel is built without P2PDMA",)),
        ("rocm", "7.2", KernelSupport(False, None), ()),
        ("cuda", "12.4", READY, (MODULE_MISSING, "it needs CUDA 12.8, and this is 12.4")),
        (
            "cuda",
            "12.8",
            KernelSupport(False, False),
            (MODULE_MISSING, "the kernel is built without P2PDMA"),
        ),
        ("ascend", "8.3", READY, ("ascend has no interface from storage to device memory",)),
    ],
)
def test_runtime_and_kernel_have_to_bring_it(
    host: FakeHost, platform: str, version: str, kernel: KernelSupport, reasons: tuple[str, ...]
) -> None:
    verdict = judge_direct_storage(platform, version, local_nvme(host), kernel)
    assert verdict.usable is not bool(reasons)
    if reasons:
        assert verdict.reasons == reasons


@pytest.mark.parametrize(
    ("mount", "reason"),
    [
        (
            "ext4 /dev/nvme0n1 rw,data=journal",
            "ext4 is mounted with data=journal, not data=ordered",
        ),
        ("btrfs /dev/nvme0n1 rw", "the file system is btrfs, not ext4 or XFS"),
    ],
)
def test_the_file_system_counts(host: FakeHost, mount: str, reason: str) -> None:
    place = local_nvme(host, mount)
    assert judge_direct_storage("rocm", "7.2", place, READY).reasons == (reason,)
    assert judge_direct_storage("cuda", "13.0", place, WITH_MODULE).reasons == (reason,)
    both = judge_direct_storage("cuda", "13.0", place, READY)
    assert both.reasons == (MODULE_MISSING, reason)


def test_an_array_over_fabrics_falls_back_on_rocm_and_needs_the_module_on_cuda(
    host: FakeHost,
) -> None:
    host.fabric_raid("/data")
    place = located(host)
    hip = judge_direct_storage("rocm", "7.2", place, READY)
    assert hip.reasons == (
        "md0 is a software RAID (raid0)",
        "nvme0n1 and 3 more: reached by rdma",
    )
    assert judge_direct_storage("cuda", "13.0", place, WITH_MODULE).usable
    without = judge_direct_storage("cuda", "13.0", place, READY)
    assert without.reasons[0] == MODULE_MISSING
    assert not without.usable


def test_the_module_wants_rdma_and_raid0(host: FakeHost) -> None:
    host.fabric_raid("/data", level="raid5")
    for index in range(4):
        host.write(f"/sys/devices/virtual/nvme-fabrics/ctl/nvme{index}/transport", "tcp")
    verdict = judge_direct_storage("cuda", "13.0", located(host), WITH_MODULE)
    assert verdict.reasons[:2] == (
        "md0 is a software RAID (raid5)",
        "nvme0n1 and 3 more: reached by tcp",
    )


@pytest.mark.parametrize(
    ("uuid", "target"),
    [
        ("mpath-3600a098", "multipath"),
        ("part1-mpath-3600a098", "multipath"),
        ("CRYPT-LUKS2-0f-data", "crypt"),
        ("LVM-abc", "lvm"),
        (None, "unknown"),
    ],
)
def test_device_mapper_is_in_the_way(host: FakeHost, uuid: str | None, target: str) -> None:
    local_nvme(host)
    volume = "/sys/devices/virtual/block/dm-0"
    host.block(volume, "253:0")
    host.write(f"{volume}/dm/name", "data")
    if uuid is not None:
        host.write(f"{volume}/dm/uuid", uuid)
    host.link(f"{volume}/slaves/nvme0n1", f"{PCI}/nvme0n1")
    host.mounts("20 1 253:0 / /data rw - xfs /dev/mapper/data rw")
    reason = f"dm-0 is a device-mapper volume ({target})"
    assert judge_direct_storage("rocm", "7.2", located(host), READY).reasons == (reason,)


def test_native_multipath_is_in_the_way(host: FakeHost) -> None:
    head = "/sys/devices/virtual/nvme-subsystem/nvme-subsys0"
    host.controller(0, folder=PCI, transport="pcie")
    host.link(f"{head}/nvme0", PCI)
    host.block(f"{head}/nvme0n1", "259:0")
    host.link(f"{head}/nvme0n1/device", head)
    host.mounts("20 1 259:0 / /data rw - xfs /dev/nvme0n1 rw")
    verdict = judge_direct_storage("rocm", "7.2", located(host), READY)
    assert verdict.reasons == ("nvme0n1 is multipath",)


def test_what_is_no_nvme_device_is_named(host: FakeHost) -> None:
    host.block("/sys/devices/a/block/sda", "8:0")
    host.partition("/sys/devices/a/block/sda/sda1", "8:1")
    host.mounts("20 1 8:1 / /data rw - ext4 /dev/sda1 rw")
    verdict = judge_direct_storage("rocm", "7.2", located(host), READY)
    assert verdict.reasons == ("sda is no NVMe device",)
    host.mounts("20 1 7:9 / /data rw - ext4 /dev/loop9 rw")
    hidden = judge_direct_storage("rocm", "7.2", located(host), READY)
    assert hidden.reasons == ("its block device is not known here",)


@pytest.mark.parametrize(
    ("mount", "usable"),
    [
        ("nfs4 array:/export rw,proto=rdma", True),
        ("nfs4 array:/export rw,proto=tcp", False),
        ("nfs array:/export rw", False),
        ("lustre mds@o2ib:/fs rw", True),
        ("tmpfs tmpfs rw", False),
        ("fuse.slowfs slowfs rw", False),
    ],
)
def test_network_file_systems_need_the_module_and_rdma(
    host: FakeHost, mount: str, usable: bool
) -> None:
    host.mounts(f"20 1 0:50 / /data rw - {mount}")
    place = located(host)
    assert judge_direct_storage("cuda", "13.0", place, WITH_MODULE).usable is usable
    assert not judge_direct_storage("cuda", "13.0", place, READY).usable
    assert not judge_direct_storage("rocm", "7.2", place, READY).usable


def test_an_overlay_is_no_direct_path(host: FakeHost) -> None:
    local_nvme(host)
    (host.root / "lower/model").mkdir(parents=True)
    host.mounts(
        "20 1 259:0 / / rw - ext4 /dev/nvme0n1 rw",
        "21 20 0:60 / /data rw - overlay overlay rw,lowerdir=/lower,upperdir=/upper",
    )
    verdict = judge_direct_storage("rocm", "7.2", located(host), READY)
    assert verdict.reasons == ("the file system is overlay, not ext4 or XFS",)


def test_the_kernel_is_asked(host: FakeHost) -> None:
    assert read_kernel_support(host.files) == KernelSupport(nvidia_fs=False, p2pdma=None)
    host.write(
        "/proc/kallsyms", "0000000000000000 t other\n0000000000000000 T pci_p2pdma_add_resource"
    )
    host.write("/sys/module/nvidia_fs/refcnt", 0)
    assert read_kernel_support(host.files) == KernelSupport(nvidia_fs=True, p2pdma=True)
    host.write("/proc/kallsyms", "0000000000000000 t other")
    assert read_kernel_support(host.files).p2pdma is False
