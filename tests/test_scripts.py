"""Scripts that are too long to run whole: that they run at all, on little."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import need_device

CHECKOUT = Path(__file__).parents[1]


@pytest.mark.timeout(600)
def test_measure_runs_a_case_of_each_kind(tmp_path: Path) -> None:
    need_device("/dev/fuse")
    names = ["disk-prefault", "tmpfs", "array-2ms-dense-pread"]
    subprocess.run(
        [
            *(sys.executable, CHECKOUT / "scripts/measure", "--quick"),
            *("--only", ",".join(names), "--out", tmp_path),
        ],
        check=True,
    )
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [line["case"] for line in summary] == names
    assert all(line["gb_per_s"]["median"] > 0 for line in summary)
    assert all((tmp_path / f"{name}.json").is_file() for name in names)


@pytest.mark.platforms
@pytest.mark.timeout(600)
def test_measure_devices_runs_on_every_stand_in(tmp_path: Path) -> None:
    """Its memory bound is checked, at any size; what it says of time, by who runs it whole."""
    need_device("/dev/fuse")
    results = tmp_path / "results.json"
    subprocess.run(
        [sys.executable, CHECKOUT / "scripts/measure_devices", "--quick", "--json", results],
        check=True,
    )
    cases = json.loads(results.read_text())["cases"]
    assert list(cases) == ["acl", "cuda", "hip"]
    for case in cases.values():
        assert case["overlap"]["device"]["overlap_s"] > 0
        assert case["memory"]["own"] > case["memory"]["ring"]
