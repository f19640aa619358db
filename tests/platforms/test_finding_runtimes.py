"""Which runtime is found, where, and what is said when there is none, or no device."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.device_headers import cuda_include
from tests.support.native_build import CHECKOUT
from tests.support.needs import cannot, need_program
from tests.support.simulators import simulator

if TYPE_CHECKING:
    from tests.support.simulators import Run, Simulator

pytestmark = pytest.mark.platforms

STANDINS = {"rocm": "hip", "cuda": "cuda", "ascend": "acl"}
STEMS = {"rocm": "libamdhip64", "cuda": "libcudart", "ascend": "libascendcl"}
# A name that each platform looks for.
NAMES = {"rocm": "libamdhip64.so.7", "cuda": "libcudart.so.13", "ascend": "libascendcl.so"}

FIND = """
import sys
from fxload import FxloadError
from fxload._native import find_platform

def attempt(work):
    try:
        print("found", work())
    except FxloadError as error:
        assert "\\n" not in str(error)
        print(type(error).__name__, error)

def describe(platform):
    return f"{platform.found_by}|{platform.library}|{platform.device_count}"
"""


def python(code: str, *arguments: str | Path, **environment: str) -> str:
    """What a process prints that has no runtime but what the machine brings."""
    names = ("FXSIM_", "ROCM_", "HIP_", "CUDA_", "ASCEND_", "LD_LIBRARY_PATH")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    done = subprocess.run(
        [sys.executable, "-c", FIND + code, *map(str, arguments)],
        env={**inherited, "PYTHONPATH": str(CHECKOUT), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def on(standin: Simulator, code: str, *arguments: str | Path, **controls: int | str) -> Run:
    """Run a snippet that has `platform`, on a stand-in."""
    name = next(name for name, kind in STANDINS.items() if kind == standin.kind)
    opening = f"find = lambda: find_platform({name!r}, [{str(standin.folder)!r}])\n"
    return standin.python(FIND + opening + code, *arguments, **controls)  # type: ignore[arg-type]


@pytest.fixture(params=STANDINS)
def platform(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def standin(platform: str) -> Simulator:
    return simulator(STANDINS[platform])


class TestNoRuntime:
    def test_all_that_was_tried_is_named(self, tmp_path: Path) -> None:
        code = "attempt(lambda: describe(find_platform('ascend', sys.argv[1:])))"
        printed = python(code, tmp_path / "torch", ASCEND_TOOLKIT_HOME="/opt/toolkit")
        if printed.startswith("found"):
            pytest.skip("this machine has Ascend's runtime")
        assert printed.startswith("UnsupportedError no Ascend (CANN) runtime: none of libascendcl")
        assert f"{tmp_path}/torch" in printed
        assert "/opt/toolkit/lib64" in printed
        assert "system's loader" in printed

    def test_a_file_that_is_no_library_is_named(self, tmp_path: Path) -> None:
        library = tmp_path / NAMES["ascend"]
        library.write_text("no library")
        printed = python("attempt(lambda: find_platform('ascend', sys.argv[1:]))", tmp_path)
        if printed.startswith("found"):
            pytest.skip("this machine has Ascend's runtime")
        assert printed.startswith("UnsupportedError")
        assert f"cannot load {library}: " in printed

    def test_a_runtime_that_lacks_functions_is_named_with_them(
        self, tmp_path: Path, platform: str
    ) -> None:
        library = tmp_path / NAMES[platform]
        present = {"rocm": "hipSetDevice", "cuda": "cudaSetDevice", "ascend": "aclrtSetDevice"}
        code = f"int {present[platform]}(int device) {{ return device; }}"
        compiler = need_program("cc", "gcc")
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)],
            input=code,
            text=True,
            check=True,
        )
        printed = python(f"attempt(lambda: find_platform({platform!r}, sys.argv[1:]))", tmp_path)
        assert printed.startswith(f"UnsupportedError {library}: this version lacks ")
        missing = {"rocm": "hipMalloc", "cuda": "cudaMalloc", "ascend": "aclrtMalloc"}
        assert f" {missing[platform]}," in printed
        assert present[platform] not in printed

    def test_an_unknown_platform_is_a_mistake(self) -> None:
        printed = python("attempt(lambda: find_platform('abacus'))")
        assert printed == (
            "UsageError there is no platform 'abacus', only ascend, rocm, cuda, host"
        )


class TestNoDevice:
    def test_debians_real_hip_finds_none(self) -> None:
        found = sorted(Path("/usr/lib").glob("*-linux-gnu/libamdhip64.so.5"))
        if not found:
            cannot("HIP's runtime is missing (Debian package libamdhip64-dev)")
        if Path("/dev/kfd").exists():
            pytest.skip("this machine has a device of AMD's")
        printed = python(
            "attempt(lambda: describe(find_platform('rocm', sys.argv[1:])))", found[0].parent
        )
        assert printed.startswith("UnsupportedError ")
        assert "libamdhip64.so" in printed
        assert "the ROCm runtime finds no device" in printed

    def test_the_toolkits_real_cuda_finds_none(self) -> None:
        include = cuda_include()
        if include is None or not (include.parent / "lib64").exists():
            pytest.skip("there is no CUDA toolkit on this machine")
        code = "attempt(lambda: describe(find_platform('cuda', sys.argv[1:])))"
        printed = python(code, include.parent / "lib64", CUDA_VISIBLE_DEVICES="")
        assert printed.startswith("UnsupportedError ")
        assert "the CUDA runtime finds no device" in printed

    def test_a_count_of_none_means_absent(self, standin: Simulator) -> None:
        printed = on(standin, "attempt(find)", devices=0).stdout
        assert printed.startswith(f"UnsupportedError {standin.library}: the ")
        assert "runtime finds no device; check the driver" in printed

    @pytest.mark.parametrize(
        ("platform", "status"),
        [("rocm", 100), ("cuda", 100), ("cuda", 35), ("ascend", 507899), ("ascend", 207004)],
    )
    def test_so_do_these_statuses(self, standin: Simulator, status: int) -> None:
        printed = on(standin, "attempt(find)", devices=0, no_device_status=status).stdout
        assert printed.startswith("UnsupportedError ")
        assert "runtime finds no device" in printed

    def test_any_other_status_is_a_failure(self, standin: Simulator) -> None:
        prefix = {"hip": "hip", "cuda": "cuda", "acl": "aclrt"}[standin.kind]
        function = f"{prefix}GetDeviceCount"
        printed = on(standin, "attempt(find)", fail=f"{function}:1:999").stdout
        assert printed.startswith(f"DeviceError {function} failed with status 999: ")


class TestWhichCopy:
    def test_torchs_folder_comes_first(
        self, platform: str, standin: Simulator, tmp_path: Path
    ) -> None:
        shutil.copy(standin.library, tmp_path)
        code = f"attempt(lambda: describe(find_platform({platform!r}, sys.argv[1:])))"
        printed = python(code, standin.folder, LD_LIBRARY_PATH=str(tmp_path))
        assert printed == f"found torch's folder|{standin.library}|2"

    def test_then_the_toolkit(self, platform: str, standin: Simulator, tmp_path: Path) -> None:
        roots = {"rocm": "ROCM_PATH", "cuda": "CUDA_HOME", "ascend": "ASCEND_TOOLKIT_HOME"}
        library = tmp_path / "lib64" / standin.library.name
        library.parent.mkdir()
        shutil.copy(standin.library, library)
        code = f"attempt(lambda: describe(find_platform({platform!r}, ['/nowhere'])))"
        printed = python(code, **{roots[platform]: str(tmp_path)})
        assert printed == f"found toolkit|{library}|2"

    # Not CUDA's: a toolkit that this machine may have comes before.
    @pytest.mark.parametrize("platform", ["rocm", "ascend"])
    def test_then_the_system(self, platform: str, standin: Simulator, tmp_path: Path) -> None:
        shutil.copy(standin.library, tmp_path)
        code = f"attempt(lambda: describe(find_platform({platform!r}, ['/nowhere'])))"
        printed = python(code, LD_LIBRARY_PATH=str(tmp_path))
        assert printed == f"found system|{tmp_path / standin.library.name}|2"

    def test_what_is_loaded_is_used_whatever_its_path(
        self, platform: str, standin: Simulator, tmp_path: Path
    ) -> None:
        # As wheels rename what they bring; a second copy lies where it would be looked for.
        suffix = standin.library.name.removeprefix(STEMS[platform])
        loaded = tmp_path / f"{STEMS[platform]}-1b184622{suffix}"
        shutil.copy(standin.library, loaded)
        code = f"""
import ctypes
ctypes.CDLL(sys.argv[1])
attempt(lambda: describe(find_platform({platform!r}, [sys.argv[2]])))
maps = {{line.split()[-1] for line in open("/proc/self/maps") if {STEMS[platform]!r} in line}}
print(*maps)
"""
        printed = python(code, loaded, standin.folder).splitlines()
        assert printed == [f"found already loaded|{loaded}|2", str(loaded)]

    def test_of_two_that_are_loaded_torchs_is_used(
        self, platform: str, standin: Simulator, tmp_path: Path
    ) -> None:
        other = tmp_path / standin.library.name
        shutil.copy(standin.library, other)
        code = f"""
import ctypes
ctypes.CDLL(sys.argv[1])
ctypes.CDLL(sys.argv[2] + "/" + {standin.library.name!r})
attempt(lambda: describe(find_platform({platform!r}, [sys.argv[2]])))
"""
        printed = python(code, other, standin.folder)
        assert printed == f"found already loaded|{standin.library}|2"


class TestDevices:
    def test_an_index_that_does_not_exist(self, platform: str, standin: Simulator) -> None:
        code = "attempt(lambda: find().open(2)); attempt(lambda: find().open(-1))"
        printed = on(standin, code).stdout.splitlines()
        assert printed == [
            f"UsageError there is no {platform} device {index}, only 0 to 1" for index in (2, -1)
        ]

    def test_no_other_device_is_touched_and_no_thread_changes_its_own(
        self, standin: Simulator
    ) -> None:
        current = {
            "hip": "runtime.library.hipGetDevice",
            "cuda": "runtime.library.cudaGetDevice",
            "acl": "runtime.library.aclrtGetDevice",
        }
        code = f"""
import ctypes
device = find().open(1)
from fxload._native import PinnedRing
ring = PinnedRing(device, 2 << 20, slot_bytes=2 << 20)
print(ring.copy_rate(0.01)["bytes"] > 0)
ring.close()
buffer = device.allocate(1 << 20)
print(len(buffer), len(buffer.to_bytes()), len(buffer.to_bytes(100, 5)), device.memory()[1])
del buffer
index = ctypes.c_int(-7)
status = {current[standin.kind]}(ctypes.byref(index))
print(index.value if status == 0 else "none")
"""
        done = on(standin, code, device_memory=1 << 30)
        assert done.stdout.split() == [
            *("True", "1048576", "1048576", "5", str(1 << 30)),
            "none" if standin.kind == "acl" else "0",
        ]
        assert set(done.report["contexts"]) == {"1"}
        assert done.report["live_allocations"] == 0
        assert done.report["violations"] == []

    def test_no_room_on_the_device(self, platform: str, standin: Simulator) -> None:
        code = """
device = find().open(0)
first = device.allocate(700_000)
attempt(lambda: device.allocate(700_000))
del first
attempt(lambda: len(device.allocate(700_000)))
"""
        printed = on(standin, code, device_memory=1 << 20).stdout.splitlines()
        assert printed[0].startswith(f"OutOfMemoryError no 700000 bytes on {platform} device 0: ")
        assert printed[1] == "found 700000"

    def test_a_failure_has_the_functions_name_its_status_and_the_runtimes_words(
        self, standin: Simulator
    ) -> None:
        function, status = {
            "hip": ("hipMemcpyAsync", 700),
            "cuda": ("cudaMemcpyAsync", 700),
            "acl": ("aclrtMemcpyAsync", 507011),
        }[standin.kind]
        code = "attempt(find().open(0).allocate(100).to_bytes)"
        printed = on(standin, code, fail=f"{function}:1:{status}").stdout
        assert printed.startswith(f"DeviceError {function} failed with status {status}: ")
        assert len(printed) > len(f"DeviceError {function} failed with status {status}: \n")

    def test_a_forked_child_is_told_and_leaves_the_device_alone(self, standin: Simulator) -> None:
        code = """
import os
platform = find()
device = platform.open(0)
buffer = device.allocate(4096)
child = os.fork()
if child == 0:
    attempt(device.memory)
    attempt(lambda: platform.open(0))
    del buffer, device, platform
    sys.stdout.flush()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(len(buffer.to_bytes()))
"""
        done = on(standin, code)
        refused, also_refused, length = done.stdout.splitlines()
        assert refused.startswith("UsageError the ")
        assert "was opened before this process was forked" in refused
        assert also_refused == refused
        assert length == "4096"
        assert done.report["violations"] == []

    def test_the_host_needs_no_runtime(self) -> None:
        code = """
platform = find_platform("host")
print([platform.name, platform.library, platform.found_by, platform.version])
device = platform.open(0)
print(device.platform, device.tensor_align, device.copy_align, device.numa_node)
print(device.allocate(8).to_bytes(), device.memory()[1] > 0)
attempt(lambda: platform.open(1))
attempt(lambda: device.allocate(8).to_bytes(7, 2))
attempt(lambda: device.allocate(1 << 50))
"""
        printed = python(code).splitlines()
        assert printed[:5] == [
            "['host', '', '', '']",
            "host 64 1 -1",
            f"{bytes(8)!r} True",
            "UsageError there is no host device 1, only 0",
            "UsageError not within the 8 bytes of this device memory",
        ]
        assert printed[5].startswith("OutOfMemoryError no 1125899906842624 bytes on host device 0")
