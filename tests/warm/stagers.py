"""Processes that stage a model, to be raced and killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fxload.config import Config

# Stages sys.argv[2], prints the result and the progress it saw as JSON.
_CODE = """
import json, os, sys
from pathlib import Path
import fxload
from fxload import warm
from fxload.config import Config
settings = json.loads(sys.argv[1])
paths = {name: Path(path) for name, path in settings["paths"].items()}
config = Config(**paths, **settings["limits"])
seen = []
def tell(now):
    seen.append(tuple(now))
    if settings["marker"] and now.done_bytes > 0:
        Path(settings["marker"]).touch()
if settings["before"]:
    exec(settings["before"])
try:
    staged = warm.stage(sys.argv[2], config=config, progress=tell,
                        options=warm.CopyOptions(**settings["options"]), **settings["more"])
except fxload.FxloadError as error:
    print(json.dumps({"error": type(error).__name__, "text": str(error)}))
else:
    print(json.dumps({"path": str(staged.path), "reused": staged.reused, "kind": staged.kind,
                      "reason": staged.reason, "seen": seen}))
"""


def arguments(
    config: Config,
    model: Path,
    *,
    before: str = "",
    marker: Path | None = None,
    options: dict[str, Any] | None = None,
    more: dict[str, Any] | None = None,
) -> list[str]:
    """The arguments of a Python process that stages `model`; `before` is code to run first.

    `marker` is a file that it makes as soon as it is told of copied bytes, by it or another.
    """
    settings = {
        "paths": {
            name: str(getattr(config, name))
            for name in ("state_dir", "warm_ram_dir", "warm_disk_dir")
        },
        "limits": {
            name: getattr(config, name)
            for name in ("warm_ram_limit_bytes", "warm_disk_limit_bytes")
        },
        "before": before,
        "marker": "" if marker is None else str(marker),
        "options": options or {},
        "more": more or {},
    }
    return [_CODE, json.dumps(settings), str(model)]


class Stager:
    """A process that stages a model."""

    def __init__(self, config: Config, model: Path, **settings: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", *arguments(config, model, **settings)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )

    def result(self, timeout_s: float = 60.0) -> dict[str, Any]:
        out, _ = self.process.communicate(timeout=timeout_s)
        assert self.process.returncode == 0
        result: dict[str, Any] = json.loads(out)
        return result

    def kill(self) -> None:
        """As `kill -9` does."""
        self.process.kill()
        self.process.communicate(timeout=30)

    def __enter__(self) -> Stager:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()


def wait_for(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
