"""bench load to devices: on stand-in runtimes, through the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from fxload._errors import UnsupportedError
from fxload.bench.device import need_device
from fxload.bench.peers import Job
from fxload.cli.app import main
from tests.support.simulators import simulator

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import CheckpointFactory
    from tests.support.checkpoints import Checkpoint

pytestmark = pytest.mark.platforms

MIB = 1 << 20


@pytest.fixture
def checkpoint(tmp_path: Path, make_checkpoint: CheckpointFactory) -> Checkpoint:
    return make_checkpoint(tmp_path / "model", shards=2, tensors=6, tensor_bytes=4 * MIB)


def bench(kind: str, *arguments: str, torch_npu: bool = False) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "fxload.cli", "bench", "load", *arguments, "--json"],
        env=simulator(kind).environment(torch_npu=torch_npu),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout[done.stdout.index("{") :])


def check_pipeline(pipeline: dict[str, Any], payload_bytes: int) -> None:
    for name in ("read_s", "copy_s", "overlap_s"):
        assert pipeline[name]["count"] == 1
    assert 0 <= pipeline["overlap_s"]["median"] <= pipeline["copy_s"]["median"]
    assert 0 <= pipeline["realigned_bytes"] <= payload_bytes
    assert pipeline["ring_bytes"] == 32 * MIB
    assert pipeline["pinned"] is True


@pytest.mark.parametrize("kind", ["hip", "cuda"])
def test_raw_memory_of_a_runtime_that_this_torch_lacks(checkpoint: Checkpoint, kind: str) -> None:
    told = bench(
        kind,
        *[str(checkpoint.path), "--device", "cuda:0", "--raw", "--ring", "32MiB"],
        *["--vs", "safetensors", "--rounds", "1"],
    )
    assert (told["options"]["device"], told["options"]["raw"]) == ("cuda:0", True)
    own, peer = told["loaders"]
    assert own["status"] == "ok", own["reason"]
    assert own["destination"] == "cuda:0, of its runtime"
    check_pipeline(own["pipeline"], told["model"]["payload_bytes"])
    assert own["pipeline"]["platform"] == {"hip": "rocm", "cuda": "cuda"}[kind]
    assert peer["status"] == "unusable"
    assert "--raw is memory without torch" in peer["reason"]
    # The bytes are those that a load into host memory finds.
    assert main_content(checkpoint) == own["content_digest"]


def main_content(checkpoint: Checkpoint) -> str:
    from safetensors.torch import load_file

    from fxload.bench.worker import content_digest

    tensors: dict[str, Any] = {}
    for file in checkpoint.files:
        tensors |= load_file(file)
    return content_digest(tensors)


def test_torch_s_memory_beside_peers_that_can_and_cannot(checkpoint: Checkpoint) -> None:
    told = bench(
        "acl",
        *[str(checkpoint.path), "--device", "npu", "--ring", "32MiB", "--rounds", "1"],
        *["--vs", "safetensors,runai,fastsafetensors,instanttensor", "--no-cold"],
        torch_npu=True,
    )
    assert told["options"]["device"] == "npu:0"
    loaders = {loader["name"]: loader for loader in told["loaders"]}
    own = loaders.pop("fxload")
    assert own["status"] == "ok", own["reason"]
    assert own["destination"] == "npu:0, of torch"
    check_pipeline(own["pipeline"], told["model"]["payload_bytes"])
    assert loaders["safetensors"]["status"] == "ok", loaders["safetensors"]["reason"]
    for name in ("safetensors", "runai"):
        if loaders[name]["status"] == "ok":
            assert loaders[name]["content_digest"] == own["content_digest"]
            assert loaders[name]["pipeline"] is None
    for name in ("fastsafetensors", "instanttensor"):
        assert loaders[name]["status"] in ("unusable", "missing")
        assert loaders[name]["reason"]


def test_the_table_tells_where_the_time_went(
    checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--device", "host", "--raw", "--rounds", "1", "--no-cold", "--vs", ""]
    assert main(["bench", "load", str(checkpoint.path), *arguments]) == 0
    text = capsys.readouterr().out
    assert "device   host:0, its runtime's own memory" in text
    assert "fxload: reads " in text
    assert "realigned; ring of " in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--raw"], "add --device"),
        (["--ring", "64MiB"], "add --device"),
        (["--device", "cuda:0", "--prefault"], "--prefault"),
        (["--device", "cuda:zero"], "cuda:zero"),
        (["--device", "cpu:0", "--raw"], "write cuda:N or npu:N"),
        (["--device", "cuda:0", "--ring", "much"], "--ring"),
    ],
)
def test_options_that_make_no_sense(
    checkpoint: Checkpoint,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    assert main(["bench", "load", str(checkpoint.path), *arguments, "--json"]) == 2
    assert said in json.dumps(json.loads(capsys.readouterr().out)["error"])


def test_a_device_that_is_not_there_fails_the_command_with_its_reason(
    checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--device", "cuda:0", "--rounds", "1", "--no-cold", "--vs", "safetensors"]
    assert main(["bench", "load", str(checkpoint.path), *arguments, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert "built without CUDA and ROCm" in told["error"]["message"]
    for loader in told["loaders"]:
        assert loader["status"] == "unusable"
        assert "built without CUDA and ROCm" in loader["reason"]


def test_a_peer_is_asked_only_for_what_it_can() -> None:
    job = Job("fastsafetensors", "/m", (), 1, device="npu:0")
    with pytest.raises(UnsupportedError, match="does not load to npu:0, but to cpu and cuda"):
        need_device(job, ("cpu", "cuda"))
    need_device(Job("fastsafetensors", "/m", (), 1), ("cpu", "cuda"))
