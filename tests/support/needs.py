"""What a test needs of its machine, and what happens where the machine lacks it."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def cannot(reason: str) -> NoReturn:
    """Skip the test; fail it where FXLOAD_TESTS_STRICT=1 says that nothing may be lacking."""
    if os.environ.get("FXLOAD_TESTS_STRICT") == "1":
        pytest.fail(f"this machine cannot run the test: {reason}", pytrace=False)
    pytest.skip(reason)


def need_root(purpose: str) -> None:
    if os.geteuid() != 0:
        cannot(f"{purpose} needs root")


def need_program(name: str, package: str) -> str:
    """The path of a program; `package` is Debian's package that brings it."""
    # Root's tools lie in sbin, which is not on every user's path.
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    return found or cannot(f"{name} is missing (Debian package {package})")


def need_device(path: str) -> None:
    if not os.access(path, os.R_OK | os.W_OK):
        cannot(f"{path} is missing, or may not be opened")
