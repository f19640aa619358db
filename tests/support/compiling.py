"""Builds the small C programs that the tests carry."""

from __future__ import annotations

import shlex
import subprocess
from typing import TYPE_CHECKING

from tests.support.needs import cannot, need_program

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def compile_c(sources: Sequence[Path], output: Path, *, library: str | None = None) -> Path:
    """Compile C sources into one program, with a pkg-config library if one is named."""
    flags: list[str] = []
    if library is not None:
        need_program("pkg-config", "pkg-config")
        asked = subprocess.run(
            ["pkg-config", "--cflags", "--libs", library], capture_output=True, text=True
        )
        if asked.returncode:
            cannot(f"pkg-config finds no {library} (Debian package lib{library}-dev)")
        flags = shlex.split(asked.stdout)
    compiler = need_program("cc", "gcc")
    names = [str(source) for source in sources]
    subprocess.run(
        [compiler, "-std=gnu17", "-O2", "-Wall", "-Wextra", *names, "-o", str(output), *flags],
        check=True,
    )
    return output
