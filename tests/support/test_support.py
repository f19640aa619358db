"""The tests' own tools do what the tests rely on."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from tests.support.mounts import file_system_of, squashfs_overlay_mount

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import MountTable, SlowFsFactory
    from tests.support.isolation import Isolation


def test_mounts_are_what_they_say(mount_table: MountTable) -> None:
    kinds = {
        kind: file_system_of(mount_table.fresh_folder(kind))
        for kind in ("ext4", "xfs", "tmpfs", "overlay", "fuse")
    }
    assert kinds.pop("fuse").startswith("fuse")
    assert all(kind == found for kind, found in kinds.items())


def test_overlay_on_squashfs_shows_the_content(
    tmp_path: Path, session_folder: Path, mount_table: MountTable
) -> None:
    (tmp_path / "content").mkdir()
    (tmp_path / "content" / "file").write_text("here")
    upper = mount_table.fresh_folder("ext4")
    with squashfs_overlay_mount(tmp_path / "content", upper, tmp_path) as mount:
        assert (mount / "file").read_text() == "here"
        assert file_system_of(mount) == "overlay"


class TestSlowFs:
    def test_faults_follow_their_lines(self, slowfs: SlowFsFactory) -> None:
        fs = slowfs(attr_s=0, keep_cache=False)
        (fs.root / "a").write_bytes(b"a" * 4096)
        (fs.root / "b").write_bytes(b"b" * 4096)

        def read(name: str) -> bytes:
            fd = os.open(fs.mount / name, os.O_RDONLY)
            try:
                return os.pread(fd, 4096, 0)
            finally:
                os.close(fd)

        with fs.faults.during("read flip 2 b", "read EIO 1 a"):
            with pytest.raises(OSError, match="Input/output error"):
                read("a")
            assert read("b") == b"b" * 4096
            assert read("b") != b"b" * 4096
        with fs.faults.during("open EACCES 1 a"), pytest.raises(PermissionError):
            read("a")
        assert read("a") == b"a" * 4096
        assert read("b") == b"b" * 4096
        counters = fs.counters()
        assert counters["opens"] == 6
        # The kernel tries a failed page once more.
        assert counters["faults"] in (3, 4)
        with pytest.raises(ValueError, match="no such fault"):
            fs.faults.set("raed EIO 1")

    def test_direct_faults_spare_buffered_reads(self, slowfs: SlowFsFactory) -> None:
        fs = slowfs()
        (fs.root / "a").write_bytes(b"a" * 4096)
        fs.faults.set("direct-open EINVAL 1")
        with pytest.raises(OSError, match="Invalid argument"):
            os.open(fs.mount / "a", os.O_RDONLY | os.O_DIRECT)
        assert (fs.mount / "a").read_bytes() == b"a" * 4096

    @pytest.mark.parametrize("ending", ["clear", "unmount"])
    def test_a_hanging_read_is_released(self, slowfs: SlowFsFactory, ending: str) -> None:
        fs = slowfs()
        (fs.root / "a").write_bytes(b"a" * 4096)
        fs.faults.set("read hang 1 a")
        outcome: list[object] = []

        def read() -> None:
            try:
                outcome.append((fs.mount / "a").read_bytes())
            except OSError as error:
                outcome.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        fs.wait_until_hanging()
        fs.faults.clear() if ending == "clear" else fs.unmount()
        thread.join(10)
        assert not thread.is_alive()
        assert len(outcome) == 1
        fs.unmount()
        assert fs.process.returncode is not None


class TestIsolation:
    CALLS = """
import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
def errno_of(*arguments):
    return ctypes.get_errno() if libc.syscall(*arguments) == -1 else 0
libc.syscall.restype = ctypes.c_long
found = []
if errno_of(425, 0, 0) == 1: found.append("io_uring")
if errno_of(451, 0, 0, 0, 0) == 1: found.append("cachestat")
import os, platform
statx = {"x86_64": 332, "aarch64": 291}[platform.machine()]
room = ctypes.create_string_buffer(512)
if errno_of(statx, -100, b"/", 0, 0x2000, room) == 1: found.append("dioalign")
assert errno_of(statx, -100, b"/", 0, 0x7FF, room) == 0
memory = mmap.mmap(-1, mmap.PAGESIZE)
try: memory.madvise(23)
except OSError: found.append("populate")
print(",".join(found))
"""

    def test_everything_is_refused(self, refuse_syscalls: Isolation) -> None:
        printed = refuse_syscalls.python(self.CALLS).stdout.strip()
        assert printed == "io_uring,cachestat,dioalign,populate"

    @pytest.mark.parametrize("name", ["io_uring", "cachestat", "dioalign"])
    def test_one_alone_is_refused(self, isolation: Isolation, name: str) -> None:
        lacking = set(isolation.python(self.CALLS).stdout.strip().split(","))
        refused = set(isolation.but(refuse=[name]).python(self.CALLS).stdout.strip().split(","))
        assert refused - lacking == {name}

    def test_nobody_has_no_rights_but_an_interpreter(self, unprivileged: Isolation) -> None:
        code = (
            "import os, resource, torch; print(os.getuid(), os.getgroups(), "
            "resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]); open('/etc/shadow')"
        )
        done = unprivileged.python(code, check=False)
        assert done.stdout.strip() == "65534 [] 0"
        assert "PermissionError" in done.stderr


def test_counters_are_whole_while_they_grow(slowfs: SlowFsFactory) -> None:
    fs = slowfs()
    (fs.root / "file").write_bytes(b"x")
    for _ in range(120):  # past 9 and 99, where the text grows
        fs.counters()
        (fs.mount / "file").stat()
        with (fs.mount / ".slowfs").open("rb", buffering=0) as opened:
            first = opened.read(4096)
            (fs.mount / "absent").exists()
            assert first
            assert opened.read(4096) == b""
