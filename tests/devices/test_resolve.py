"""Which device is meant, and one clear line where it is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import fxload
from fxload._errors import UnsupportedError, UsageError
from fxload.devices.folders import runtime_folders
from fxload.devices.resolve import device_name, raw_target, resolve_device
from tests.support.checkpoints import write_checkpoint
from tests.support.simulators import simulator
from tests.support.toolkits import NO_DEVICES

if TYPE_CHECKING:
    from fxload._errors import FxloadError
    from tests.support.simulators import Simulator

pytestmark = pytest.mark.platforms

CODE = """
import sys
import fxload
from fxload._errors import FxloadError
try:
    fxload.open_checkpoint(sys.argv[1], device=sys.argv[2])
except FxloadError as error:
    print(type(error).__name__, error, sep="|")
else:
    raise SystemExit("it was opened")
"""


@pytest.fixture(scope="module")
def acl() -> Simulator:
    return simulator("acl")


def refusal(path: Path, device: str, *, env: dict[str, str], expected: type[FxloadError]) -> str:
    """What a fresh process says when it is asked for the device: one line, of this class."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(path), device],
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kind, _, line = done.stdout.splitlines()[-1].partition("|")
    assert kind == expected.__name__
    assert "Traceback" not in done.stdout
    return line


def without_runtimes(**changes: str) -> dict[str, str]:
    env = {name: text for name, text in os.environ.items() if name != "LD_LIBRARY_PATH"}
    return env | {"PYTHONPATH": str(Path(__file__).parents[2])} | changes


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu"), "cpu:0"])
def test_the_host_is_no_device(device: Any) -> None:
    assert resolve_device(device) is None


@pytest.mark.parametrize("device", ["", "cuda:", "cuda:x", "cuda:-1", "npu:0:1", "CPU 0", "cpu:1"])
def test_a_name_that_makes_no_sense(device: str) -> None:
    with pytest.raises(UsageError, match=r"no device is called"):
        resolve_device(device)


@pytest.mark.parametrize("device", ["xpu", "meta", torch.device("mps"), "banana:3"])
def test_a_device_that_fxload_does_not_know(device: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"cuda:N \(NVIDIA and AMD\) or npu:N"):
        resolve_device(device)


def test_names_in_full() -> None:
    assert device_name("cpu") == "cpu"
    assert device_name("npu") == "npu:0"
    assert device_name("cuda:3") == "cuda:3"
    assert device_name("host", raw=True) == "host:0"
    assert raw_target("cuda:1").platforms == ("rocm", "cuda")
    assert raw_target("npu").platforms == ("ascend",)
    assert raw_target("rocm:2").platforms == ("rocm",)
    with pytest.raises(UsageError, match="write cuda:N or npu:N"):
        raw_target("cpu:0")


def test_a_torch_for_the_host_alone_says_so() -> None:
    assert torch.version.cuda is None
    assert torch.version.hip is None
    with pytest.raises(UnsupportedError, match="built without CUDA and ROCm"):
        resolve_device("cuda:0")
    with pytest.raises(UnsupportedError, match="install the build of torch"):
        fxload.load_checkpoint("/no/such/model", device="cuda")


@pytest.mark.parametrize(("attribute", "platform"), [("hip", "rocm"), ("cuda", "cuda")])
def test_the_build_of_torch_tells_amd_from_nvidia(
    monkeypatch: pytest.MonkeyPatch, attribute: str, platform: str
) -> None:
    """A torch with devices cannot run here: its answers are put in its mouth."""
    monkeypatch.setattr(torch.version, attribute, "9.9")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    target = resolve_device("cuda:1")
    assert target is not None
    assert (target.name, target.index, target.platforms, target.torch_type) == (
        *("cuda:1", 1, (platform,)),
        "cuda",
    )
    assert resolve_device("cuda") == target
    with pytest.raises(UsageError, match="there is no device cuda:2; this process sees cuda:0 to"):
        resolve_device("cuda:2")
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    with pytest.raises(UsageError, match="forked"):
        resolve_device("cuda:0")


def test_a_driver_that_is_missing_is_torch_s_own_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable() -> bool:
        import warnings

        warnings.warn("CUDA initialization: Found no NVIDIA driver", UserWarning, stacklevel=2)
        return False

    monkeypatch.setattr(torch.version, "cuda", "9.9")
    monkeypatch.setattr(torch.cuda, "is_available", unavailable)
    with pytest.raises(UnsupportedError, match=r"finds no device: CUDA init.*no NVIDIA driver"):
        resolve_device("cuda:0")


def test_the_runtime_s_folders_are_found_without_importing_anything() -> None:
    code = (
        "import sys; from fxload.devices import runtime_folders; print(*runtime_folders());"
        "assert 'torch' not in sys.modules"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    assert out.split() == runtime_folders()
    assert str(Path(torch.__file__).parent / "lib") in runtime_folders()


def test_without_torch_npu_one_line_says_what_to_install(tmp_path: Path) -> None:
    line = refusal(tmp_path, "npu:0", env=without_runtimes(), expected=UnsupportedError)
    assert "torch_npu is not installed" in line
    assert "pip install 'fxload[ascend]'" in line


@pytest.mark.parametrize("autoload", ["0", "1"])
def test_torch_npu_without_cann(tmp_path: Path, acl: Simulator, autoload: str) -> None:
    env = acl.environment(torch_npu=True)
    del env["LD_LIBRARY_PATH"]
    env["TORCH_DEVICE_BACKEND_AUTOLOAD"] = autoload
    line = refusal(tmp_path, "npu:0", env=env, expected=UnsupportedError)
    assert "libhccl.so" in line
    assert "install CANN and source its set_env.sh" in line
    assert ("TORCH_DEVICE_BACKEND_AUTOLOAD=0" in line) == (autoload == "1")


def test_torch_npu_without_cann_is_named_to_who_loads_to_the_host(
    tmp_path: Path, acl: Simulator
) -> None:
    """`import torch` itself fails there, in a load that wants no device at all."""
    checkpoint = write_checkpoint(tmp_path / "model", shards=1)
    env = acl.environment(torch_npu=True)
    del env["LD_LIBRARY_PATH"]
    code = CODE.replace("open_checkpoint(", "load_checkpoint(")
    done = subprocess.run(
        [sys.executable, "-c", code, str(checkpoint.path), "cpu"],
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout.startswith("UnsupportedError|torch cannot be imported")
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in done.stdout


def test_a_runtime_without_devices(tmp_path: Path, acl: Simulator) -> None:
    env = acl.environment(torch_npu=True, devices=0)
    line = refusal(tmp_path, "npu:0", env=env, expected=UnsupportedError)
    assert "finds no Ascend device" in line
    assert "npu-smi info" in line


def test_an_index_that_does_not_exist(tmp_path: Path, acl: Simulator) -> None:
    env = acl.environment(torch_npu=True)
    line = refusal(tmp_path, "npu:5", env=env, expected=UsageError)
    assert line == "there is no device npu:5; this process sees npu:0 to npu:1"


RAW_CODE = """
import sys
from fxload._errors import FxloadError
from fxload.devices.resolve import raw_target
try:
    raw_target(sys.argv[2]).open()
except FxloadError as error:
    print(type(error).__name__, error, sep="|")
"""


@pytest.mark.parametrize(
    ("kind", "device", "controls", "said"),
    [
        (None, "npu:0", {}, ["UnsupportedError|", "ascend"]),
        (None, "cuda:0", {}, ["UnsupportedError|", "ROCm", "CUDA"]),
        ("hip", "cuda:0", {"devices": 0}, ["UnsupportedError|", "ROCm runtime finds no device"]),
        ("hip", "cuda:7", {}, ["UsageError|", "rocm device 7"]),
        ("cuda", "cuda:7", {}, ["UsageError|", "cuda device 7"]),
        ("acl", "npu:7", {}, ["UsageError|", "ascend device 7"]),
    ],
)
def test_raw_devices_that_are_not_there(
    kind: str | None, device: str, controls: dict[str, Any], said: list[str]
) -> None:
    env = without_runtimes() if kind is None else simulator(kind).environment(**controls)
    env |= NO_DEVICES  # of this machine
    done = subprocess.run(
        [sys.executable, "-c", RAW_CODE, "", device],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert len(done.stdout.splitlines()) == 1
    for word in said:
        assert word in done.stdout


def test_a_load_to_the_host_imports_no_device_s_module(tmp_path: Path, acl: Simulator) -> None:
    checkpoint = write_checkpoint(tmp_path / "model", shards=1)
    run = acl.python(
        "import sys, fxload\n"
        "fxload.load_checkpoint(sys.argv[1])\n"
        "assert 'torch_npu' not in sys.modules\n"
        "assert not [name for name in sys.modules if name.startswith('fxload.devices.t')]\n",
        checkpoint.path,
    )
    assert run.report.get("calls", {}) == {}


@pytest.mark.parametrize(
    ("kind", "device"), [("hip", "cuda:1"), ("cuda", "cuda:1"), ("acl", "npu:1")]
)
def test_no_device_but_the_one_asked_for_is_touched(tmp_path: Path, kind: str, device: str) -> None:
    checkpoint = write_checkpoint(tmp_path / "model", shards=1)
    run = simulator(kind).python(
        "import sys\n"
        "from tests.devices.children import check_whole\n"
        "check_whole(sys.argv[1], sys.argv[2], raw=True)",
        checkpoint.path,
        device,
    )
    assert set(run.report["contexts"]) == {"1"}


def test_none_but_those_that_torch_touches_by_itself(tmp_path: Path, acl: Simulator) -> None:
    checkpoint = write_checkpoint(tmp_path / "model", shards=1)
    alone = acl.python("import torch; torch.empty(1, device='npu:1')", torch_npu=True)
    found = acl.python(
        "from fxload.devices.resolve import resolve_device; resolve_device('npu:1')",
        torch_npu=True,
    )
    loaded = acl.python(
        "import sys, fxload\n"
        "for name, tensor in fxload.open_checkpoint(sys.argv[1], device='npu:1'):\n"
        "    assert str(tensor.device) == 'npu:1'\n",
        checkpoint.path,
        torch_npu=True,
    )
    assert found.report["contexts"] == {}
    assert set(loaded.report["contexts"]) == set(alone.report["contexts"])
    assert loaded.report["violations"] == []
