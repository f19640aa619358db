from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from fxload._errors import UnsupportedError, UsageError
from fxload.bench.load import Entry, LoadComparison, LoadPlan
from fxload.bench.peers import LOADERS
from fxload.bench.physical import Proof
from fxload.bench.plot import check_plot, plot_load, plot_storage
from fxload.bench.report import load_report, spread, storage_report
from fxload.bench.sample import Failure, Sample
from fxload.bench.storage import Cell, CellResult, best_cells, grid
from fxload.cli.bench_tables import draw_load, draw_storage
from fxload.cli.console import Screen

if TYPE_CHECKING:
    from pathlib import Path

GB = 10**9
MACHINE: dict[str, object] = {
    "cpu": "a processor",
    "cpus_usable": 2,
    "memory_bytes": 8 << 30,
    "kernel": "6.1",
    "virtual_machine": True,
    "date": "2026-01-01T00:00:00+00:00",
    "storage": [],
    "versions": {"torch": "2"},
}


def sample(round_index: int, seconds: float, cpu_s: float = 0.1) -> Sample:
    proof = Proof(True, "proc_io", GB, GB, 0)
    return Sample(round_index, GB, seconds, cpu_s, 0.01, 1 << 20, proof)


@pytest.fixture
def report() -> dict[str, Any]:
    plan = LoadPlan("/m", ("/m/a",), GB, ("fxload",), rounds=3, cold=True)
    own = Entry(LOADERS["fxload"], [sample(0, 0.5), sample(1, 1.0), sample(2, 0.8)])
    # Twice as slow in every round, though its median is not half of the other's in any order.
    peer = Entry(LOADERS["runai-view"], [sample(1, 2.0), sample(2, 1.6)])
    peer.failures = [Failure(0, "not_cold", "cached before")]
    gone = Entry(LOADERS["instanttensor"], [], [Failure(0, "unusable", "no CUDA")], True)
    limit = CellResult(Cell(8 << 20, 32), [sample(0, 0.4), sample(1, 0.8), sample(2, 0.7)])
    slower = CellResult(Cell(1 << 20, 16), [sample(0, 0.9)])
    comparison = LoadComparison(plan, [own, peer, gone], [limit, slower], [slower, limit], [])
    report: dict[str, Any] = json.loads(json.dumps(load_report(comparison, MACHINE)))
    return report


def test_ratios_pair_the_rounds(report: dict[str, Any]) -> None:
    own, peer, _ = report["loaders"]
    assert own["gb_per_s"] == {"median": 1.25, "min": 1.0, "max": 2.0, "count": 3}
    assert peer["speed_ratio_of_first"]["median"] == pytest.approx(2.0)
    assert peer["speed_ratio_of_first"]["count"] == 2
    assert own["share_of_limit"]["median"] == pytest.approx(0.8)
    assert own["cpu_s_per_gb"]["median"] == pytest.approx(0.1)
    assert report["limit"]["gb_per_s"]["median"] == pytest.approx(1 / 0.7)
    assert own["physical_bytes"]["median"] == GB


def test_what_failed_is_shown_with_its_reason(report: dict[str, Any]) -> None:
    _, peer, gone = report["loaders"]
    assert (gone["status"], gone["reason"], gone["gb_per_s"]) == ("unusable", "no CUDA", None)
    assert peer["status"] == "ok"
    assert peer["discarded"] == [{"round_index": 0, "kind": "not_cold", "reason": "cached before"}]
    out = io.StringIO()
    draw_load(Screen(out, io.StringIO()), report)
    text = out.getvalue()
    assert "instanttensor: unusable: no CUDA" in text
    assert "1 run discarded, the last one not_cold: cached before" in text
    assert "runai-view (not owned)" in text
    assert "80.0%" in text
    assert "2.00 x" in text


def test_prefault_is_said_of_the_one_loader_that_can(report: dict[str, Any]) -> None:
    assert {loader["destination"] for loader in report["loaders"]} == {"fresh memory"}
    plan = LoadPlan("/m", ("/m/a",), GB, ("fxload",), rounds=1, cold=False, prefault=True)
    entries = [Entry(LOADERS[name], [sample(0, 1.0)]) for name in ("fxload", "safetensors")]
    touched: Any = load_report(LoadComparison(plan, entries, [], [], [sample(0, 0.9)]), MACHINE)
    assert [loader["destination"] for loader in touched["loaders"]] == [
        "touched beforehand",
        "fresh memory",
    ]
    assert touched["limit"]["what"] == "parallel memory copy"
    out = io.StringIO()
    draw_load(Screen(out, io.StringIO()), touched)
    assert "the others have no such option" in out.getvalue()


@pytest.mark.parametrize(("name", "start"), [("a.svg", b"<?xml"), ("a.png", b"\x89PNG")])
def test_pictures_are_drawn(
    report: dict[str, Any], tmp_path: Path, name: str, start: bytes
) -> None:
    check_plot(tmp_path / name)
    plot_load(report, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


def test_a_storage_report_has_its_best_cell_its_table_and_its_picture(tmp_path: Path) -> None:
    results = [
        CellResult(Cell(1 << 20, 1), [sample(0, 2.0)]),
        CellResult(Cell(1 << 20, 16), [sample(0, 1.0), sample(1, 0.5), sample(2, 0.6)]),
        CellResult(Cell(8 << 20, 1), [], [Failure(0, "not_cold", "cached before")]),
    ]
    assert best_cells(results)[0].cell == Cell(1 << 20, 16)
    report: Any = storage_report("/m", ["/m/a"], GB, results, MACHINE, {})
    assert report["best"]["depth"] == 16
    assert report["best"]["gb_per_s"] == pytest.approx(1 / 0.6)
    out = io.StringIO()
    draw_storage(Screen(out, io.StringIO()), report)
    assert "best: 1.67 GB/s with 1 MiB x 16" in out.getvalue()
    assert "8 MiB x 1: 1 discarded: cached before" in out.getvalue()
    plot_storage(report, tmp_path / "a.svg")
    assert (tmp_path / "a.svg").stat().st_size > 1000
    nothing: Any = storage_report("/m", ["/m/a"], GB, results[2:], MACHINE, {})
    assert nothing["best"] is None
    plot_storage(nothing, tmp_path / "b.svg")


def test_a_picture_that_could_not_be_saved_is_refused_before_measuring(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no known format"):
        check_plot(tmp_path / "a.txt")
    with pytest.raises(UsageError, match="no such folder"):
        check_plot(tmp_path / "no" / "a.svg")


def test_the_grid_stays_within_memory_and_within_what_readers_take() -> None:
    assert grid([1 << 20, 8 << 20], [1, 4], 64 << 20) == [
        Cell(1 << 20, 1),
        Cell(1 << 20, 4),
        Cell(8 << 20, 1),
    ]
    for requests, depths in (([1 << 30], [64]), ([5000], [1]), ([512], [1]), ([4096], [0])):
        with pytest.raises(UsageError):
            grid(requests, depths, 1 << 30)


def test_a_spread_leaves_out_what_is_unknown() -> None:
    assert spread([None, 3.0, 1.0]) == {"median": 2.0, "min": 1.0, "max": 3.0, "count": 2}
    assert spread([None]) is None


def test_without_matplotlib_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'fxload\[bench\]'"):
        check_plot(tmp_path / "a.svg")


def test_one_round_is_not_called_interleaved(report: dict[str, Any]) -> None:
    for rounds, said in ((1, ", 1 round: "), (3, ", 3 interleaved rounds: ")):
        report["options"]["rounds"] = rounds
        out = io.StringIO()
        draw_load(Screen(out, io.StringIO()), report)
        assert said in out.getvalue()
