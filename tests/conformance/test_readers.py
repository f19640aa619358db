"""The core's own tests, reader conformance among them, on every kind of storage."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.native_build import build

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.isolation import Isolation

# The first of these tests may build the program.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="session")
def native_tests() -> Path:
    try:
        return build()
    except subprocess.CalledProcessError as error:
        pytest.fail(f"the native tests do not build: {error}", pytrace=False)


@pytest.mark.parametrize("engine", ["io_uring", "pread"])
def test_every_engine_conforms(
    native_tests: Path, isolation: Isolation, mount: Path, engine: str
) -> None:
    chosen = {"FXLOAD_TEST_DIR": str(mount), "FXLOAD_TEST_ENGINE": engine}
    isolation.but(env=chosen).run(native_tests)


def test_pread_conforms_where_the_kernel_has_nothing_newer(
    native_tests: Path, refuse_syscalls: Isolation, mount: Path
) -> None:
    chosen = {"FXLOAD_TEST_DIR": str(mount), "FXLOAD_TEST_ENGINE": "pread"}
    refuse_syscalls.but(env=chosen).run(native_tests)
