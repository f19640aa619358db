"""The stand-in runtimes refuse, and record, what real ones must not be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.platforms.snippets import broken_rules, run_raw

if TYPE_CHECKING:
    from tests.support.simulators import Simulator

pytestmark = pytest.mark.platforms


OUTSIDE = "outside every live device allocation"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("raw.copy(device + 64, source, SIZE, H2D, stream)", OUTSIDE),
        ("raw.copy(source, device + 64, SIZE, D2H, stream)", OUTSIDE),
        ("raw.copy(source, source, SIZE, H2D, stream)", OUTSIDE),
        ("raw.free(device) or raw.copy(device, source, SIZE, H2D, stream)", OUTSIDE),
        ("raw.copy(device, device, SIZE, H2D, stream)", "is device memory, not the host's"),
        ("raw.copy(device, 4096, 64, H2D, stream)", "is not mapped"),
        ("raw.free(device + 64)", "is no live device memory"),
        ("raw.free(device) or raw.free(device)", "is no live device memory"),
        ("raw.free_host(device)", "is no live host allocation"),
        ("raw.unregister(address_of(source) + 4096)", "is not registered"),
        ("raw.register(4096, 4096)", "is not mapped"),
        ("raw.destroy_stream(stream) or raw.synchronize(stream)", "the stream was destroyed"),
        ("raw.record(event, 4711 * 64)", "is no stream"),
        ("raw.destroy_event(event) or raw.query(event)[0]", "the event was destroyed"),
        ("raw.query(stream)[0]", "is no event"),
        (
            "raw.try_elapsed(raw.event(timed=False), event)[0]",
            "the event was made without a time",
        ),
    ],
)
def test_refuses_and_records(standin: Simulator, asked: str, said: str) -> None:
    violations = broken_rules(standin, f"assert {asked} != 0")
    assert len(violations) == 1
    assert said in violations[0]


def test_memory_is_registered_as_a_whole(standin: Simulator) -> None:
    violations = broken_rules(
        standin,
        """
half = raw.mapped(2 * SIZE)
assert raw.register(address_of(half), SIZE) == 0
assert raw.copy(device, address_of(half) + SIZE // 2, SIZE, H2D, stream) != 0
""",
    )
    assert "registered in part only" in violations[0]


def test_own_rules_are_kept_by_plain_use(standin: Simulator) -> None:
    done = run_raw(
        standin,
        """
back = raw.pinned(SIZE)
second = raw.allocate(SIZE)
assert raw.copy(device, source, SIZE, H2D, stream) == 0
assert raw.copy(second, device, SIZE, D2D, stream) == 0
assert raw.copy(back, second, SIZE, D2H, stream) == 0
assert raw.synchronize(stream) == 0 and back[:] == source[:]
for address in (device, second):
    assert raw.free(address) == 0
for memory in (source, back):
    assert raw.unregister(address_of(memory)) == 0
for each in (stream, other):
    assert raw.destroy_stream(each) == 0
assert raw.destroy_event(event) == 0
""",
        poison=1,
    )
    report = done.report
    assert report["violations"] == []
    assert [report[f"bytes_{kind}"] for kind in ("h2d", "d2d", "d2h")] == [1 << 20] * 3
    live = {name: value for name, value in report.items() if name.startswith("live_")}
    assert set(live.values()) == {0}
    assert report["device_bytes_peak"] == report["registered_bytes_peak"] == 2 << 20


@pytest.mark.parametrize("gone", ["raw.free(device)", "raw.unregister(address_of(source))"])
def test_memory_of_a_queued_copy_may_not_go(standin: Simulator, gone: str) -> None:
    violations = broken_rules(
        standin,
        f"""
runtime.set(hang=1)
assert raw.copy(device, source, SIZE, H2D, stream) == 0
{gone}
runtime.set(hang=0)
assert raw.synchronize(stream) != 0
""",
    )
    assert "1 copies that use it have not run" in violations[0]
    assert "before a copy" in violations[1]


def test_unmapped_source_of_a_queued_copy_is_found(standin: Simulator) -> None:
    violations = broken_rules(
        standin,
        """
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
size, offset = ctypes.c_size_t(SIZE), ctypes.c_long(0)
memory = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, offset)
assert raw.register(memory, SIZE) == 0
runtime.set(hang=1)
assert raw.copy(device, memory, SIZE, H2D, stream) == 0
assert libc.munmap(ctypes.c_void_p(memory), size) == 0
runtime.set(hang=0)
assert raw.synchronize(stream) != 0
""",
    )
    assert "before a copy from it ran" in violations[0]


@pytest.mark.parametrize("poison", [0, 1])
def test_reuse_of_a_source_before_its_copy_ran_is_found(standin: Simulator, poison: int) -> None:
    violations = broken_rules(
        standin,
        """
runtime.set(hang=1)
assert raw.copy(device, source, SIZE, H2D, stream) == 0
source[-1:] = b"x"
runtime.set(hang=0)
assert raw.synchronize(stream) == 0
assert on_device(1, SIZE - 1) == b"x"
""",
        poison=poison,
    )
    assert ["changed before its copy ran" in each for each in violations] == [True] * poison


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("device, source, SIZE, H2D", "device + SIZE // 2, source, 64, H2D"),  # writes, writes
        ("device, source, SIZE, H2D", "back, device, 64, D2H"),  # writes, reads
        ("back, device, SIZE, D2H", "device, source, 64, H2D"),  # reads, writes
    ],
)
def test_streams_that_share_memory_need_an_order(
    standin: Simulator, first: str, second: str
) -> None:
    code = f"""
back = raw.pinned(SIZE)
third = raw.stream()
runtime.hold(stream)
assert raw.copy({first}, stream) == 0
assert raw.record(event, stream) == 0
ORDER
assert raw.copy({second}, other) == 0
runtime.hold(stream, False)
assert raw.synchronize(stream) == raw.synchronize(other) == 0
"""
    violations = broken_rules(standin, code.replace("ORDER", ""))
    assert len(violations) == 1
    assert "races with a copy that another stream has not run" in violations[0]
    unrelated = code.replace("ORDER", "raw.wait(third, event)")
    assert len(broken_rules(standin, unrelated)) == 1
    for order in (
        "raw.wait(other, event)",
        "raw.wait(third, event) or raw.record(event, third) or raw.wait(other, event)",
        "runtime.hold(stream, False) or raw.wait_for(event)",
    ):
        assert broken_rules(standin, code.replace("ORDER", order)) == []


def test_streams_may_read_the_same(standin: Simulator) -> None:
    assert (
        broken_rules(
            standin,
            """
runtime.hold(stream)
assert raw.copy(device, source, 64, H2D, stream) == 0
assert raw.copy(device + 64, source, 64, H2D, other) == 0
runtime.hold(stream, False)
assert raw.synchronize(stream) == raw.synchronize(other) == 0
""",
        )
        == []
    )


def test_poison_fills_new_device_memory(standin: Simulator) -> None:
    run_raw(standin, "assert on_device() == bytes([0xcd] * 4)", poison=1)


def test_acl_wants_both_ends_aligned(acl: Simulator, hip: Simulator) -> None:
    code = """
assert (raw.copy(device + {}, address_of(source) + {}, 64, H2D, stream) == 0) == {}
assert raw.synchronize(stream) == 0
"""
    assert "64 bytes at both ends" in broken_rules(acl, code.format(8, 0, False))[0]
    assert "64 bytes at both ends" in broken_rules(acl, code.format(0, 8, False))[0]
    assert broken_rules(acl, code.format(64, 128, True)) == []
    assert broken_rules(acl, code.format(8, 8, True), copy_align=1) == []
    assert broken_rules(hip, code.format(1, 3, True)) == []


def test_acl_wants_a_device_selected_in_every_thread(acl: Simulator, hip: Simulator) -> None:
    code = """
statuses = []
thread = threading.Thread(target=lambda: statuses.append(raw.query(event)[0]))
thread.start()
thread.join()
assert statuses == [{}], statuses
"""
    assert "has selected no device" in broken_rules(acl, code.format(107002))[0]
    assert broken_rules(hip, code.format(0)) == []


def test_acl_registers_whole_pages(acl: Simulator) -> None:
    violations = broken_rules(
        acl, "assert raw.register(address_of(raw.mapped(8192)) + 64, 64) != 0"
    )
    assert "does not start on a page" in violations[0]


def test_a_stream_is_used_on_its_own_device(standin: Simulator) -> None:
    violations = broken_rules(
        standin,
        """
assert raw.select(1) == 0
elsewhere = raw.allocate(SIZE)
assert raw.copy(device, source, SIZE, H2D, stream) != 0
assert raw.record(raw.event(), stream) != 0
mine = raw.stream()
assert raw.copy(device, source, SIZE, H2D, mine) != 0
assert raw.copy(elsewhere, source, SIZE, H2D, mine) == 0
assert raw.synchronize(mine) == 0
""",
    )
    assert "the thread's device is not the stream's" in violations[0]
    assert "different devices" in violations[1]
    assert "belongs to device 0, the stream to device 1" in violations[2]
    assert len(violations) == 3


def test_contexts_are_counted_by_device(standin: Simulator) -> None:
    code = """
threads = [threading.Thread(target=lambda: raw.select(0) or raw.allocate(64)) for _ in range(2)]
for each in threads:
    each.start()
for each in threads:
    each.join()
"""
    one = run_raw(standin, code)
    assert list(one.report["contexts"]) == ["0"]
    both = run_raw(standin, code + "raw.select(1)\nraw.allocate(64)\n")
    assert list(both.report["contexts"]) == ["0", "1"]


def test_forked_child_may_call_nothing(standin: Simulator) -> None:
    done = run_raw(
        standin,
        """
child = os.fork()
if child == 0:
    os._exit(raw.copy(device, source, SIZE, H2D, stream) != raw.status(3))
assert os.waitpid(child, 0)[1] == 0
assert raw.copy(device, source, SIZE, H2D, stream) == 0 and raw.synchronize(stream) == 0
""",
    )
    assert done.report["copies_h2d"] == 1
