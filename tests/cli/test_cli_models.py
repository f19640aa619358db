"""inspect, warm, cache and doctor on real checkpoints."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fxload.cli.app import main

if TYPE_CHECKING:
    from tests.conftest import CheckpointFactory, SlowFsFactory
    from tests.support.checkpoints import Checkpoint
    from tests.support.isolation import Isolation

MODULE = [sys.executable, "-m", "fxload.cli.app"]
OLD_NS = 10**18  # digests of files that have just changed are not remembered


@pytest.fixture
def checkpoint(tmp_path: Path, make_checkpoint: CheckpointFactory) -> Checkpoint:
    return make_checkpoint(tmp_path / "model")


def json_of(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert main([*arguments, "--json"]) == code
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out)


def test_inspect_tells_what_the_files_hold(
    checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    told = json_of(capsys, "inspect", str(checkpoint.path))
    assert told["fingerprint"] is None
    assert told["size_bytes"] == checkpoint.size_bytes
    assert told["payload_bytes"] == sum(each.nbytes for each in checkpoint.tensors.values())
    assert [shard["file"] for shard in told["shards"]] == [file.name for file in checkpoint.files]
    assert {tensor["name"]: tuple(tensor["shape"]) for tensor in told["tensors"]} == {
        name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()
    }
    assert [row["dtype"] for row in told["dtypes"]] == ["BF16", "F32"]
    assert told["dtypes"][1] == {"dtype": "F32", "tensors": 3, "size_bytes": 3 * 37 * 4}


def test_the_fingerprint_is_computed_and_then_remembered(
    checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in checkpoint.files:
        os.utime(file, ns=(OLD_NS, OLD_NS))
    time.sleep(2.1)  # a change within 2 seconds may hide behind equal times
    computed = json_of(capsys, "inspect", str(checkpoint.path), "--digest")["fingerprint"]
    assert computed.startswith("fx1-")
    assert json_of(capsys, "inspect", str(checkpoint.path))["fingerprint"] == computed
    with checkpoint.files[1].open("r+b") as opened:
        opened.seek(-1, os.SEEK_END)
        last = opened.read(1)
        opened.seek(-1, os.SEEK_END)
        opened.write(bytes([last[0] ^ 1]))
    os.utime(checkpoint.files[1], ns=(OLD_NS, OLD_NS))
    assert json_of(capsys, "inspect", str(checkpoint.path))["fingerprint"] is None
    changed = json_of(capsys, "inspect", str(checkpoint.path), "--digest")["fingerprint"]
    assert changed != computed


def test_inspect_draws_sorted_tables(
    checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(checkpoint.path), "--sort", "name", "--limit", "2"]) == 0
    out = capsys.readouterr().out
    assert "15 tensors" in out
    assert "… and 13 more; --limit 0 shows all" in out
    assert main(["inspect", str(checkpoint.path), "--sort", "size", "--limit", "0"]) == 0
    rows = capsys.readouterr().out.splitlines()
    names = [row.split()[0] for row in rows if row.startswith("layers.")]
    assert len(names) == 15
    assert all(name.endswith("bias") for name in names[-3:])


def test_a_model_is_warmed_listed_verified_and_removed(
    checkpoint: Checkpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "store")
    staged = json_of(capsys, "warm", str(checkpoint.path), "--to", store)
    assert staged["reused"] is False
    assert staged["fingerprint"].startswith("fx1-")
    again = json_of(capsys, "warm", str(checkpoint.path), "--to", store)
    assert again["reused"] is True
    assert again["path"] == staged["path"]
    told = json_of(capsys, "inspect", staged["path"], "--digest")
    assert told["fingerprint"] == staged["fingerprint"]

    (entry,) = json_of(capsys, "cache", "ls", "--to", store)["entries"]
    assert entry["digest"] == staged["fingerprint"]
    assert main(["cache", "ls", "--to", store]) == 0
    assert entry["name"] in capsys.readouterr().out

    good = json_of(capsys, "cache", "verify", "--to", store)
    assert good["ok"] is True
    removed = json_of(capsys, "cache", "rm", entry["name"], "--to", store)
    assert [each["name"] for each in removed["removed"]] == [entry["name"]]
    assert json_of(capsys, "cache", "ls", "--to", store)["entries"] == []
    assert main(["cache", "ls", "--to", store]) == 0
    assert "nothing is staged" in capsys.readouterr().out


def test_a_damaged_copy_fails_verification(
    checkpoint: Checkpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "store")
    staged = json_of(capsys, "warm", str(checkpoint.path), "--to", store)
    file = Path(staged["path"]) / checkpoint.files[0].name
    file.chmod(0o644)
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert main(["cache", "verify", "--to", store, "--json"]) == 1
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert told["ok"] is False
    assert told["entries"][0]["faults"][0]["name"] == file.name
    assert told["error"]["exit_code"] == 1
    assert err.splitlines()[-1] == f"fxload: {told['error']['message']}"


def test_an_unknown_entry_is_one_line(
    checkpoint: Checkpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "store")
    json_of(capsys, "warm", str(checkpoint.path), "--to", store)
    assert main(["cache", "rm", "nothing-like-this", "--to", store]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("fxload: nothing staged is named")


def test_doctor_reads_what_a_load_would_read(
    checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    told = json_of(capsys, "doctor", str(checkpoint.path))
    assert told["ok"] is True
    sections = {section["title"]: section for section in told["sections"]}
    assert set(sections) == {"host", "I/O engines", "accelerators", "storage", "reading"}
    reading = sections["reading"]["data"]
    assert [file["path"] for file in reading["files"]] == [str(each) for each in checkpoint.files]
    assert reading["chosen"]["engine"] in ("io_uring", "pread")
    assert reading["chosen"]["request_bytes"] > 0
    assert reading["chosen"]["depth"] > 0
    chosen = next(each for each in sections["reading"]["findings"] if each["name"] == "chosen")
    assert chosen["reason"]
    assert main(["doctor", str(checkpoint.path)]) == 0
    assert "direct reads" in capsys.readouterr().out


def test_doctor_fails_where_nothing_can_be_read(
    make_checkpoint: CheckpointFactory,
    slowfs: SlowFsFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mounted = slowfs()
    make_checkpoint(mounted.root / "model", shards=1)
    with mounted.faults.during("read EIO 1"):
        told = json_of(capsys, "doctor", str(mounted.mount / "model"), code=1)
    assert told["ok"] is False
    assert told["counts"]["fail"] == 1
    assert told["error"]["exit_code"] == 1
    assert [section["title"] for section in told["sections"]][-1] == "reading"


def test_doctor_says_that_a_fuse_mount_has_no_device(
    make_checkpoint: CheckpointFactory,
    slowfs: SlowFsFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mounted = slowfs()
    make_checkpoint(mounted.root / "model", shards=1)
    told = json_of(capsys, "doctor", str(mounted.mount / "model"))
    storage = next(each for each in told["sections"] if each["title"] == "storage")
    assert storage["data"]["mount"]["mount_point"] == str(mounted.mount)
    assert "FUSE" in storage["data"]["no_devices_because"]


def in_terminal(arguments: list[str], **env: str) -> tuple[int, str]:
    """Run the command with a terminal for stdout and stderr; its exit code and all it wrote."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    with subprocess.Popen(
        [*MODULE, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm-256color", **env},
    ) as process:
        os.close(follower)
        seen = b""
        try:
            while True:
                ready, _, _ = select.select([leader], [], [], 60)
                assert ready, "the command says nothing any more"
                part = os.read(leader, 65536)
                if not part:
                    break
                seen += part
        except OSError:
            pass  # the terminal has been closed at its other end
        finally:
            os.close(leader)
        return process.wait(60), seen.decode(errors="replace")


@pytest.fixture
def slow_model(slowfs: SlowFsFactory, make_checkpoint: CheckpointFactory) -> Path:
    mounted = slowfs(mb_per_s=40)
    make_checkpoint(mounted.root / "model", shards=2, tensors=6, tensor_bytes=2 << 20)
    return mounted.mount / "model"


def test_a_terminal_shows_a_bar_with_rate_and_time_left(slow_model: Path) -> None:
    code, seen = in_terminal(["inspect", str(slow_model), "--digest", "--limit", "1"])
    assert code == 0
    assert "MB/s" in seen
    assert "━" in seen
    assert "0:00:0" in seen
    assert "\x1b[" in seen


def test_no_color_keeps_the_bar_and_drops_the_colours(slow_model: Path) -> None:
    code, seen = in_terminal(["inspect", str(slow_model), "--digest", "--limit", "1"], NO_COLOR="1")
    assert code == 0
    assert "MB/s" in seen
    for colour in ("\x1b[3", "\x1b[9", "\x1b[38;"):
        assert colour not in seen.replace("\x1b[?", "")


def test_a_dumb_terminal_gets_plain_lines(slow_model: Path) -> None:
    code, seen = in_terminal(["inspect", str(slow_model), "--digest", "--limit", "1"], TERM="dumb")
    assert code == 0
    assert "digest: " in seen
    assert "\x1b" not in seen


def test_elsewhere_progress_goes_to_stderr_as_lines(slow_model: Path) -> None:
    done = subprocess.run(
        [*MODULE, "inspect", str(slow_model), "--digest", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["fingerprint"]
    assert done.stderr.splitlines()[-1].startswith("digest: ")
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("stop", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_signal_stops_the_work_with_one_line(
    slowfs: SlowFsFactory,
    make_checkpoint: CheckpointFactory,
    stop: signal.Signals,
    code: int,
    word: str,
) -> None:
    mounted = slowfs(mb_per_s=40)
    make_checkpoint(mounted.root / "model", shards=2, tensors=4, tensor_bytes=10 << 20)
    with subprocess.Popen(
        [*MODULE, "inspect", str(mounted.mount / "model"), "--digest", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        # The digest has begun when more than the headers has crossed the mount.
        deadline = time.monotonic() + 30
        while mounted.counters()["read_bytes"] < 1 << 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(stop)
        out, err = process.communicate(timeout=30)
    assert process.returncode == code, out + err
    assert out.count("\n") == 1, out + err
    assert json.loads(out)["error"]["exit_code"] == code
    assert word in err.splitlines()[-1]
    assert "Traceback" not in err


@pytest.mark.parametrize("command", ["doctor", "inspect", "warm"])
def test_a_folder_of_another_user_is_one_line(
    unprivileged: Isolation, public_folder: Path, command: str, make_checkpoint: CheckpointFactory
) -> None:
    model = make_checkpoint(public_folder / "secret", shards=1).path
    model.chmod(0o700)
    assert unprivileged.home is not None
    config = {"XDG_CONFIG_HOME": str(unprivileged.home / ".config")}
    user = unprivileged.but(env=config)
    done = user.run(*MODULE, command, model, "--json", check=False)
    assert done.returncode == 1, done.stderr
    error = json.loads(done.stdout)["error"]
    assert str(model) in error["message"]
    assert "ermission" in error["message"]
    assert done.stderr == f"fxload: {error['message']}\n"
