"""The real torch_npu on the stand-in of ACL: what fxload relies on, and what it must do without."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.simulators import Simulator

pytestmark = pytest.mark.platforms

OPENING = """
import torch

SIZE = 1 << 20
device = torch.empty(SIZE, dtype=torch.uint8, device="npu:0")
content = torch.randint(0, 256, (SIZE,), dtype=torch.uint8)
pinned = content.pin_memory()
current = torch.npu.current_stream(0)
own = torch.npu.Stream(device=0)
"""

# Each follows OPENING, with names of its own; all run in one process, since importing torch_npu
# takes seconds.
SNIPPETS = {
    "the_real_one_is_loaded": """
import torch_npu

assert torch_npu.__version__ == "2.13.0" and torch.npu.get_device_name(0) == "Ascend910B3"
""",
    "pinned_copies_are_asynchronous": """
assert pinned.is_pinned() and not content.is_pinned()
runtime.set(hang=1)
with torch.npu.stream(own):
    device.copy_(pinned, non_blocking=True)
event = own.record_event()
runtime.wait("hanging", 1)
assert not event.query()
runtime.set(hang=0)
event.synchronize()
assert event.query() and torch.equal(device.cpu(), content)
assert runtime.get("copies_h2d") == 1 and runtime.get("pageable_bytes") == SIZE  # the way back
""",
    "streams_wait_for_one_another": """
runtime.set(hang_after=0)
with torch.npu.stream(own):
    device.copy_(pinned, non_blocking=True)
current.wait_stream(own)
other = torch.zeros(SIZE, dtype=torch.uint8).pin_memory()
device.copy_(other, non_blocking=True)
runtime.wait("queued", 2)
runtime.wait("hanging", 1)
assert runtime.get("hanging") == 1
runtime.set(hang_after=-1)
torch.npu.synchronize()
assert torch.equal(device.cpu(), torch.zeros(SIZE, dtype=torch.uint8))
""",
    "recorded_memory_is_not_reused_while_its_stream_is_busy": """
window = torch.empty(64 << 20, dtype=torch.uint8, device="npu:0")
address = window.data_ptr()
source = torch.empty(64 << 20, dtype=torch.uint8).pin_memory()
runtime.set(hang=1)
with torch.npu.stream(own):
    window.copy_(source, non_blocking=True)
window.record_stream(own)
del window
kept = torch.empty(64 << 20, dtype=torch.uint8, device="npu:0")
assert kept.data_ptr() != address
runtime.set(hang=0)
own.synchronize()
again = torch.empty(64 << 20, dtype=torch.uint8, device="npu:0")
assert again.data_ptr() == address
""",
    "views_share_a_window_and_its_life": """
from torch.multiprocessing.reductions import StorageWeakRef

device.copy_(content)
part = content[512:1024]
for dtype in (
    torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32,
    torch.uint64, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
):
    typed = device[512:1024].view(dtype)
    assert typed.data_ptr() == device.data_ptr() + 512
    assert torch.equal(typed.cpu().view(torch.uint8), part)
floats = device.view(torch.float32)
strided = floats.as_strided((8, 16), (16, 1), 128)
assert torch.equal(strided.cpu().view(torch.uint8).flatten(), part)
placed = torch.empty(0, dtype=torch.float32, device="npu:0")
placed.set_(device.untyped_storage(), 128, (8, 16), (16, 1))
assert torch.equal(placed.cpu().view(torch.uint8).flatten(), part)
life = StorageWeakRef(device.untyped_storage())
del device, floats, strided, typed
assert not life.expired()
del placed
assert life.expired()
""",
    "windows_start_on_512_and_are_recycled": """
window = torch.empty(8 << 20, dtype=torch.uint8, device="npu:0")
address = window.data_ptr()
assert address % 512 == 0
del window
assert torch.empty(8 << 20, dtype=torch.uint8, device="npu:0").data_ptr() == address
""",
    # Why fxload orders its streams with torch's by the runtime's own events.
    "foreign_streams_can_be_made_but_not_ordered": """
import ctypes

made = ctypes.c_void_p()
assert runtime.library.aclrtCreateStreamWithConfig(ctypes.byref(made), 0, 0) == 0
foreign = torch.npu.ExternalStream(made.value, device=0)
assert foreign.npu_stream == made.value
for refused in (
    lambda: foreign.wait_stream(current),
    lambda: current.wait_stream(foreign),
    lambda: foreign.record_event(),
    lambda: foreign.query(),
    lambda: foreign.synchronize(),
    lambda: device.record_stream(foreign),
):
    try:
        refused()
    except RuntimeError as error:
        assert "xternal" in str(error), error
    else:
        raise SystemExit("torch_npu has learned it")
""",
    # torch_npu calls ACL from a thread of its own: its calls may come later than they return.
    "reading_a_handle_flushes_what_torch_has_queued": """
for count in range(1, 200):
    own.wait_stream(current)
    assert own.npu_stream and runtime.get("calls:aclrtStreamWaitEvent") == count
""",
    "own_events_order_a_stream_behind_torchs": """
from tests.platforms.raw_runtime import H2D, RawRuntime, address_of

raw = RawRuntime(runtime, "acl")
assert raw.select(0) == 0
stream, event = raw.stream(), raw.event()
later = raw.pinned(SIZE)
later[:] = b"l" * SIZE
runtime.set(hang_after=0)
device.copy_(pinned, non_blocking=True)
assert raw.record(event, current.npu_stream) == 0
assert raw.wait(stream, event) == 0
assert raw.copy(device.data_ptr(), later, SIZE, H2D, stream) == 0
runtime.wait("hanging", 1)
assert runtime.get("queued") == 2
runtime.set(hang_after=-1)
assert raw.synchronize(stream) == 0
assert bytes(device.cpu().numpy()) == b"l" * SIZE
assert raw.unregister(address_of(later)) == 0
""",
    "a_stream_that_does_not_wait_for_torchs_is_found_out": """
from tests.platforms.raw_runtime import H2D, RawRuntime, address_of

raw = RawRuntime(runtime, "acl")
assert raw.select(0) == 0
runtime.hold(current.npu_stream)
device.copy_(pinned, non_blocking=True)
assert current.npu_stream
stream, source = raw.stream(), raw.pinned(SIZE)
assert raw.copy(device.data_ptr(), source, SIZE, H2D, stream) == 0
runtime.hold(current.npu_stream, False)
assert "races with a copy" in runtime.violations()[0]
assert raw.synchronize(stream) == 0 and raw.unregister(address_of(source)) == 0
runtime.reset()
""",
    "out_of_device_memory_is_torchs_error": """
runtime.set(device_memory=256 << 20)
try:
    torch.empty(1 << 30, dtype=torch.uint8, device="npu:0")
except torch.OutOfMemoryError:
    pass
else:
    raise SystemExit(1)
""",
}

RUN_ALL = """
import gc, json, sys, traceback
import torch

opening, snippets = json.loads(sys.argv[1])
outcomes = {}
for name, code in snippets.items():
    outcomes[name] = ""
    runtime.reset()
    try:
        exec(opening + code, {"runtime": runtime})
    except BaseException:
        outcomes[name] = traceback.format_exc()
    runtime.release()
    runtime.set(device_memory=64 << 30)
    torch.npu.synchronize()
    report = runtime.report()
    if report["violations"] or set(report["contexts"]) - {"0"}:
        outcomes[name] += json.dumps([report["violations"], report["contexts"]])
    gc.collect()
    torch.npu.empty_cache()
print(json.dumps(outcomes))
"""


@pytest.fixture(scope="module")
def outcomes(acl: Simulator) -> dict[str, str]:
    """What went wrong in each snippet."""
    done = acl.python(RUN_ALL, json.dumps([OPENING, SNIPPETS]), torch_npu=True)
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", SNIPPETS)
def test_torch_npu(outcomes: dict[str, str], name: str) -> None:
    assert outcomes[name] == ""


def test_without_devices_npu_is_not_available(acl: Simulator) -> None:
    done = acl.python(
        "import torch\nprint(torch.npu.is_available())", torch_npu=True, devices=0, check=False
    )
    assert done.stdout.splitlines()[-1] == "False"


def test_other_tests_import_torch_alone(acl: Simulator) -> None:
    done = acl.python("import torch\nprint(hasattr(torch, 'npu'))")
    assert done.stdout == "False\n"
    assert done.report == {}
