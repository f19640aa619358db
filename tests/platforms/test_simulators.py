"""The stand-in runtimes do what real ones do later than asked, and fail on request."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.platforms.snippets import run_raw
from tests.support.needs import cannot

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.isolation import Isolation
    from tests.support.simulators import Simulator

pytestmark = pytest.mark.platforms


def test_a_control_that_no_stand_in_has_is_refused(standin: Simulator) -> None:
    with pytest.raises(KeyError, match="populate"):
        standin.environment(populate=1)


def test_copy_runs_after_it_was_asked_for(standin: Simulator) -> None:
    run_raw(
        standin,
        """
runtime.set(hang=1)
assert raw.copy(device, source, SIZE, H2D, stream) == 0
assert raw.record(event, stream) == 0
runtime.wait("hanging", 1)
assert not raw.done(event) and not raw.idle(stream) and on_device() == bytes(4)
runtime.set(hang=0)
assert raw.wait_for(event) == 0
assert raw.done(event) and on_device() == b"ssss" and runtime.get("queued") == 0
assert raw.synchronize(stream) == 0 and raw.idle(stream)
""",
    )


def test_copy_from_unregistered_memory_waits(standin: Simulator) -> None:
    done = run_raw(
        standin,
        """
plain = raw.mapped(SIZE)
plain[:] = b"p" * SIZE
runtime.set(copy_delay_us=20000)
assert raw.copy(device, plain, SIZE, H2D, stream) == 0
assert on_device() == b"pppp" and raw.idle(stream)
""",
    )
    assert done.report["pageable_copies"] == 1
    assert done.report["pageable_bytes"] == done.report["bytes_h2d"] == 1 << 20


def test_one_stream_is_held(standin: Simulator) -> None:
    run_raw(
        standin,
        """
runtime.hold(stream)
assert raw.copy(device, source, 64, H2D, stream) == 0
assert raw.copy(device + 64, source, 64, H2D, other) == 0
assert raw.synchronize(other) == 0 and not raw.idle(stream)
runtime.hold(stream, False)
assert raw.synchronize(stream) == 0
""",
    )


def test_stream_waits_for_an_event_of_another(standin: Simulator) -> None:
    run_raw(
        standin,
        """
second = raw.pinned(SIZE)
second[:] = b"2" * SIZE
runtime.set(hang_after=0)
assert raw.copy(device, source, SIZE, H2D, stream) == 0
assert raw.record(event, stream) == 0
assert raw.wait(other, event) == 0
assert raw.copy(device, second, SIZE, H2D, other) == 0
runtime.wait("hanging", 1)
assert runtime.get("queued") == 2 and runtime.get("hanging") == 1
runtime.set(hang_after=-1)
assert raw.synchronize(other) == 0
assert on_device() == b"2222"
""",
    )


def test_event_stands_for_its_latest_recording(standin: Simulator) -> None:
    run_raw(
        standin,
        """
assert raw.done(event)
runtime.set(hang=1)
assert raw.copy(device, source, SIZE, H2D, stream) == 0
assert raw.record(event, stream) == 0
assert not raw.done(event)
assert raw.record(event, other) == 0
assert raw.wait_for(event) == 0
assert raw.done(event) and not raw.idle(stream)
runtime.set(hang=0)
assert raw.synchronize(stream) == 0
""",
    )


def test_bandwidth_is_that_of_the_link(standin: Simulator) -> None:
    run_raw(
        standin,
        """
first, last = raw.event(), raw.event()
assert raw.record(first, stream) == 0
for each in (stream, other, stream, other):
    assert raw.copy(device, source, SIZE, H2D, each) == 0
assert raw.record(event, other) == 0 and raw.wait(stream, event) == 0
assert raw.record(last, stream) == 0
assert raw.wait_for(last) == 0
# Four copies of 10 ms share one link, whatever streams they are in.
assert raw.elapsed_s(first, last) >= 0.04, raw.elapsed_s(first, last)
""",
        bandwidth=(1 << 20) * 100,
    )


@pytest.mark.parametrize("kind", ["hip", "acl"])
def test_batch_copies_until_one_fails(kind: str, request: pytest.FixtureRequest) -> None:
    done = run_raw(
        request.getfixturevalue(kind),
        """
base = address_of(source)
good = [(device + i * 128, base + i * 64, 64) for i in range(3)]
assert raw.copy_batch(good, stream) == (0, 0)
status, failed = raw.copy_batch([(device + 64, base, 64), (device, base, SIZE + 1)], stream)
assert (status != 0, failed) == (True, 1)
assert raw.synchronize(stream) == 0
assert on_device(384) == b"s" * 192 + bytes(64) + b"s" * 64 + bytes(64)
""",
    )
    assert done.report["bytes_h2d"] == 256


@pytest.mark.parametrize("shared", [0, 1])
def test_directions_share_the_link_on_request(standin: Simulator, shared: int) -> None:
    done = run_raw(
        standin,
        """
first, up, down = raw.event(), raw.event(), raw.event()
back = raw.pinned(SIZE)
assert raw.record(first, stream) == 0 and raw.record(first, other) == 0
runtime.set(hang=1)
for _ in range(4):
    assert raw.copy(device, source, SIZE // 2, H2D, stream) == 0
    assert raw.copy(back, device + SIZE // 2, SIZE // 2, D2H, other) == 0
runtime.set(hang=0)
assert raw.record(up, stream) == 0 and raw.record(down, other) == 0
assert raw.wait_for(up) == 0 and raw.wait_for(down) == 0
print(max(raw.elapsed_s(first, up), raw.elapsed_s(first, down)))
""",
        # 4 copies of 125 ms each way: 0.5 s side by side, 1 s one by one.
        bandwidth=4 << 20,
        bandwidth_shared=shared,
    )
    seconds = float(done.stdout)
    assert seconds >= 1 if shared else seconds < 1


def test_jitter_lets_streams_overtake_one_another(standin: Simulator) -> None:
    run_raw(
        standin,
        """
overtaken = 0
for _ in range(16):
    late = raw.event()
    assert raw.copy(device, source, 64, H2D, stream) == 0 and raw.record(event, stream) == 0
    assert raw.copy(device, source, 64, H2D, other) == 0 and raw.record(late, other) == 0
    assert raw.wait_for(event) == 0 and raw.wait_for(late) == 0
    overtaken += raw.elapsed_s(late, event) > 0
assert 0 < overtaken < 16, overtaken
""",
        jitter_us=5000,
        seed=7,
    )


def test_nth_call_fails(standin: Simulator) -> None:
    name = {"hip": "hipMalloc", "cuda": "cudaMalloc", "acl": "aclrtMalloc"}[standin.kind]
    # The first one is the fixture's.
    run_raw(
        standin,
        f"""
assert [raw.try_allocate(64)[0] for _ in range(3)] == [0, 77, 0]
runtime.fail({name!r}, 1, 78)
assert [raw.try_allocate(64)[0] for _ in range(2)] == [78, 0]
""",
        fail=f"{name}:3:77",
    )


def test_copy_fails_when_it_runs(standin: Simulator) -> None:
    run_raw(
        standin,
        """
assert raw.stop_on_failure(stream) == 0
assert raw.copy(device, source, 64, H2D, stream) == 0
assert raw.copy(device + 64, source, 64, H2D, stream) == 0
assert raw.record(event, stream) == 0
assert raw.synchronize(stream) == 77
assert raw.query(event)[0] == 77
assert on_device() == b"ssss" and on_device(4, 64) == bytes(4)
assert raw.copy(device, source, 64, H2D, stream) == 77
assert raw.copy(device, source, 64, H2D, other) == 0 and raw.synchronize(other) == 0
""",
        fail="copy:2:77",
    )


def test_a_stream_of_ascend_goes_on_behind_a_failure(acl: Simulator) -> None:
    """Unless it is told to stop: the event says nothing of the copy that was lost."""
    run_raw(
        acl,
        """
assert raw.copy(device, source, 64, H2D, stream) == 0
assert raw.record(event, stream) == 0
assert raw.synchronize(stream) == 0 and raw.done(event)
assert on_device(64) == bytes(64)
""",
        fail="copy:1:77",
    )


def test_device_memory_is_limited(standin: Simulator) -> None:
    run_raw(
        standin,
        """
assert raw.memory_info() == (1 << 20, 2 << 20)
assert raw.try_allocate((1 << 20) + 1)[0] == raw.status(2)
rest = raw.allocate(1 << 20)
assert raw.try_allocate(1)[0] == raw.status(2)
assert raw.free(rest) == 0
assert raw.try_allocate(1)[0] == 0
""",
        device_memory=2 << 20,
    )


def test_no_device(standin: Simulator) -> None:
    code = """
from tests.platforms.raw_runtime import RawRuntime
raw = RawRuntime(runtime, sys.argv[1])
print(raw.count())
assert raw.select(0) != 0
"""
    absent = standin.python("import sys\n" + code, standin.kind, devices=0)
    assert absent.stdout == f"{(0 if standin.kind == 'acl' else 100, 0)}\n"
    old = standin.python("import sys\n" + code, standin.kind, devices=0, no_device_status=35)
    assert old.stdout == f"{(35, 0)}\n"


def test_unknown_device(standin: Simulator) -> None:
    run_raw(standin, "assert raw.select(2) == raw.select(-1) == raw.status(101)")


def test_registration_is_refused(standin: Simulator) -> None:
    code = """
runtime.set(refuse_registration=77)
memory = raw.mapped(SIZE)
assert raw.register(address_of(memory), SIZE) == 77
runtime.set(refuse_registration=0)
assert raw.register(address_of(memory), SIZE) == 0
assert raw.register(address_of(memory), SIZE) != 0
"""
    assert run_raw(standin, code).report["live_registrations"] == 2


def test_registration_needs_locked_memory(
    standin: Simulator, unprivileged: Isolation, public_folder: Path
) -> None:
    code = f"""
from tests.support.simulator_controls import Controls
from tests.platforms.raw_runtime import RawRuntime, address_of
raw = RawRuntime(Controls({str(standin.library)!r}), {standin.kind!r})
assert raw.select(0) == 0
assert raw.register(address_of(raw.mapped(1 << 20)), 1 << 20) == raw.status(2)
"""
    unprivileged.but(env=standin.environment()).python(code)


def test_host_memory_of_acl_refuses_direct_reads(
    acl: Simulator, hip: Simulator, public_folder: Path
) -> None:
    file = public_folder / "file"
    file.write_bytes(os.urandom(8192))
    code = """
opened = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
host = raw.allocate_host(8192)
try:
    os.preadv(opened, [(ctypes.c_char * 4096).from_address(host)], 0)
    print("read")
except OSError as error:
    print(os.strerror(error.errno))
assert os.preadv(opened, [memoryview(source)[:4096]], 0) == 4096
assert raw.copy(device, host, 8192, H2D, stream) == 0 and raw.synchronize(stream) == 0
assert raw.free_host(host) == 0
"""
    assert run_raw(hip, code, file).stdout == "read\n"
    refusing = run_raw(acl, code, file)
    if not refusing.report["host_memory_refuses_direct_reads"]:
        cannot("this kernel has no memfd_secret")
    assert refusing.stdout == "Bad address\n"
    assert refusing.report["violations"] == []
    assert run_raw(acl, code, file, secret_host_memory=0).stdout == "read\n"


def test_report_and_counters_agree(standin: Simulator) -> None:
    done = run_raw(
        standin,
        """
import json
assert raw.copy(device, source, SIZE, H2D, stream) == 0 and raw.synchronize(stream) == 0
assert runtime.get("bytes_h2d") == runtime.report()["bytes_h2d"] == SIZE
print(json.dumps(runtime.report()))
runtime.reset()
assert runtime.get("bytes_h2d") == 0 and runtime.get("live_streams") == 2
""",
    )
    printed = json.loads(done.stdout)
    prefix = "aclrt" if standin.kind == "acl" else standin.kind
    assert printed["calls"][f"{prefix}MemcpyAsync"] == 1
    assert printed["runtime"] == standin.kind
    assert done.report["copies_h2d"] == 0
    assert done.report["live_streams"] == 2


def test_unknown_names_are_refused(hip: Simulator) -> None:
    run_raw(
        hip,
        """
for wrong in (lambda: runtime.set(no_such=1), lambda: runtime.get("no_such")):
    try:
        wrong()
    except KeyError:
        continue
    raise SystemExit(1)
""",
    )
    refused = hip.python("runtime.get('queued')", check=False, bandwidth="fast")
    assert refused.returncode != 0
    assert "FXSIM_BANDWIDTH: not understood" in refused.stderr
