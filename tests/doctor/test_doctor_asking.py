"""Children that crash, hang, or say nonsense: each is an answer, and none is waited for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fxload.doctor.asking import Answer, ask

if TYPE_CHECKING:
    from collections.abc import Callable

FOREVER_S = 3600.0


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Answer]:
    """Asks a module with this source."""

    def go(source: str, *arguments: str, timeout_s: float = 60.0) -> Answer:
        (tmp_path / "asked.py").write_text(source)
        return ask("asked", arguments, timeout_s, env={"PYTHONPATH": str(tmp_path)})

    return go


def test_facts_of_all_lines_are_put_together(run: Callable[..., Answer]) -> None:
    answer = run('import sys; print(\'{"a": 1, "b": 2}\'); print(\'{"b": %s}\' % sys.argv[1])', "3")
    assert answer == Answer({"a": 1, "b": 3}, "")


def test_a_crash_is_named_and_keeps_what_was_told(run: Callable[..., Answer]) -> None:
    answer = run(
        "import os, signal\n"
        "print('{\"told\": true}', flush=True)\n"
        "print('{\"cut\": ', end='', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    assert answer == Answer({"told": True}, "ended the process that tried it with SIGSEGV")


def test_an_error_exit_keeps_its_last_line(run: Callable[..., Answer]) -> None:
    answer = run("import sys; sys.exit('first\\nthe driver is too old\\n')")
    assert answer.failure == "exited with 1: the driver is too old"


def test_no_answer_ends_with_the_deadline_and_the_whole_session(
    run: Callable[..., Answer], tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    source = (
        "import os, pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])\n"
        f"pathlib.Path({str(pids)!r}).write_text(f'{{os.getpid()}} {{child.pid}}')\n"
        "print('{\"told\": 1}', flush=True)\n"
        f"time.sleep({FOREVER_S})\n"
    )
    answer = run(source, timeout_s=5.0)
    assert answer == Answer({"told": 1}, "gave no answer within 5 s")
    for pid in map(int, pids.read_text().split()):
        assert not runs(pid)


def runs(pid: int) -> bool:
    """Whether the process is there and no zombie: whoever adopts a grandchild reaps it later."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")
def test_a_process_that_may_not_be_signalled_is_left_behind(
    run: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fxload.doctor.asking._GIVEN_UP_S", 0.1)
    left: list[int] = []

    def refuse(pid: int, signal: int) -> None:
        left.append(pid)
        raise PermissionError

    kill = os.killpg
    monkeypatch.setattr(os, "killpg", refuse)
    answer = run("import time; time.sleep(3600)", timeout_s=0.5)
    assert answer.failure.startswith("gave no answer")
    (pid,) = left
    assert runs(pid)
    kill(pid, 9)
    os.waitpid(pid, 0)
