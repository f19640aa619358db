"""What the doctor says of accelerators: none, stand-ins, and runtimes that are broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fxload import _native
from fxload.doctor.accelerators import check_accelerators
from fxload.doctor.findings import Level
from fxload.doctor.host_files import HostFiles
from fxload.doctor.location import locate
from tests.doctor.fake_host import FakeHost
from tests.support.needs import need_program
from tests.support.simulators import simulator
from tests.support.toolkits import NO_DEVICES, as_toolkit, torch_brings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fxload.doctor.findings import Finding, Section
    from tests.conftest import CheckpointFactory
    from tests.support.isolation import Isolation

pytestmark = [pytest.mark.platforms, pytest.mark.timeout(600)]

DOCTOR = [sys.executable, "-m", "fxload.cli.app", "doctor"]


def doctor(env: Mapping[str, str], *arguments: str) -> Any:
    """The accelerators' section of `fxload doctor --json` in that environment."""
    done = subprocess.run(
        [*DOCTOR, *arguments, "--json"],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["ok"] is True
    return next(each for each in told["sections"] if each["title"] == "accelerators")


def platform(section: Any, name: str) -> Any:
    return next(each for each in section["data"]["platforms"] if each["name"] == name)


def finding(section: Any, name: str) -> Any:
    return next(each for each in section["findings"] if each["name"].strip() == name)


def named(section: Section, name: str) -> Finding:
    return next(each for each in section.findings if each.name.strip() == name)


def without_accelerators() -> dict[str, str]:
    """This environment, in which no runtime shows a device."""
    own = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    return own | NO_DEVICES


def test_a_host_without_accelerators_says_what_it_looked_for() -> None:
    section = doctor(without_accelerators())
    assert [each["name"] for each in section["data"]["platforms"]] == [
        name for name in _native.platform_names() if name != "host"
    ]
    for each in section["data"]["platforms"]:
        told = finding(section, each["name"])
        assert "\n" not in told["reason"]
        assert (each["found"], each["absent"]) == (False, True)
        assert (told["level"], told["value"]) == ("info", "none")
        assert told["reason"] == each["reason"] != ""
    torch = section["data"]["torch"]
    assert finding(section, "torch")["value"] == torch["torch"]
    assert torch["failure"] == ""


@pytest.mark.parametrize(("kind", "name"), [("hip", "rocm"), ("cuda", "cuda"), ("acl", "ascend")])
def test_a_stand_in_is_described_and_measured(
    kind: str, name: str, make_checkpoint: CheckpointFactory, public_folder: Path
) -> None:
    if torch_brings(kind):
        pytest.skip("this torch brings a runtime of its own, which is found first")
    runtime = simulator(kind)
    model = make_checkpoint(public_folder / "model", shards=1)
    environment = as_toolkit(runtime, public_folder, devices=2, device_memory=1 << 30)
    section = doctor(environment, str(model.path))
    found = platform(section, name)
    assert found["found"] is True
    assert Path(found["library"]).samefile(runtime.library)
    assert found["found_by"] == "toolkit"
    told = finding(section, name)
    assert told["level"] == "ok"
    assert "2 devices" in told["value"]
    assert told["reason"] == f"{found['library']} (toolkit)"
    assert [device["index"] for device in found["devices"]] == [0, 1]
    for device in found["devices"]:
        assert device["failure"] == ""
        assert device["name"]
        assert 0 < device["free_bytes"] <= device["total_bytes"] == 1 << 30
        ring = device["ring"]
        assert (ring["pinned"], ring["size_bytes"]) == (True, 64 << 20)
        assert ring["method"] in ("registered", "runtime")
        assert device["bytes_per_s"] > 0
    (judged,) = found["direct_storage"]
    assert judged["path"] == str(model.path)
    assert judged["reasons"]
    told = finding(section, judged["name"])
    assert told["value"] == ("possible here" if judged["usable"] else "not usable here")
    assert "pinned memory" in told["reason"]
    for other in section["data"]["platforms"]:
        if other["name"] != name:
            assert other["absent"]


def test_the_doctor_itself_opens_no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = simulator("hip")
    for name, value in as_toolkit(runtime, tmp_path).items():
        monkeypatch.setenv(name, value)
    section = check_accelerators(HostFiles())
    assert named(section, "rocm").level is Level.OK
    loaded = Path("/proc/self/maps").read_text()
    assert str(runtime.library) not in loaded


def test_memory_that_cannot_be_registered_names_the_limit(
    isolation: Isolation, tmp_path: Path
) -> None:
    environment = as_toolkit(
        simulator("hip"), tmp_path, refuse_registration=1, fail="hipHostMalloc:1:2"
    )
    done = isolation.but(limits={"memlock": 65536}, env=environment).run(*DOCTOR, "--json")
    sections = {each["title"]: each for each in json.loads(done.stdout)["sections"]}
    section = sections["accelerators"]
    assert section["data"]["memlock_bytes"] == 65536
    ring = platform(section, "rocm")["devices"][0]["ring"]
    assert (ring["pinned"], ring["method"]) == (False, "none")
    told = finding(section, "pinned memory")
    assert told["level"] == "warn"
    assert "RLIMIT_MEMLOCK" in told["reason"]
    assert "memlock" in told["hint"]
    assert finding(section, "copy to the device")["level"] == "ok"


@pytest.mark.parametrize(
    ("function", "opened"),
    [("hipMalloc", True), ("hipMemGetInfo", False), ("hipMemcpyAsync", True)],
)
def test_a_call_that_fails_is_a_finding(function: str, opened: bool, tmp_path: Path) -> None:
    section = doctor(as_toolkit(simulator("hip"), tmp_path, devices=1, fail=f"{function}:1:999"))
    (device,) = platform(section, "rocm")["devices"]
    assert ("total_bytes" in device) is opened
    assert device["failure"]
    name = "copy to the device" if opened else "device 0"
    told = finding(section, name)
    assert told["level"] == "warn"
    assert told["reason"] == device["failure"]


def test_a_device_that_hangs_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in as_toolkit(simulator("hip"), tmp_path, devices=1, hang=1).items():
        monkeypatch.setenv(name, value)
    section = check_accelerators(HostFiles(), timeout_s=10.0)
    (found,) = [each for each in platforms_of(section) if each["name"] == "rocm"]
    (device,) = found["devices"]
    assert device["failure"] == "gave no answer within 10 s"
    assert named(section, "copy to the device").reason == device["failure"]


def platforms_of(section: Section) -> list[dict[str, Any]]:
    platforms = section.data["platforms"]
    assert isinstance(platforms, list)
    return platforms


BROKEN = {
    "crash": "abort();",
    "hang": "for (;;) pause();",
    "exit": "_exit(3);",
}


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("crash", "ended the process that tried it with SIGABRT"),
        ("hang", "gave no answer within 8 s"),
        ("exit", "exited with 3"),
    ],
)
def test_a_runtime_that_breaks_as_it_is_loaded_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, reason: str
) -> None:
    source = tmp_path / "broken.c"
    source.write_text(
        "#include <stdlib.h>\n#include <unistd.h>\n"
        f"__attribute__((constructor)) static void begin(void) {{ {BROKEN[how]} }}\n"
    )
    library = tmp_path / "lib" / "libamdhip64.so.7"
    library.parent.mkdir()
    compiler = need_program("cc", "gcc")
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library], check=True)
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    section = check_accelerators(HostFiles(), timeout_s=8.0 if how == "hang" else 60.0)
    told = named(section, "rocm")
    assert (told.level, told.value, told.reason) == (Level.WARN, "does not work", reason)
    assert "rocminfo" in told.hint
    assert named(section, "cuda").level is not Level.FAIL


def test_paths_are_judged_by_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = FakeHost(tmp_path)
    host.fabric_raid("/mnt/fx")
    place = locate(Path("/mnt/fx/model"), host.files)
    assert place is not None
    for name, value in as_toolkit(simulator("hip"), tmp_path, devices=1).items():
        monkeypatch.setenv(name, value)
    section = check_accelerators(host.files, [place])
    told = named(section, "hipFile")
    assert told.value == "not usable here"
    assert "md0 is a software RAID (raid0)" in told.reason


@pytest.fixture
def broken_torch_npu(tmp_path: Path) -> Path:
    """A folder with a torch_npu that is installed, as pip sees it, and cannot be imported."""
    package = tmp_path / "torch_npu"
    package.mkdir()
    (package / "__init__.py").write_text(
        "raise ImportError('libhccl.so: cannot open shared object file: No such file')\n"
    )
    metadata = tmp_path / "torch_npu-2.13.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_npu\nVersion: 2.13.0\n")
    (metadata / "entry_points.txt").write_text("[torch.backends]\ntorch_npu = torch_npu:autoload\n")
    return tmp_path


def test_torch_npu_without_cann_is_a_finding_and_torch_still_works(broken_torch_npu: Path) -> None:
    section = doctor({**without_accelerators(), "PYTHONPATH": str(broken_torch_npu)})
    assert finding(section, "torch")["level"] == "ok"
    told = finding(section, "torch_npu")
    assert (told["level"], told["value"]) == ("warn", "2.13.0")
    assert "libhccl.so" in told["reason"]
    assert "CANN" in told["hint"]


def test_the_real_torch_npu_sees_the_as_toolkit(tmp_path: Path) -> None:
    section = doctor(as_toolkit(simulator("acl"), tmp_path, torch_npu=True, devices=2))
    told = finding(section, "torch_npu")
    assert (told["level"], told["reason"]) == ("ok", "it sees 2 devices")
    assert section["data"]["torch"]["npu_devices"] == 2
    found = platform(section, "ascend")
    assert [device["failure"] for device in found["devices"]] == ["", ""]
