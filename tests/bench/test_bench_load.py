"""bench load and bench storage on small real checkpoints, through the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fxload._errors import CapacityError
from fxload.bench.files import made_files, readable_files
from fxload.bench.load import LoadPlan, compare_loaders
from fxload.bench.peers import LOADERS, Job
from fxload.bench.runner import run_job
from fxload.bench.sample import Failure, Sample
from fxload.cli.app import main

if TYPE_CHECKING:
    from tests.conftest import CheckpointFactory, SlowFsFactory
    from tests.support.checkpoints import Checkpoint

MIB = 1 << 20
PAYLOAD = 2 * (3 * MIB + 37 * 4)


@pytest.fixture
def checkpoint(tmp_path: Path, make_checkpoint: CheckpointFactory) -> Checkpoint:
    return make_checkpoint(tmp_path / "model", shards=2, tensors=3, tensor_bytes=MIB)


def job(checkpoint: Checkpoint, loader: str, **changes: Any) -> Job:
    options: dict[str, Any] = {
        "loader": loader,
        "model": str(checkpoint.path),
        "paths": tuple(str(file) for file in checkpoint.files),
        "payload_bytes": PAYLOAD,
        "verify": True,
    }
    return Job(**(options | changes))


def load(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert main(["bench", "load", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_cold_comparison_is_proven_interleaved_and_equal(
    checkpoint: Checkpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "picture.svg"
    told = load(
        capsys,
        *[str(checkpoint.path), "--vs", "safetensors,instanttensor"],
        *["--rounds", "2", "--plot", str(picture)],
    )
    assert told["model"]["payload_bytes"] == PAYLOAD
    assert told["machine"]["versions"]["torch"]
    assert told["limit"]["gb_per_s"]["count"] == 2
    loaders = {loader["name"]: loader for loader in told["loaders"]}
    assert list(loaders) == ["fxload", "safetensors", "instanttensor"]
    for name in ("fxload", "safetensors"):
        loader = loaders[name]
        assert loader["status"] == "ok", loader["reason"]
        assert loader["gb_per_s"]["count"] == 2
        assert loader["cold_proof"] == ["proc_io"]
        assert loader["physical_bytes"]["min"] >= 0.99 * PAYLOAD
        assert loader["content_digest"] == loaders["fxload"]["content_digest"]
        assert loader["samples"][0]["first_tensor_s"] <= loader["samples"][0]["elapsed_s"]
    assert loaders["safetensors"]["speed_ratio_of_first"]["count"] == 2
    assert loaders["instanttensor"]["status"] == "unusable"
    assert "CUDA" in loaders["instanttensor"]["reason"]
    assert picture.stat().st_size > 1000


def test_a_cached_comparison_is_judged_by_a_memory_copy(
    checkpoint: Checkpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    arguments = ["--vs", "safetensors", "--rounds", "1", "--no-cold", "--prefault", "--digest"]
    assert main(["bench", "load", str(checkpoint.path), *arguments, "--json", str(out)]) == 0
    text = capsys.readouterr().out
    assert "in the page cache" in text
    assert "(--prefault)" in text
    told = json.loads(out.read_text())
    own, peer = told["loaders"]
    assert told["limit"]["what"] == "parallel memory copy"
    assert told["limit"]["gb_per_s"]["median"] > 0
    assert (own["destination"], peer["destination"]) == ("touched beforehand", "fresh memory")
    assert own["samples"][0]["details"]["digest"].startswith("fx1-")
    assert own["share_of_limit"]["median"] > 0


def test_an_array_across_a_network_is_proven_by_its_own_counters(
    make_checkpoint: CheckpointFactory,
    slowfs: SlowFsFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mounted = slowfs(latency_us=200)
    make_checkpoint(mounted.root / "model", shards=2, tensors=3, tensor_bytes=MIB)
    told = load(capsys, str(mounted.mount / "model"), "--vs", "safetensors", "--rounds", "1")
    for loader in told["loaders"]:
        assert loader["cold_proof"] == ["slowfs"], loader["reason"]
        assert loader["physical_bytes"]["min"] >= 0.99 * PAYLOAD


def test_a_file_in_memory_has_no_cold_read(
    memory_folder: Path,
    make_checkpoint: CheckpointFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_checkpoint(memory_folder, shards=1)
    told = load(capsys, str(memory_folder), "--rounds", "1", code=2)
    assert "--no-cold" in told["error"]["message"]


def test_a_failing_load_is_reported_and_the_command_fails(
    make_checkpoint: CheckpointFactory,
    slowfs: SlowFsFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mounted = slowfs()
    model = make_checkpoint(mounted.root / "model", shards=1, tensors=3, tensor_bytes=MIB)
    file = str(mounted.mount / "model" / model.files[0].name)
    asked = Job("fxload", str(mounted.mount / "model"), (file,), PAYLOAD // 2)
    with mounted.faults.during("read EIO 3"):
        outcome = run_job(asked, 0, cold=True, timeout_s=60).outcome
    assert isinstance(outcome, Failure)
    assert outcome.kind == "failed"
    assert file in outcome.reason


def test_an_unknown_loader_is_bad_usage(
    checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    told = load(capsys, str(checkpoint.path), "--vs", "teleport", code=2)
    assert "teleport" in told["error"]["message"]
    assert "safetensors" in told["error"]["hint"]


def test_each_loader_loads_the_same_or_says_why_not(checkpoint: Checkpoint) -> None:
    owned = [name for name, spec in LOADERS.items() if spec.owned]
    runs = [run_job(job(checkpoint, name), 0, cold=False, timeout_s=120) for name in owned]
    contents = {run.content for run in runs if isinstance(run.outcome, Sample)}
    assert len(contents) == 1
    for run in runs:
        if isinstance(run.outcome, Failure):
            assert run.outcome.kind in ("missing", "unusable")
            assert run.outcome.reason
            assert "\n" not in run.outcome.reason
            continue
        assert run.outcome.payload_bytes == PAYLOAD
        assert run.outcome.cpu_s > 0
        assert run.outcome.proof is None


def test_other_bytes_than_the_model_are_no_result(checkpoint: Checkpoint) -> None:
    run = run_job(job(checkpoint, "safetensors", payload_bytes=5), 3, cold=False, timeout_s=120)
    assert run.outcome == Failure(3, "wrong_content", f"{PAYLOAD} bytes of tensors instead of 5")


def test_a_worker_that_does_not_end_is_killed(
    make_checkpoint: CheckpointFactory, slowfs: SlowFsFactory
) -> None:
    mounted = slowfs(mb_per_s=1)
    model = make_checkpoint(mounted.root / "model", shards=1, tensors=16, tensor_bytes=2 * MIB)
    file = str(mounted.mount / "model" / model.files[0].name)
    slow = Job("safetensors", str(mounted.mount / "model"), (file,), 1)
    outcome = run_job(slow, 0, cold=True, timeout_s=3).outcome
    assert outcome == Failure(0, "failed", "no result within 3 s")


def test_a_package_that_is_missing_is_one_line_and_the_others_go_on(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    # A folder that hides the package: importing it fails as if it were not installed.
    hidden = tmp_path / "hidden" / "runai_model_streamer"
    hidden.mkdir(parents=True)
    text = "raise ModuleNotFoundError('no', name='runai_model_streamer')"
    (hidden / "__init__.py").write_text(text)
    code = (
        f"import os, sys; sys.path.insert(0, {str(hidden.parent)!r});"
        "from fxload.bench.worker import main; sys.exit(main(os.getppid()))"
    )
    request = json.dumps(job(checkpoint, "runai").as_json())
    done = subprocess.run(
        [sys.executable, "-c", code], input=request, capture_output=True, text=True, timeout=60
    )
    answer = json.loads(done.stdout)
    assert answer["status"] == "missing"
    assert "pip install runai-model-streamer" in answer["reason"]


def test_storage_is_measured_cell_by_cell(
    checkpoint: Checkpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture, out = tmp_path / "picture.png", tmp_path / "out.json"
    arguments = ["--requests", "1MiB,2MiB", "--depths", "1,4", "--rounds", "2"]
    arguments += ["--plot", str(picture), "--json", str(out)]
    assert main(["bench", "storage", str(checkpoint.path), *arguments]) == 0
    assert "best: " in capsys.readouterr().out
    told = json.loads(out.read_text())
    assert len(told["cells"]) == 4
    for cell in told["cells"]:
        assert len(cell["samples"]) == 2, cell["failures"]
        for sample in cell["samples"]:
            assert sample["proof"]["cold"] is True
            assert sample["payload_bytes"] == checkpoint.size_bytes
    assert told["best"]["gb_per_s"] == max(cell["gb_per_s"] for cell in told["cells"])
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_slow_cell_stops_in_time_and_is_rated_by_what_it_got(
    slowfs: SlowFsFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    mounted = slowfs(mb_per_s=10)
    (mounted.root / "a.bin").write_bytes(bytes(64 * MIB))
    arguments = ["--requests", "1MiB", "--depths", "2", "--rounds", "1", "--cell-seconds", "0.5"]
    assert main(["bench", "storage", str(mounted.mount), *arguments, "--json"]) == 0
    (sample,) = json.loads(capsys.readouterr().out)["cells"][0]["samples"]
    assert sample["details"]["complete"] is False
    assert 0 < sample["payload_bytes"] < 32 * MIB
    assert sample["proof"]["method"] == "slowfs"


def test_made_files_are_random_and_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--requests", "1MiB", "--depths", "4", "--rounds", "1", "--make", "8MiB"]
    assert main(["bench", "storage", str(tmp_path), *arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["files"], told["size_bytes"]) == (4, 8 * MIB)
    assert list(tmp_path.iterdir()) == []
    with made_files(tmp_path, 8 * MIB) as paths:
        blocks = {Path(path).read_bytes()[:4096] for path in paths}
        assert len(blocks) == 4
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_anything_to_read_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small").write_bytes(b"x")
    assert main(["bench", "storage", str(tmp_path)]) == 1
    assert "--make" in capsys.readouterr().err
    (tmp_path / "large.bin").write_bytes(bytes(MIB))
    assert readable_files(tmp_path) == [str(tmp_path / "large.bin")]
    (tmp_path / "a.safetensors").write_bytes(b"x")
    assert readable_files(tmp_path) == [str(tmp_path / "a.safetensors")]


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL])
def test_ending_the_command_ends_its_worker(
    make_checkpoint: CheckpointFactory, slowfs: SlowFsFactory, signal_number: int
) -> None:
    mounted = slowfs(mb_per_s=8)
    make_checkpoint(mounted.root / "model", shards=1, tensors=2, tensor_bytes=4 * MIB)
    command = ["bench", "load", str(mounted.mount / "model"), "--vs", "", "--rounds", "1"]
    with subprocess.Popen(
        [sys.executable, "-m", "fxload.cli.app", *command, "--no-cold"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        worker = wait_for_child(process.pid)
        process.send_signal(signal_number)
        out, err = process.communicate(timeout=30)
    assert out == ""
    if signal_number == signal.SIGTERM:
        assert process.returncode == 143
        assert err.splitlines()[-1] == "fxload: terminated"
    wait_until_ended(worker)


def wait_until_ended(pid: int) -> None:
    """Return once `pid` runs no more; one that its new parent has not reaped has ended as well."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state in "ZX":
            return
        time.sleep(0.01)
    raise TimeoutError(f"process {pid} still runs")


def wait_for_child(parent: int) -> int:
    children = Path(f"/proc/{parent}/task/{parent}/children")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if found := children.read_text().split():
            return int(found[0])
        time.sleep(0.01)
    raise TimeoutError("no worker was started")


def test_a_model_larger_than_memory_is_refused(checkpoint: Checkpoint) -> None:
    paths = tuple(str(file) for file in checkpoint.files)
    plan = LoadPlan(
        str(checkpoint.path), paths, 1 << 40, ("fxload",), 1, cold=True, memory_bytes=1 << 30
    )
    with pytest.raises(CapacityError, match="do not fit"):
        compare_loaders(plan)
