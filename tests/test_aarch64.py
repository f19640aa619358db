"""The core on 64-bit Arm, with pages of 64 KiB: cross-compiled, and run in an emulator."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import need_program

CHECKOUT = Path(__file__).parents[1]


@pytest.mark.platforms
@pytest.mark.timeout(900)
def test_the_core_passes_its_tests_on_aarch64() -> None:
    if platform.machine() == "aarch64":
        pytest.skip("this machine is aarch64: every test is one on aarch64")
    need_program("aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu")
    need_program("qemu-aarch64", "qemu-user")
    done = subprocess.run(
        [CHECKOUT / "scripts/check_aarch64", "--quick"],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "Status: SUCCESS!" in done.stdout
