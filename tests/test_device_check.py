"""scripts/device_check on the HIP stand-in, and where there is nothing to check."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.simulators import simulator
from tests.support.toolkits import NO_DEVICES, as_toolkit

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKOUT = Path(__file__).parents[1]
SCRIPT = CHECKOUT / "scripts" / "device_check"

# The first of these tests may build the native tests.
pytestmark = [pytest.mark.platforms, pytest.mark.timeout(900)]


def device_check(env: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--quick", "--size", "20MB", "--folder", str(folder)]
    return subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=800
    )


def steps_of(told: Any) -> dict[str, Any]:
    (rocm,) = [each for each in told["platforms"] if each["name"] == "rocm"]
    steps: dict[str, Any] = rocm["steps"]
    return steps


def test_everything_is_checked_on_a_stand_in(tmp_path: Path, public_folder: Path) -> None:
    env = as_toolkit(simulator("hip"), tmp_path, devices=1)
    done = device_check(env, public_folder)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["ok"] is True
    assert told["machine"]["date"]
    assert told["machine"]["versions"]["torch"]
    (platform,) = told["platforms"]
    assert (platform["name"], platform["device"], platform["raw"]) == ("rocm", "rocm:0", True)
    assert platform["devices"][0]["ring"]["pinned"] is True
    steps = platform["steps"]
    assert steps["conformance"]["failed"] == 0
    assert steps["conformance"]["passed"] > 0
    assert "are equal" in steps["compare"]["told"]
    assert steps["bench"]["report"]["options"]["device"] == "rocm:0"
    assert not list(public_folder.iterdir())


def test_a_device_without_memory_fails_the_check(tmp_path: Path, public_folder: Path) -> None:
    env = as_toolkit(simulator("hip"), tmp_path, devices=1, device_memory=1 << 19)
    done = device_check(env, public_folder)
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert told["ok"] is False
    for step in steps_of(told).values():
        assert step["ok"] is False
        assert step["reason"]
    assert "Traceback" not in done.stderr


def test_a_command_runs_on_a_stand_in_with_its_controls() -> None:
    script = [sys.executable, str(CHECKOUT / "scripts" / "on_stand_in"), "hip"]
    command = ["fxload", "doctor", "--json"]
    done = subprocess.run(
        [*script, *command],
        env={**os.environ, "FXSIM_DEVICES": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sections = {each["title"]: each["data"] for each in json.loads(done.stdout)["sections"]}
    platforms = sections["accelerators"]["platforms"]
    assert {each["name"]: len(each["devices"]) for each in platforms if each["found"]} == {
        "rocm": 1
    }


def test_no_accelerator_is_one_line(public_folder: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = device_check(env | NO_DEVICES, public_folder)
    assert done.returncode == 1
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("device_check: no accelerator: ")
    for name in ("rocm: ", "cuda: ", "ascend: "):
        assert name in last
    assert not list(public_folder.iterdir())
