"""What tests run in a child process that finds a stand-in runtime.

Each function gets the stand-in's controls, a checkpoint's folder and the device; `raw` is whether
its memory is the runtime's own, or torch's.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxload._errors import DeadlineError, DeviceError, OutOfMemoryError, UsageError
from fxload.checkpoint import Selection
from fxload.devices.resolve import raw_target, resolve_device
from fxload.load_options import LoadOptions
from fxload.loader import open_target
from tests.devices.loading import MIB, reference_bytes
from tests.devices.properties import bytes_of

if TYPE_CHECKING:
    from fxload._errors import FxloadError
    from fxload.loader import Checkpoint
    from tests.support.simulator_controls import Controls

SMALL_RING = 1  # the least that a load takes


def open_on(path: str, device: str, *, raw: bool, **options: Any) -> Checkpoint:
    target = raw_target(device) if raw else resolve_device(device)
    return open_target(path, target, LoadOptions(**options))


def check_whole(path: str, device: str, *, raw: bool, **options: Any) -> None:
    """Load everything, compare it, and let go of it."""
    expected = reference_bytes(Path(path).glob("*.safetensors"))
    with open_on(path, device, raw=raw, **options) as opened:
        loaded: Any = dict(opened)
    assert loaded.keys() == expected.keys()
    for name, tensor in loaded.items():
        assert bytes_of(tensor) == expected[name], name


def caught(kind: type[FxloadError], path: str, device: str, *, raw: bool, **options: Any) -> str:
    """The one line of a load that has to fail."""
    try:
        with open_on(path, device, raw=raw, **options) as opened:
            kept = dict(opened)
    except kind as error:
        line = str(error)
        assert "\n" not in line
        return line
    raise AssertionError(f"{len(kept)} tensors were loaded")


def nothing_is_left(runtime: Controls, before: dict[str, Any]) -> None:
    """Everything that a load took from the runtime is back, and no rule was broken."""
    gc.collect()
    after = runtime.report()
    for name in ("live_registrations", "live_streams", "live_events"):
        assert after[name] == before[name], (name, before[name], after[name])
    assert after["violations"] == []


def overlaps_and_recycles(runtime: Controls, path: str, device: str, *, raw: bool) -> None:
    """A slow link, copies out of order between streams, a ring of an eighth of the model."""
    runtime.set(poison=1, jitter_us=2000, seed=7)
    check_whole(path, device, raw=raw, ring_bytes=SMALL_RING)
    before = runtime.report()
    check_whole(path, device, raw=raw, ring_bytes=SMALL_RING, device_memory_budget=40 * MIB)
    check_whole(path, device, raw=raw, ring_bytes=SMALL_RING, digest=True)
    nothing_is_left(runtime, before)


def a_copy_that_fails(
    runtime: Controls, path: str, device: str, *, raw: bool, function: str
) -> None:
    """The call, or the copy as it runs, answers an error: it is told, and the next load works."""
    check_whole(path, device, raw=raw)
    before = runtime.report()
    for nth in (1,) if function.endswith("BatchAsync") else (1, 3, 7):
        runtime.fail(function, nth, 507_899 if function.startswith("acl") else 700)
        line = caught(DeviceError, path, device, raw=raw, ring_bytes=SMALL_RING)
        print(line)
        if function != "copy":  # what runs on a stream that has failed cannot be told: it is kept
            nothing_is_left(runtime, before)
        check_whole(path, device, raw=raw)
    assert runtime.report()["violations"] == []


def no_device_memory(runtime: Controls, path: str, device: str, *, raw: bool) -> None:
    """The device is full in the middle of a load; a stream through it works all the same."""
    print(caught(OutOfMemoryError, path, device, raw=raw, ring_bytes=SMALL_RING))
    expected = reference_bytes(Path(path).glob("*.safetensors"))
    count = 0
    with open_on(
        path, device, raw=raw, ring_bytes=SMALL_RING, device_memory_budget=40 * MIB
    ) as opened:
        tensor: Any
        for name, tensor in opened:
            assert bytes_of(tensor) == expected[name], name
            count += 1
    assert count == len(expected)
    assert runtime.report()["violations"] == []


def a_device_that_hangs(runtime: Controls, path: str, device: str, *, raw: bool) -> None:
    """The deadline ends the wait; what the late copies write to is nobody else's until they ran."""
    check_whole(path, device, raw=raw)
    runtime.set(poison=1)
    for after in (0, 2):
        runtime.set(hang_after=after)
        started_s = time.monotonic()
        line = caught(
            DeadlineError, path, device, raw=raw, ring_bytes=SMALL_RING, stall_timeout_s=1.0
        )
        assert time.monotonic() - started_s < 60
        print(line)
        # Whoever takes memory now must not get any that a late copy still writes to.
        taken = [open_on(path, "host", raw=True, ring_bytes=SMALL_RING) for _ in range(2)]
        runtime.set(hang_after=-1)
        runtime.set(hang=0)
        for opened in taken:
            opened.close()
        check_whole(path, device, raw=raw)
    gc.collect()
    assert runtime.report()["violations"] == []


def a_fork_after_use(runtime: Controls, path: str, device: str, *, raw: bool) -> None:
    """A child can neither go on with the load nor start one, and says so; the parent goes on."""
    check_whole(path, device, raw=raw)
    expected = reference_bytes(Path(path).glob("*.safetensors"))
    with open_on(path, device, raw=raw, ring_bytes=SMALL_RING) as opened:
        # While its threads are busiest: one of them may hold any mutex of the load.
        for _ in range(30):
            child = os.fork()
            if child == 0:
                opened.close()
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        tensors: Any = iter(opened)
        first = next(tensors)
        child = os.fork()
        if child == 0:
            os._exit(_in_child(tensors, opened, path, device, raw=raw))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        loaded = dict([first, *tensors])
    for name, tensor in loaded.items():
        assert bytes_of(tensor) == expected[name], name
    assert runtime.report()["violations"] == []


def _in_child(tensors: Any, opened: Any, path: str, device: str, *, raw: bool) -> int:
    lines = []
    try:
        next(tensors)
    except UsageError as error:
        lines.append(str(error))
    try:
        open_on(path, device, raw=raw)
    except UsageError as error:
        lines.append(str(error))
    opened.close()
    good = len(lines) == 2 and all("fork" in line and "spawn" in line for line in lines)
    print(*lines, sep="\n", flush=True)
    return 7 if good else 1


def an_interrupt(runtime: Controls, path: str, device: str, *, raw: bool) -> None:
    """Ctrl-C in the middle of a load: it ends at once, and the next one works."""
    check_whole(path, device, raw=raw)
    before = runtime.report()
    runtime.set(hang=1)

    def interrupt() -> None:
        runtime.wait("queued", 1)  # a copy waits, and so does the load
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=interrupt)
    try:
        with open_on(path, device, raw=raw, ring_bytes=SMALL_RING) as opened:
            sender.start()
            dict(opened)
        raise AssertionError("the load came to its end")
    except KeyboardInterrupt:
        pass
    sender.join()
    runtime.set(hang=0)
    check_whole(path, device, raw=raw)
    nothing_is_left(runtime, before)


def two_at_once(runtime: Controls, path: str, device: str, *, raw: bool) -> None:
    """Two loads on one device, in two threads."""
    failures: list[BaseException] = []

    def load() -> None:
        try:
            check_whole(path, device, raw=raw, ring_bytes=SMALL_RING)
        except BaseException as error:  # noqa: BLE001 - told to whoever joins
            failures.append(error)

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert runtime.report()["violations"] == []


def torch_s_stream_comes_first(runtime: Controls, path: str, device: str, *, raw: bool) -> None:
    """Windows whose memory a consumer still reads from are not written to.

    The copies back lag behind: when a tensor is let go of, most of them have not run, and torch
    gives its memory to the next window. Without the wait that this is about, copies race, and the
    stand-in tells.
    """
    from fxload.devices.torch_windows import TorchMemory

    assert not raw
    runtime.set(poison=1, copy_delay_us=15_000)
    expected = reference_bytes(Path(path).glob("*.safetensors"))
    assert _copied_back(path, device) == expected
    assert runtime.report()["violations"] == []
    TorchMemory.last_user = lambda self: None  # type: ignore[method-assign,assignment,return-value]
    _copied_back(path, device)
    assert any("races with" in line for line in runtime.report()["violations"])


def _copied_back(path: str, device: str) -> dict[str, bytes]:
    """Stream through a small budget; read each tensor back on torch's stream, waiting for none."""
    import torch

    stream = torch.get_device_module("npu").Stream(device=device)
    copies = {}
    with (
        torch.get_device_module("npu").stream(stream),
        open_on(
            path, device, raw=False, ring_bytes=SMALL_RING, device_memory_budget=40 * MIB
        ) as opened,
    ):
        for name, tensor in opened:
            copies[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            copies[name].copy_(tensor, non_blocking=True)
            del tensor
    stream.synchronize()
    return {name: bytes_of(tensor) for name, tensor in copies.items()}


def a_budget_is_kept_by_torch_s_allocator(
    runtime: Controls, path: str, device: str, *, raw: bool
) -> None:
    """Windows are recycled: the allocator never holds much more than the budget."""
    import torch

    assert not raw
    npu = torch.get_device_module("npu")
    expected = reference_bytes(Path(path).glob("*.safetensors"))
    with open_on(
        path, device, raw=False, ring_bytes=SMALL_RING, device_memory_budget=48 * MIB
    ) as opened:
        for name, tensor in opened:
            assert bytes_of(tensor) == expected[name]
        stats = opened.report().stats
    assert stats["over_budget_bytes"] == 0
    assert stats["device_peak_bytes"] <= 48 * MIB
    assert npu.max_memory_allocated() <= 48 * MIB
    # What the allocator keeps for itself: it splits and rounds.
    assert npu.max_memory_reserved() <= 2 * 48 * MIB
    del tensor
    gc.collect()
    assert npu.memory_allocated() == 0


def tensors_are_nobody_s_views(runtime: Controls, path: str, device: str, *, raw: bool) -> None:
    """What is handed out: contiguous tensors of their own, that keep little else alive."""
    import torch

    assert not raw
    npu = torch.get_device_module("npu")
    kept: Any = None
    count = 0
    with open_on(path, device, raw=False, ring_bytes=SMALL_RING) as opened:
        for name, tensor in opened:
            assert str(tensor.device) == device
            assert tensor.is_contiguous()
            assert not tensor._is_view()
            assert tensor._version == 0
            assert not tensor.requires_grad
            parameter = torch.nn.Parameter(tensor)
            assert parameter.data_ptr() == tensor.data_ptr()
            count += 1
            if count == 20:
                kept = (name, tensor)
            del tensor, parameter
    gc.collect()
    assert kept[1].nbytes <= npu.memory_allocated() <= 64 * MIB + 512
    name, tensor = kept
    assert bytes_of(tensor) == reference_bytes(Path(path).glob("*.safetensors"))[name]


def a_module_on_the_device(runtime: Controls, path: str, device: str, *, raw: bool) -> None:
    """load_into follows the module to its device, and copies there, or assigns."""
    import torch
    from safetensors.torch import save_file
    from torch import nn

    import fxload

    assert not raw
    module: Any = nn.Sequential(nn.Linear(300, 200), nn.BatchNorm1d(200), nn.Linear(200, 7))
    state = {
        name: torch.rand_like(each.float()).to(each.dtype)
        for name, each in module.state_dict().items()
    }
    folder = Path(path).with_name("module")
    folder.mkdir()
    save_file(state, folder / "model.safetensors")
    module = module.to(device)
    before = runtime.report()["copies_d2d"]
    address = module[0].weight.data_ptr()
    assert fxload.load_into(module, folder) == ([], [])
    assert module[0].weight.data_ptr() == address
    assert runtime.report()["copies_d2d"] - before >= len(state)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor.cpu(), state[name]), name
    with torch.device("meta"):
        empty: Any = nn.Sequential(nn.Linear(300, 200), nn.BatchNorm1d(200), nn.Linear(200, 7))
    fxload.load_into(empty, folder, assign=True, device=device)
    for name, tensor in empty.state_dict().items():
        assert str(tensor.device) == device
        assert torch.equal(tensor.cpu(), state[name]), name


def memory_that_cannot_be_pinned(runtime: Controls, path: str, device: str, *, raw: bool) -> None:
    """No registration, and none of the runtime's own memory: slow, right, and told."""
    import logging

    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("fxload").addHandler(handler)
    expected = reference_bytes(Path(path).glob("*.safetensors"))
    with open_on(path, device, raw=raw, ring_bytes=SMALL_RING) as opened:
        loaded: Any = dict(opened)
        stats = opened.report().stats
    assert stats["pinned"] is False
    assert stats["ring_method"] == "none"
    assert told == [f"copies to {device} run unpinned: {stats['ring_reason']}"]
    print(stats["ring_reason"])
    for name, tensor in loaded.items():
        assert bytes_of(tensor) == expected[name], name


def host_memory_stays_small(runtime: Controls, path: str, device: str, *, raw: bool) -> None:
    """What a load adds to the process is the ring, and little more.

    The device's memory was touched by the stand-in before.
    """
    warm = open_on(path, device, raw=raw, selection=Selection(include=["*.bias"]))
    dict(warm)
    warm.close()
    del warm
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the imports
    before_bytes = _status_bytes("VmRSS")
    with open_on(path, device, raw=raw, ring_bytes=SMALL_RING) as opened:
        loaded = dict(opened)
        stats = opened.report().stats
    assert stats["planned_bytes"] >= 8 * stats["ring_bytes"]
    grown = _status_bytes("VmHWM") - before_bytes
    assert len(loaded) > 8
    assert grown <= stats["ring_bytes"] + 128 * MIB, grown


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10
    raise KeyError(field)


def the_default_stream_has_handle_0(
    runtime: Controls, path: str, device: str, *, raw: bool
) -> None:
    """What torch's current stream is on CUDA and ROCm, unless somebody has chosen another."""
    from fxload.devices.raw_windows import RawMemory

    assert raw
    RawMemory.last_user = lambda self: 0  # type: ignore[method-assign,assignment]
    waits = ("hipStreamWaitEvent", "cudaStreamWaitEvent")
    before = sum(runtime.report()["calls"].get(name, 0) for name in waits)
    check_whole(path, device, raw=raw, ring_bytes=SMALL_RING)
    assert sum(runtime.report()["calls"].get(name, 0) for name in waits) > before
    assert runtime.report()["violations"] == []
