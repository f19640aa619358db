"""Asks a child process a question that may crash it, or never be answered."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Answer", "ask"]

_GIVEN_UP_S = 2.0


@dataclass(frozen=True)
class Answer:
    """All facts that were told, and what ended the telling ("" for a proper end)."""

    facts: Mapping[str, Any]
    failure: str


def ask(
    module: str,
    arguments: Sequence[str],
    timeout_s: float,
    *,
    env: Mapping[str, str] | None = None,
) -> Answer:
    """Run a module that prints JSON objects, one a line; the facts of all are put together.

    A child that has not ended after ``timeout_s`` is killed. One that even then does not end, since
    a driver holds it, is left behind: nothing here waits for it.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})},
        start_new_session=True,
    )
    try:
        out, err = child.communicate(timeout=timeout_s)
        failure = _failure(child.returncode, err)
    except subprocess.TimeoutExpired as waited:
        out = _text(waited.stdout)
        failure = f"gave no answer within {timeout_s:.0f} s"
    finally:
        if child.poll() is None:
            # Its whole session: a runtime may have started processes of its own.
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=_GIVEN_UP_S)
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
    facts: dict[str, Any] = {}
    for line in out.splitlines():
        with contextlib.suppress(json.JSONDecodeError):  # cut short by the end of the process
            facts |= json.loads(line)
    return Answer(facts, failure)


def _failure(code: int, err: str) -> str:
    if code == 0:
        return ""
    if code < 0:
        return f"ended the process that tried it with {signal.Signals(-code).name}"
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    return f"exited with {code}" + (f": {lines[-1]}" if lines else "")


def _text(output: bytes | str | None) -> str:
    # What an expired wait has seen so far comes as bytes, whatever was asked for.
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
