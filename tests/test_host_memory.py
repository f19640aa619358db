from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from fxload._errors import UnsupportedError
from fxload.host_memory import read_host_memory
from tests.warm.groups import memory_group

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
GIB = 1 << 30
UNLIMITED = 9223372036854771712


class FakeHost:
    """A root folder with the files that a kernel shows."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._mounts: list[str] = []
        (root / "proc/self").mkdir(parents=True)
        self.meminfo(total_bytes=64 * GIB, available_bytes=60 * GIB)

    def meminfo(self, *, total_bytes: int, available_bytes: int) -> None:
        (self.root / "proc/meminfo").write_text(
            f"MemTotal:       {total_bytes // 1024} kB\n"
            f"MemFree:        {available_bytes // 2048} kB\n"
            f"MemAvailable:   {available_bytes // 1024} kB\n"
            "HugePages_Total:       0\n"
        )

    def belongs_to(self, text: str) -> None:
        (self.root / "proc/self/cgroup").write_text(text)

    def mount(self, folder: str, *, kind: str, options: str, group: str = "/") -> None:
        number = len(self._mounts) + 30
        self._mounts.append(
            f"{number} 25 0:{number} {group} {folder} rw,relatime shared:9 - {kind} none {options}"
        )
        (self.root / "proc/self/mountinfo").write_text("\n".join(self._mounts) + "\n")
        (self.root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def v1(
        self,
        folder: str,
        *,
        limit: int = UNLIMITED,
        usage: int = 0,
        cache: int = 0,
        hierarchical: int | None = None,
    ) -> None:
        path = self.root / folder.lstrip("/")
        path.mkdir(parents=True, exist_ok=True)
        (path / "memory.limit_in_bytes").write_text(f"{limit}\n")
        (path / "memory.usage_in_bytes").write_text(f"{usage}\n")
        above = limit if hierarchical is None else hierarchical
        (path / "memory.stat").write_text(
            f"cache 1\ninactive_file 7\nhierarchical_memory_limit {above}\n"
            f"total_shmem {usage}\ntotal_inactive_file {cache - cache // 4}\n"
            f"total_active_file {cache // 4}\n"
        )

    def v2(
        self,
        folder: str,
        *,
        usage: int = 0,
        maximum: str = "max",
        high: str = "max",
        cache: int = 0,
    ) -> None:
        path = self.root / folder.lstrip("/")
        path.mkdir(parents=True, exist_ok=True)
        (path / "cgroup.controllers").write_text("memory\n")
        (path / "memory.max").write_text(maximum + "\n")
        (path / "memory.high").write_text(high + "\n")
        (path / "memory.current").write_text(f"{usage}\n")
        (path / "memory.stat").write_text(
            f"anon {usage - cache}\nfile {cache}\nshmem 0\ninactive_file {cache - cache // 4}\n"
            f"active_file {cache // 4}\nslab_reclaimable 0\n"
        )


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def test_without_groups_the_machine_decides(host: FakeHost) -> None:
    memory = read_host_memory(host.root)
    assert memory == (60 * GIB, 64 * GIB, str(host.root / "proc/meminfo"))


def test_v2_limit_less_what_cannot_be_given_back(host: FakeHost) -> None:
    host.belongs_to("0::/kube/pod\n")
    host.mount("/sys/fs/cgroup", kind="cgroup2", options="rw")
    host.v2("/sys/fs/cgroup/kube")
    host.v2("/sys/fs/cgroup/kube/pod", maximum=str(8 * GIB), usage=5 * GIB, cache=2 * GIB)
    memory = read_host_memory(host.root)
    assert memory.available_bytes == 5 * GIB
    assert memory.limit_bytes == 8 * GIB
    assert memory.limited_by.endswith("/sys/fs/cgroup/kube/pod/memory.max")


def test_v2_memory_high_is_a_limit(host: FakeHost) -> None:
    host.belongs_to("0::/pod\n")
    host.mount("/sys/fs/cgroup", kind="cgroup2", options="rw")
    host.v2("/sys/fs/cgroup/pod", maximum=str(8 * GIB), high=str(6 * GIB), usage=GIB)
    memory = read_host_memory(host.root)
    assert memory.available_bytes == 5 * GIB
    assert memory.limited_by.endswith("memory.high")


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_above_may_be_the_tighter_one(host: FakeHost, version: int) -> None:
    if version == 1:
        host.belongs_to("7:cpu,cpuacct:/\n4:memory:/slice/job\n")
        host.mount("/sys/fs/cgroup/memory", kind="cgroup", options="rw,memory")
        host.v1("/sys/fs/cgroup/memory")
        host.v1("/sys/fs/cgroup/memory/slice", limit=4 * GIB, usage=3 * GIB)
        host.v1("/sys/fs/cgroup/memory/slice/job", limit=16 * GIB, usage=GIB)
    else:
        host.belongs_to("0::/slice/job\n")
        host.mount("/sys/fs/cgroup", kind="cgroup2", options="rw")
        host.v2("/sys/fs/cgroup/slice", maximum=str(4 * GIB), usage=3 * GIB)
        host.v2("/sys/fs/cgroup/slice/job", maximum=str(16 * GIB), usage=GIB)
    memory = read_host_memory(host.root)
    assert memory.available_bytes == GIB
    assert memory.limit_bytes == 4 * GIB
    assert "/slice/memory." in memory.limited_by


def test_v1_page_cache_is_available_and_tmpfs_is_not(host: FakeHost) -> None:
    host.belongs_to("4:memory:/job\n")
    host.mount("/sys/fs/cgroup/memory", kind="cgroup", options="rw,memory")
    # The stat of the fake reports the whole usage as shmem, too: it must not be given back.
    host.v1("/sys/fs/cgroup/memory/job", limit=10 * GIB, usage=9 * GIB, cache=2 * GIB)
    assert read_host_memory(host.root).available_bytes == 3 * GIB


def test_hybrid_host_the_smaller_of_both_versions(host: FakeHost) -> None:
    host.belongs_to("4:memory:/job\n0::/job\n")
    host.mount("/sys/fs/cgroup/memory", kind="cgroup", options="rw,memory")
    host.mount("/sys/fs/cgroup/unified", kind="cgroup2", options="rw")
    host.v1("/sys/fs/cgroup/memory/job", limit=10 * GIB)
    host.v2("/sys/fs/cgroup/unified/job", maximum=str(9 * GIB))
    assert read_host_memory(host.root).available_bytes == 9 * GIB
    # And a unified tree without the memory controller says nothing.
    for name in ("memory.max", "memory.high", "memory.current", "memory.stat"):
        (host.root / "sys/fs/cgroup/unified/job" / name).unlink()
    assert read_host_memory(host.root).available_bytes == 10 * GIB


def test_container_that_sees_its_own_group_as_the_top(host: FakeHost) -> None:
    host.belongs_to("4:memory:/docker/abc\n")
    host.mount("/sys/fs/cgroup/memory", kind="cgroup", options="ro,memory", group="/docker/abc")
    host.v1("/sys/fs/cgroup/memory", limit=2 * GIB, usage=GIB)
    assert read_host_memory(host.root).available_bytes == GIB


@pytest.mark.parametrize("path", ["/docker/abc", "/../../elsewhere"])
def test_container_whose_path_is_not_visible(host: FakeHost, path: str) -> None:
    host.belongs_to(f"0::{path}\n")
    host.mount("/sys/fs/cgroup", kind="cgroup2", options="ro")
    host.v2("/sys/fs/cgroup", maximum=str(2 * GIB), usage=GIB)
    assert read_host_memory(host.root).available_bytes == GIB


def test_v1_limit_of_a_hidden_parent(host: FakeHost) -> None:
    host.belongs_to("4:memory:/docker/abc\n")
    host.mount("/sys/fs/cgroup/memory", kind="cgroup", options="ro,memory", group="/docker/abc")
    host.v1("/sys/fs/cgroup/memory", usage=GIB, hierarchical=3 * GIB)
    memory = read_host_memory(host.root)
    assert (memory.available_bytes, memory.limit_bytes) == (2 * GIB, 3 * GIB)


def test_mount_point_with_a_space(host: FakeHost) -> None:
    host.belongs_to("0::/\n")
    host.mount("/sys/fs/c\\040group", kind="cgroup2", options="rw")
    host.v2("/sys/fs/c group", maximum=str(GIB))
    assert read_host_memory(host.root).available_bytes == GIB


def test_over_the_limit_nothing_is_left(host: FakeHost) -> None:
    host.belongs_to("0::/\n")
    host.mount("/sys/fs/cgroup", kind="cgroup2", options="rw")
    host.v2("/sys/fs/cgroup", maximum=str(GIB), usage=2 * GIB)
    assert read_host_memory(host.root).available_bytes == 0


def test_no_limit_is_worth_more_than_the_machine(host: FakeHost) -> None:
    host.belongs_to("4:memory:/\n")
    host.mount("/sys/fs/cgroup/memory", kind="cgroup", options="rw,memory")
    host.v1("/sys/fs/cgroup/memory")
    assert read_host_memory(host.root).limit_bytes == 64 * GIB


def test_kernel_without_mem_available(host: FakeHost) -> None:
    (host.root / "proc/meminfo").write_text(
        "MemTotal: 4096 kB\nMemFree: 1024 kB\nBuffers: 512 kB\n"
    )
    assert read_host_memory(host.root).available_bytes == 1536 * 1024


def test_no_proc_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="warm_ram_limit_bytes"):
        read_host_memory(tmp_path)


_IN_GROUP = """
import os, sys
from pathlib import Path
from fxload.host_memory import read_host_memory
group, scratch = map(Path, sys.argv[1:])
(group / "cgroup.procs").write_text(str(os.getpid()))
before = read_host_memory()
path = scratch / "held"
with path.open("wb") as file:
    os.posix_fallocate(file.fileno(), 0, 100 << 20)
during = read_host_memory()
path.unlink()
after = read_host_memory()
print(before.limit_bytes, before.available_bytes, during.available_bytes, after.available_bytes)
print(before.limited_by)
"""


def test_real_group_counts_tmpfs_as_used(memory_folder: Path) -> None:
    with memory_group(512 * MIB) as group:
        _check_real_group(group, memory_folder)


def _check_real_group(group: Path, memory_folder: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", _IN_GROUP, str(group), str(memory_folder)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        out, _ = child.communicate(timeout=60)
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
            child.wait()
    assert child.returncode == 0
    numbers, limited_by = out.splitlines()
    limit, before, during, after = map(int, numbers.split())
    assert limit == 512 * MIB
    assert str(group) in limited_by
    assert before <= 512 * MIB
    # Charges are counted in batches for each processor: a few MiB of slack.
    assert before - during > 90 * MIB
    assert after - during > 90 * MIB
