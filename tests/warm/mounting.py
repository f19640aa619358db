"""Mounts that a test makes and unmakes itself."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def mount(folder: Path, *arguments: str) -> None:
    subprocess.run(["mount", *arguments, str(folder)], check=True)


def unmount(folder: Path) -> None:
    """The kernel closes the files of an io_uring a moment after their process has let go."""
    for _ in range(250):
        done = subprocess.run(["umount", str(folder)], capture_output=True, text=True)
        if done.returncode == 0:
            return
        time.sleep(0.02)
    raise AssertionError(f"a file was left open: {done.stderr}")
