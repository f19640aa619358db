"""Every platform passes one conformance suite: the host, and the others on stand-in runtimes."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.native_build import build
from tests.support.simulators import simulator

if TYPE_CHECKING:
    from pathlib import Path

# The first of these tests may build the program.
pytestmark = [pytest.mark.platforms, pytest.mark.timeout(900)]

STANDINS = {"rocm": "hip", "cuda": "cuda", "ascend": "acl"}


@pytest.fixture(scope="session")
def native_tests() -> Path:
    try:
        return build()
    except subprocess.CalledProcessError as error:
        pytest.fail(f"the native tests do not build: {error}", pytrace=False)


def run(program: Path, platform: str, environment: dict[str, str]) -> None:
    environment["FXLOAD_TEST_PLATFORMS"] = platform
    done = subprocess.run(
        [str(program), "--source-file=*test_devices.cpp"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test cases:  0" not in done.stdout


def conform(program: Path, platform: str, tmp_path: Path, **controls: int | str) -> dict[str, Any]:
    """Run the suite on a stand-in; what the stand-in counted."""
    standin = simulator(STANDINS[platform])
    report = tmp_path / "report.json"
    environment = standin.environment(report=report, **controls)  # type: ignore[arg-type]
    environment["FXLOAD_TEST_RUNTIMES"] = str(standin.folder)
    run(program, platform, environment)
    counted: dict[str, Any] = json.loads(report.read_text())
    return counted


def test_the_host_conforms(native_tests: Path) -> None:
    run(native_tests, "host", dict(os.environ))


@pytest.mark.parametrize("platform", STANDINS)
def test_a_runtime_conforms_and_is_used_by_its_rules(
    native_tests: Path, tmp_path: Path, platform: str
) -> None:
    report = conform(native_tests, platform, tmp_path, poison=1)
    # The suite asks for this one, to see it refused.
    (violation,) = report["violations"]
    assert violation.endswith("is not registered")
    assert report["pageable_copies"] == 0
    assert set(report["contexts"]) == {"0"}
    left = [name for name in report if name.startswith("live_") and report[name]]
    assert left == []


@pytest.mark.parametrize("platform", STANDINS)
def test_slow_copies_that_overtake_one_another_change_nothing(
    native_tests: Path, tmp_path: Path, platform: str
) -> None:
    conform(native_tests, platform, tmp_path, poison=1, copy_delay_us=200, jitter_us=2000)


def test_ascend_copies_one_by_one_where_batches_are_refused(
    native_tests: Path, tmp_path: Path
) -> None:
    with_batches = conform(native_tests, "ascend", tmp_path)
    refused = "aclrtMemcpyBatchAsync:1:207000"
    without = conform(native_tests, "ascend", tmp_path, fail=refused)
    assert with_batches["calls"]["aclrtMemcpyBatchAsync"] == 1
    assert with_batches["copies_h2d"] == without["copies_h2d"]
    assert with_batches["calls"]["aclrtMemcpyAsync"] < without["calls"]["aclrtMemcpyAsync"]


def test_ascend_maps_memory_where_it_cannot_just_be_pinned(
    native_tests: Path, tmp_path: Path
) -> None:
    plain = conform(native_tests, "ascend", tmp_path)
    refused = conform(native_tests, "ascend", tmp_path, fail="aclrtHostRegisterV2:1:207000")
    calls = [report["calls"]["aclrtHostRegisterV2"] for report in (plain, refused)]
    assert calls[1] == calls[0] + 1
