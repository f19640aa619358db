"""Loads on stand-in runtimes: raw memory on HIP, CUDA and ACL, torch's on the real torch_npu."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.native_build import CHECKOUT
from tests.support.simulators import simulator

if TYPE_CHECKING:
    from pathlib import Path

    from tests.loader.conftest import CheckpointFactory
    from tests.support.isolation import Isolation
    from tests.support.simulators import Run, Simulator

pytestmark = pytest.mark.platforms

MIB = 1 << 20
COPIES = {
    "hip": ["hipMemcpyAsync"],
    "cuda": ["cudaMemcpyAsync"],
    "acl": ["aclrtMemcpyAsync", "aclrtMemcpyBatchAsync"],
}
ALIGN = {"hip": 256, "cuda": 256, "acl": 512, "npu": 512}


class Standin:
    """A stand-in runtime, and how its device is loaded to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kind = "acl" if name == "npu" else name
        self.raw = name != "npu"
        self.device = "npu:0" if self.kind == "acl" else "cuda:0"
        self.simulator: Simulator = simulator(self.kind)

    def run(
        self, function: str, path: Path, *, extra: str = "", before: str = "", **controls: Any
    ) -> Run:
        """Call a function of children.py in a process of its own; fails if that one does."""
        return self.python(
            before + f"from tests.devices import children\n"
            f"children.{function}(runtime, {str(path)!r}, {self.device!r}, raw={self.raw}{extra})",
            **controls,
        )

    def python(self, code: str, **controls: Any) -> Run:
        return self.simulator.python(code, torch_npu=not self.raw, **controls)


@pytest.fixture(params=["hip", "cuda", "acl", "npu"])
def standin(request: pytest.FixtureRequest) -> Standin:
    return Standin(request.param)


@pytest.fixture
def model(make_checkpoint: CheckpointFactory) -> Path:
    """108 MiB in three shards: more than three times the least ring."""
    return make_checkpoint(shards=3, tensors=12, tensor_bytes=3 * MIB).path


def test_every_byte_arrives_whatever_the_plan(standin: Standin) -> None:
    run = standin.python(
        "from tests.devices.properties import check_random_loads\n"
        f"check_random_loads({standin.device!r}, raw={standin.raw}, examples=25,"
        f" align={ALIGN[standin.name]})",
        poison=1,
        jitter_us=500,
    )
    assert run.report["violations"] == []
    assert run.report["copies_h2d"] > 10


def test_slots_and_windows_are_recycled_only_when_they_may(standin: Standin, model: Path) -> None:
    run = standin.run("overlaps_and_recycles", model)
    assert run.report["violations"] == []
    assert run.report["copies_d2d"] > 0
    # Torch pins nothing here, and neither do we beyond the ring.
    assert run.report["registered_bytes_peak"] == 32 * MIB


def test_a_copy_that_fails_is_told_and_the_next_load_works(standin: Standin, model: Path) -> None:
    for function in (*COPIES[standin.kind], "copy"):
        run = standin.run("a_copy_that_fails", model, extra=f", function={function!r}")
        assert run.report["violations"] == []


def test_a_full_device_is_told_with_what_is_free(standin: Standin, model: Path) -> None:
    run = standin.run("no_device_memory", model, device_memory=100 * MIB)
    (line,) = [line for line in run.stdout.splitlines() if "device_memory_budget" in line]
    assert str(100 * MIB) in line


def test_a_device_that_hangs_is_given_up_and_its_memory_kept(standin: Standin, model: Path) -> None:
    run = standin.run("a_device_that_hangs", model)
    assert "has not finished a copy for 1 s" in run.stdout


def test_a_forked_process_says_that_it_cannot_go_on(standin: Standin, model: Path) -> None:
    standin.run("a_fork_after_use", model)


def test_an_interrupt_ends_a_load(standin: Standin, model: Path) -> None:
    standin.run("an_interrupt", model)


def test_memory_that_cannot_be_pinned_is_told_and_used_all_the_same(
    standin: Standin, model: Path
) -> None:
    own = {"hip": "hipHostMalloc", "cuda": "cudaHostAlloc", "acl": "aclrtMallocHost"}
    run = standin.run(
        "memory_that_cannot_be_pinned",
        model,
        refuse_registration=507_899,
        fail=f"{own[standin.kind]}:1:2",
    )
    assert "507899" in run.stdout


def test_too_little_lockable_memory_is_named(
    model: Path, unprivileged: Isolation, public_folder: Path
) -> None:
    """As in a container: the limit of locked memory is far below the ring."""
    standin = Standin("hip")
    folder = public_folder / "model"
    shutil.copytree(model, folder)
    code = (
        "from tests.support.simulator_controls import Controls\n"
        "from tests.devices import children\n"
        f"runtime = Controls({str(standin.simulator.library)!r})\n"
        "runtime.fail('hipHostMalloc', 1, 2)\n"
        f"children.memory_that_cannot_be_pinned(runtime, {str(folder)!r}, 'cuda:0', raw=True)"
    )
    env = {"LD_LIBRARY_PATH": str(standin.simulator.folder), "PYTHONPATH": str(CHECKOUT)}
    limited = unprivileged.but(limits={"memlock": 8 * MIB}, env=env)
    done = subprocess.run(
        limited.command(sys.executable, "-c", code),
        env=limited.environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "RLIMIT_MEMLOCK" in done.stdout


def test_two_loads_at_once_on_one_device(standin: Standin, model: Path) -> None:
    standin.run("two_at_once", model)


@pytest.mark.parametrize("name", ["hip", "npu"])
def test_host_memory_grows_by_the_ring_whatever_the_model(
    make_checkpoint: CheckpointFactory, name: str
) -> None:
    checkpoint = make_checkpoint(shards=3, tensors=24, tensor_bytes=4 * MIB)
    Standin(name).run("host_memory_stays_small", checkpoint.path, touched_memory=1 << 30)


@pytest.mark.parametrize("name", ["hip", "cuda"])
def test_copies_wait_for_the_default_stream_too(model: Path, name: str) -> None:
    Standin(name).run("the_default_stream_has_handle_0", model)


@pytest.mark.parametrize("queue", ["0", "1"])
def test_copies_wait_for_what_torch_s_stream_still_reads(model: Path, queue: str) -> None:
    """With torch_npu's own queue of calls, and without it."""
    run = Standin("npu").run("torch_s_stream_comes_first", model, before=queue_of(queue))
    assert run.report["copies_d2h"] > 0


def queue_of(enabled: str) -> str:
    return f"import os\nos.environ['TASK_QUEUE_ENABLE'] = {enabled!r}\n"


@pytest.mark.parametrize(
    "function",
    [
        "a_budget_is_kept_by_torch_s_allocator",
        "tensors_are_nobody_s_views",
        "a_module_on_the_device",
    ],
)
def test_torch_s_memory(model: Path, function: str) -> None:
    run = Standin("npu").run(function, model)
    assert run.report["violations"] == []
