"""Stand-in device runtimes for the tests of platforms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.simulators import simulator

if TYPE_CHECKING:
    from tests.support.simulators import Simulator


@pytest.fixture(scope="session")
def acl() -> Simulator:
    """Ascend's runtime over host memory; carries the real torch_npu."""
    return simulator("acl")


@pytest.fixture(scope="session")
def hip() -> Simulator:
    """ROCm's runtime over host memory."""
    return simulator("hip")


@pytest.fixture(scope="session")
def cuda() -> Simulator:
    """CUDA's runtime over host memory."""
    return simulator("cuda")


@pytest.fixture(params=["hip", "cuda", "acl"])
def standin(request: pytest.FixtureRequest) -> Simulator:
    """Each of the stand-ins: the test runs once on each."""
    return simulator(request.param)
