from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fxload.doctor.engines import check_engines
from fxload.doctor.findings import Level
from fxload.doctor.host import check_host
from fxload.doctor.host_files import HostFiles
from tests.doctor.fake_host import FakeHost

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.isolation import Isolation

DOCTOR = "import sys; from fxload.cli.app import main; sys.exit(main(sys.argv[1:]))"
YES = {"ok": True, "reason": ""}
EPERM = "io_uring_setup was refused with EPERM: a seccomp filter or security policy forbids it"
ENOSYS = "this kernel, or a seccomp filter, has no io_uring"


@pytest.mark.parametrize(
    ("reason", "disabled", "seccomp", "why", "hint"),
    [
        (EPERM, 0, 2, "this process runs under a seccomp filter", "seccomp profile"),
        (EPERM, 0, 0, "no seccomp filter is on", "audit log"),
        (ENOSYS, None, 2, "ENOSYS, and this process runs under a seccomp", "seccomp profile"),
        (ENOSYS, None, 0, "ENOSYS", "Linux 5.1"),
        ("kernel.io_uring_disabled is 2", 2, 0, "=2 refuses it to everybody", "sysctl"),
        ("kernel.io_uring_disabled is 1", 1, 0, "=1 refuses it to unprivileged", "group 42"),
        ("not enough lockable memory (RLIMIT_MEMLOCK)", 0, 0, "RLIMIT_MEMLOCK", "ulimit -l"),
        ("this build of fxload has no liburing", 0, 0, "liburing", "build fxload again"),
    ],
)
def test_a_refusal_is_explained_by_what_the_host_says(
    tmp_path: Path, reason: str, disabled: int | None, seccomp: int, why: str, hint: str
) -> None:
    host = FakeHost(tmp_path)
    host.write("/proc/self/status", f"Name:\tx\nSeccomp:\t{seccomp}")
    host.write("/proc/sys/kernel/io_uring_group", 42)
    if disabled is not None:
        host.write("/proc/sys/kernel/io_uring_disabled", disabled)
    capabilities: Any = {"io_uring": {"ok": False, "reason": reason}, "cachestat": YES}
    section = check_engines(host.files, capabilities)
    refused, engine = section.findings[:2]
    assert (refused.level, refused.value) == (Level.WARN, "refused")
    assert why in refused.reason
    assert hint in refused.hint
    assert engine.value == "pread threads"
    assert section.data["engine"] == "pread"


def test_what_is_missing_says_what_takes_its_place(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    capabilities: Any = {
        "io_uring": YES,
        "cachestat": {"ok": False, "reason": "this kernel has none"},
    }
    section = check_engines(host.files, capabilities)
    assert section.data["engine"] == "io_uring"
    cachestat = section.findings[-1]
    assert cachestat.reason == "this kernel has none; residency comes from mincore"
    assert not [finding for finding in section.findings if finding.level is Level.WARN]


def test_the_host_of_this_process_is_described() -> None:
    section = check_host(HostFiles())
    names = [finding.name for finding in section.findings]
    assert names == [
        "kernel",
        "processors",
        "memory",
        "locked memory",
        "open files",
        "libaio",
        "huge pages",
    ]
    assert isinstance(section.data["page_bytes"], int)


def test_huge_pages_that_are_off_cost_time(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.write("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]")
    *_, huge = check_host(host.files).findings
    assert (huge.level, huge.value) == (Level.WARN, "never")
    assert "echo madvise" in huge.hint


@pytest.mark.parametrize("refuse", ["io_uring", "io_uring_enosys"])
def test_under_a_real_filter_the_doctor_names_the_fallback_and_the_reason(
    isolation: Isolation, refuse: str
) -> None:
    done = isolation.but(refuse=[refuse]).python(DOCTOR, "doctor", "--json")
    sections = {each["title"]: each for each in json.loads(done.stdout)["sections"]}
    engines = sections["I/O engines"]
    assert engines["data"]["engine"] == "pread"
    assert engines["data"]["seccomp"] == "filter"
    assert "seccomp" in engines["data"]["io_uring_refused_because"]
    assert [finding["value"] for finding in engines["findings"][:2]] == ["refused", "pread threads"]


def test_little_locked_memory_is_told(isolation: Isolation) -> None:
    done = isolation.but(limits={"memlock": 65536}).python(DOCTOR, "doctor", "--json")
    host = json.loads(done.stdout)["sections"][0]
    memlock = next(each for each in host["findings"] if each["name"] == "locked memory")
    assert memlock["value"] == "64 KiB"
    assert "ulimit -l" in memlock["hint"]
    assert host["data"]["memlock_bytes"] == 65536
