"""Processes that run as another user, with other limits, or with system calls refused."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SOURCE = Path(__file__).with_name("isolate.c")
NOBODY = 65534
CHECKOUT = Path(__file__).parents[2]

# What an older kernel, or a strict container, refuses all at once.
OLD_KERNEL = ("io_uring", "cachestat", "dioalign", "populate")


@dataclass(frozen=True)
class Isolation:
    """How to run a process; tests/support/isolate.c describes the choices.

    Attributes:
        program: the isolate binary.
        refuse: names of what the kernel refuses.
        limits: resource limits by name ("memlock", "as", "nofile", "nproc", "fsize").
        uid: the user and group to run as; None keeps them.
        env: variables to add to, or to replace in, the environment.
        home: HOME of the process, readable and writable for `uid`.
    """

    program: Path
    refuse: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    uid: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    home: Path | None = None

    def but(
        self,
        *,
        refuse: Sequence[str] | None = None,
        limits: Mapping[str, int] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Isolation:
        """The same with some choices replaced."""
        return dataclasses.replace(
            self,
            refuse=self.refuse if refuse is None else tuple(refuse),
            limits=self.limits if limits is None else limits,
            env=self.env if env is None else env,
        )

    def command(self, *arguments: str | os.PathLike[str]) -> list[str]:
        """The command line that runs `arguments` in isolation."""
        line = [str(self.program)]
        for name in self.refuse:
            line += ["--refuse", name]
        for name, size in self.limits.items():
            line += ["--limit", f"{name}={size}"]
        if self.uid is not None:
            line += ["--uid", str(self.uid)]
            # The interpreter may lie in a folder that is root's own.
            for path in dict.fromkeys((sys.prefix, sys.base_prefix, str(CHECKOUT))):
                line += ["--see", path]
        return [*line, "--", *(os.fspath(argument) for argument in arguments)]

    def environment(self) -> dict[str, str]:
        added = dict(self.env)
        if self.home is not None:
            added |= {
                "HOME": str(self.home),
                "XDG_CACHE_HOME": str(self.home / ".cache"),
                "XDG_CONFIG_HOME": str(self.home / ".config"),
            }
        return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **added}

    def run(
        self, *arguments: str | os.PathLike[str], timeout_s: float = 120.0, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command and return what it printed; `check` fails with all of it."""
        done = subprocess.run(
            self.command(*arguments),
            env=self.environment(),
            cwd=self.home or CHECKOUT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if check and done.returncode:
            raise AssertionError(
                f"{' '.join(self.command(*arguments))}\nexited {done.returncode}\n"
                f"{done.stdout}\n{done.stderr}"
            )
        return done

    def python(
        self,
        code: str,
        *arguments: str | os.PathLike[str],
        timeout_s: float = 120.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a Python snippet with this interpreter; `arguments` are its sys.argv[1:]."""
        return self.run(sys.executable, "-c", code, *arguments, timeout_s=timeout_s, check=check)
