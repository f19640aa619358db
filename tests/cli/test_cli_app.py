from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from fxload.cli.app import app, main

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import CheckpointFactory

COMMANDS = (
    ["doctor"],
    ["inspect"],
    ["warm"],
    ["cache", "ls"],
    ["cache", "rm"],
    ["cache", "verify"],
    ["bench", "load"],
    ["bench", "storage"],
)
MODULE = [sys.executable, "-m", "fxload.cli.app"]


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MODULE, *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        env={**os.environ, **env},
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_json(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert "--json" in result.output


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from fxload.cli.app import main; code = main(['--help']);"
        "heavy = {'torch', 'rich', 'numpy', 'asyncio', 'sqlite3', 'matplotlib', 'fxload._native'};"
        "sys.exit(code or ','.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    for command in ("doctor", "inspect", "warm", "cache", "bench"):
        assert command in done.stdout


def test_the_version_is_the_installed_one(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import version

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fxload {version('fxload')}\n"


@pytest.mark.parametrize("group", [[], ["cache"], ["bench"]])
def test_no_command_is_bad_usage_and_shows_the_commands(
    group: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(group) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Commands:" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["inspect"],
        ["inspect", "x", "--nonsense"],
        ["inspect", "x", "--limit", "many"],
        ["inspect", "x", "--sort", "colour"],
        ["doctor", "a", "b"],
        ["warm", "x", "--limit", "lots"],
        ["warm", "x", "--to", ""],
        ["warm", "x", "--engine", "foo"],
        ["cache", "ls", "--to", ""],
        ["cache", "rm"],
        ["bench", "load", "x", "--rounds", "0"],
        ["bench", "load", "x", "--engine", "foo"],
        ["bench", "storage", ".", "--engine", "foo"],
        ["bench", "storage", ".", "--requests", "5000"],
        ["bench", "storage", ".", "--depths", "many"],
        ["bench", "storage", ".", "--make", "1"],
        ["bench", "storage", ".", "--plot", "picture.txt"],
    ],
)
def test_bad_usage_is_one_line_and_exit_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("fxload: ")
    assert main([*arguments, "--json"]) == 2
    out, err = capsys.readouterr()
    error = json.loads(out)["error"]
    assert error["exit_code"] == 2
    assert error["kind"] == "usage"
    assert err == f"fxload: {error['message']}\n"


@pytest.mark.parametrize(
    "command", [["inspect"], ["doctor"], ["warm"], ["bench", "load"], ["bench", "storage"]]
)
def test_a_missing_model_is_one_line_and_exit_1(command: list[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "no such model")
    done = run(*command, missing, "--json")
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert error["exit_code"] == 1
    assert missing in error["message"]
    assert done.stderr == f"fxload: {error['message']}\n"


def test_a_broken_file_names_path_and_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"\xff" * 100)
    assert main(["inspect", str(file), "--json"]) == 1
    out, err = capsys.readouterr()
    error = json.loads(out)["error"]
    assert error["kind"] == "checkpoint"
    assert error["path"] == str(file)
    assert error["rule"]
    assert err == f"fxload: {error['message']}\n"


def test_a_surprise_is_one_line_that_tells_how_to_see_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import fxload.doctor

    def broken(*_: object) -> None:
        raise RuntimeError("something\nodd")

    monkeypatch.setattr(fxload.doctor, "examine", broken)
    monkeypatch.delenv("FXLOAD_DEBUG", raising=False)
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err == (
        "fxload: unexpected RuntimeError: something odd; "
        "set FXLOAD_DEBUG=1 for the traceback and report it\n"
    )
    monkeypatch.setenv("FXLOAD_DEBUG", "1")
    assert main(["doctor"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (PermissionError(13, "Permission denied", "/secret"), 1, "/secret: Permission denied; run"),
        (OSError(5, "Input/output error"), 1, "Input/output error"),
        (ModuleNotFoundError("No module named 'x'", name="x"), 1, "the package 'x' is missing"),
    ],
)
def test_other_failures_are_one_line_too(
    error: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import fxload.doctor

    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(fxload.doctor, "examine", broken)
    assert main(["doctor", "--json"]) == code
    out, err = capsys.readouterr()
    assert said in err
    assert err.count("\n") == 1
    assert json.loads(out)["error"]["exit_code"] == code


def test_a_reader_that_goes_away_is_no_traceback(
    tmp_path: Path, make_checkpoint: CheckpointFactory
) -> None:
    model = make_checkpoint(tmp_path / "m", shards=1, tensors=2000, tensor_bytes=64).path
    line = f"{' '.join(MODULE)} inspect {model} --limit 0 | head -n 1"
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=60, env=dict(os.environ)
    )
    assert done.stdout.startswith("model ")
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.parametrize("command", ["cache ls", "cache ls --json", "inspect /none --json"])
@pytest.mark.parametrize(
    ("stdout", "said"), [(">&-", "closed"), (">/dev/full", "No space left on device")]
)
def test_a_stdout_that_cannot_be_written_is_one_line(
    command: str, stdout: str, said: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        ["bash", "-c", f"exec {' '.join(MODULE)} {command} {stdout}"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
    )
    assert done.returncode == 1
    assert done.stderr.startswith("fxload: ")
    assert done.stderr.count("\n") == 1
    # What failed before the stream did is the one thing to tell.
    if command.startswith("inspect") and stdout == ">/dev/full":
        assert "/none" in done.stderr
    else:
        assert "standard output" in done.stderr
        assert said in done.stderr


def test_a_broken_configuration_is_told_by_the_doctor_too(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("nonsense = [")
    done = run("doctor", "--json", FXLOAD_CONFIG=str(config))
    assert done.returncode == 2
    assert str(config) in done.stderr
    assert done.stderr.count("\n") == 1
    assert json.loads(done.stdout)["error"]["kind"] == "usage"


def test_no_command_of_bench_has_its_help_cut(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--help"]) == 0
    commands = capsys.readouterr().out.partition("Commands:")[2]
    assert "load" in commands
    assert "..." not in commands


def test_json_takes_a_file_in_bench_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from fxload.cli.app import _join_json_file

    assert _join_json_file(["bench", "load", "m", "--json", "a.json"]) == [
        *["bench", "load", "m", "--json-file", "a.json"]
    ]
    assert _join_json_file(["bench", "load", "--json=a.json", "m"]) == [
        *["bench", "load", "--json-file", "a.json", "m"]
    ]
    unchanged: list[list[str]] = [
        ["bench", "load", "--json", "m"],
        ["inspect", "--json", "model.safetensors.index.json"],
        ["bench", "load", "--", "--json", "a.json"],
    ]
    for arguments in unchanged:
        assert _join_json_file(arguments) == arguments
    assert main(["bench", "storage", ".", "--json", str(tmp_path / "no" / "x.json")]) == 2
    assert "no such folder" in capsys.readouterr().err
