"""The window planner, against a simulation of what the core does with its plan."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fxload._errors import UsageError
from fxload.checkpoint import FileShape, TensorInfo, plan_tensors, plan_whole_files
from fxload.devices.windows import block_size, plan_windows

if TYPE_CHECKING:
    from fxload.devices.windows import Window, WindowPlan

KIB = 1 << 10
MIB = 1 << 20
ALIGNS = [(256, 512), (512, 512), (256, 4 * KIB), (512, 64 * KIB)]


def check(
    plan: WindowPlan,
    places: list[tuple[int, int]],
    *,
    align: int,
    block: int,
    window_bytes: int,
) -> None:
    """What the loader relies on."""
    assert [window.first for window in plan.windows] == [
        0,
        *[window.last for window in plan.windows[:-1]],
    ][: len(plan.windows)]
    assert (plan.windows[-1].last if plan.windows else 0) == len(places)
    for left, right in itertools.pairwise(plan.windows):
        assert right.begin >= left.end - block
        # A shared block counts as landed with the left one: nothing of the right lies wholly in it.
        assert places[right.first][1] > left.end
    realigned = 0
    for window in plan.windows:
        assert window.first < window.last
        assert window.begin % block == window.end % block == 0
        # No tensor straddles, and no block is taken that none of them needs.
        assert window.begin <= places[window.first][0] < window.begin + block
        assert window.end - block < places[window.last - 1][1] <= window.end
        assert window.size_bytes <= window_bytes or all(
            end > window.end - block for _, end in places[window.first : window.last]
        )
        realigned += check_runs(window, places, align)
    assert plan.realigned_bytes == realigned
    assert plan.tensor_bytes == sum(end - begin for begin, end in places)


def check_runs(window: Window, places: list[tuple[int, int]], align: int) -> int:
    sizes = {number: places[number][1] - places[number][0] for number in members(window)}
    misaligned = {number for number in members(window) if places[number][0] % align}
    moved = {number for run in window.runs for number in range(run.first, run.last)}
    emptied = 8 * sum(sizes[number] for number in misaligned) > sum(sizes.values())
    assert window.emptied == emptied
    assert moved == (set(members(window)) if emptied else misaligned)
    cursor = 0
    for run in window.runs:
        assert run.to >= cursor
        cursor = run.to + run.end - run.begin
        assert run.begin == places[run.first][0]
        assert run.end == places[run.last - 1][1]
        for number in range(run.first, run.last):
            assert (run.to + places[number][0] - run.begin) % align == 0
    for left, right in itertools.pairwise(window.runs):
        # Neighbours with one shift are one copy.
        near = right.begin - left.end < align and right.first == left.last
        assert not (near and (right.begin - left.begin) % align == 0)
    assert window.moved_bytes == cursor
    # Each run starts on a boundary: it wastes less than one.
    assert cursor <= sum(run.end - run.begin for run in window.runs) + align * len(window.runs)
    return sum(sizes[number] for number in moved)


def members(window: Window) -> range:
    return range(window.first, window.last)


@st.composite
def layouts(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Tensors as files have them: mostly neighbours, of round and of odd sizes, with gaps."""
    cursor = draw(st.sampled_from([0, 8, 256, 512, 4096, 65_536 + 8, 1 << 20]))
    unit = draw(st.sampled_from([1, 8, 64, 256, 512]))
    places = []
    for _ in range(draw(st.integers(0, 40))):
        size = unit * draw(st.one_of(st.integers(1, 40), st.integers(1, 3000)))
        size += draw(st.sampled_from([0, 0, 0, 4, 2, 1]))
        cursor += draw(st.sampled_from([0, 0, 0, 0, 1, 8, 512, 300 * KIB]))
        places.append((cursor, cursor + size))
        cursor += size
    return places


@settings(max_examples=400, deadline=None)
@given(layouts(), st.sampled_from(ALIGNS), st.sampled_from([64 * KIB, 256 * KIB, 64 * MIB]))
def test_every_tensor_is_whole_aligned_and_in_order(
    places: list[tuple[int, int]], alignment: tuple[int, int], window_bytes: int
) -> None:
    align, block = alignment
    plan = plan_windows(places, tensor_align=align, block_bytes=block, window_bytes=window_bytes)
    check(plan, places, align=align, block=block, window_bytes=window_bytes)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from(ALIGNS), st.booleans())
def test_what_is_read_copied_and_moved_is_what_the_files_hold(
    data: st.DataObject, alignment: tuple[int, int], whole: bool
) -> None:
    align, block = alignment
    files, tensors = [], []
    for _ in range(data.draw(st.integers(1, 3))):
        places = data.draw(layouts())
        header = data.draw(st.sampled_from([8, 64, 1000, 4096]))
        infos = [
            TensorInfo(str(number), "U8", (end - begin,), header + begin, header + end)
            for number, (begin, end) in enumerate(places)
        ]
        size = (infos[-1].end if infos else header) + data.draw(st.sampled_from([0, 5]))
        page = data.draw(st.sampled_from([1, 512, 4096, 64 * KIB]))
        files.append(FileShape(size, page, header))
        tensors.append(infos)
    if sum(file.size_bytes for file in files) > 16 * MIB:
        return
    plan = (
        plan_whole_files(files, block_bytes=block)
        if whole
        else plan_tensors(files, tensors, block_bytes=block)
    )
    contents = [random.Random(number).randbytes(f.size_bytes) for number, f in enumerate(files)]
    placed = [
        (where, where + tensor.size_bytes)
        for number, infos in enumerate(tensors)
        for where, tensor in zip(plan.placements(number, infos), infos, strict=True)
    ]
    windows = plan_windows(placed, tensor_align=align, block_bytes=block, window_bytes=256 * KIB)
    wanted = [
        contents[number][tensor.begin : tensor.end]
        for number, infos in enumerate(tensors)
        for tensor in infos
    ]
    assert simulate(plan.extents, contents, windows, placed) == wanted


def simulate(
    extents: tuple[tuple[int, int, int, int], ...],
    contents: list[bytes],
    plan: WindowPlan,
    places: list[tuple[int, int]],
) -> list[bytes]:
    """Whole blocks of each extent, garbage around its bytes, to each window that they touch."""
    block = plan.block_bytes
    windows = [bytearray(window.size_bytes) for window in plan.windows]
    for file, offset, length, where in extents:
        begin = where // block * block
        end = -(-(where + length) // block) * block
        staged = bytearray(b"\xee" * (end - begin))
        staged[where - begin : where - begin + length] = contents[file][offset : offset + length]
        for window, memory in zip(plan.windows, windows, strict=True):
            low, high = max(begin, window.begin), min(end, window.end)
            if low < high:
                memory[low - window.begin : high - window.begin] = staged[
                    low - begin : high - begin
                ]
    found = []
    for window, memory in zip(plan.windows, windows, strict=True):
        moved = bytearray(window.moved_bytes)
        where_moved = {}
        for run in window.runs:
            size = run.end - run.begin
            start = run.begin - window.begin
            moved[run.to : run.to + size] = memory[start : start + size]
            for number in range(run.first, run.last):
                where_moved[number] = run.to + places[number][0] - run.begin
        for number in members(window):
            begin, end = places[number]
            source, start = memory, begin - window.begin
            if number in where_moved:
                source, start = moved, where_moved[number]
            found.append(bytes(source[start : start + end - begin]))
    return found


def test_a_shard_behind_an_odd_header_moves_by_one_copy_a_window() -> None:
    # 40 tensors of 4 MiB from byte 8 on, as after a header that is padded to 8.
    places = [(8 + number * 4 * MIB, 8 + (number + 1) * 4 * MIB) for number in range(40)]
    plan = plan_windows(places, tensor_align=256, block_bytes=512)
    assert [len(window.runs) for window in plan.windows] == [1] * len(plan.windows)
    assert all(window.emptied for window in plan.windows)
    assert plan.realigned_bytes == plan.tensor_bytes == 160 * MIB
    # 15 tensors to a window: the sixteenth ends in a block beyond 64 MiB.
    assert [window.last - window.first for window in plan.windows] == [15, 15, 10]
    for left, right in itertools.pairwise(plan.windows):
        assert right.begin == left.end - 512


@pytest.mark.parametrize(("misaligned_kib", "emptied"), [(120, False), (160, True)])
def test_more_than_an_eighth_empties_a_window(misaligned_kib: int, emptied: bool) -> None:
    odd = 1024 * KIB + 8
    places = [(0, 1024 * KIB), (odd, odd + misaligned_kib * KIB)]
    (window,) = plan_windows(places, tensor_align=256, block_bytes=512).windows
    assert window.emptied is emptied
    assert [run[:2] for run in window.runs] == ([(0, 1), (1, 2)] if emptied else [(1, 2)])


def test_a_large_tensor_has_a_window_of_its_own() -> None:
    places = [(0, 1000), (1024, 1024 + 200 * MIB), (1024 + 200 * MIB, 1024 + 201 * MIB)]
    plan = plan_windows(places, tensor_align=512, block_bytes=512)
    assert [(window.first, window.last) for window in plan.windows] == [(0, 1), (1, 2), (2, 3)]
    assert plan.realigned_bytes == 0


def test_what_is_not_wanted_takes_little_device_memory() -> None:
    places = [(0, MIB), (MIB + 200 * KIB, 2 * MIB), (10 * MIB, 11 * MIB)]
    plan = plan_windows(places, tensor_align=256, block_bytes=512)
    assert [(window.begin, window.end) for window in plan.windows] == [
        (0, 2 * MIB),
        (10 * MIB, 11 * MIB),
    ]


@pytest.mark.parametrize(
    "places",
    [[(0, 8), (4, 12)], [(8, 16), (0, 8)], [(0, 0)], [(16, 8)]],
    ids=["overlap", "order", "empty", "backwards"],
)
def test_what_no_plan_places_is_refused(places: list[tuple[int, int]]) -> None:
    with pytest.raises(UsageError):
        plan_windows(places, tensor_align=256, block_bytes=512)


def test_blocks_keep_all_alignments() -> None:
    assert block_size(256) == 512
    assert block_size(512, 64) == 512
    assert block_size(256, 64 * KIB) == 64 * KIB
    with pytest.raises(UsageError):
        block_size(384)
    with pytest.raises(UsageError):
        plan_windows([], tensor_align=512, block_bytes=256)


def test_a_plan_prints_itself_in_a_few_lines() -> None:
    places = [(8 + number * 40 * MIB, 8 + (number + 1) * 40 * MIB) for number in range(40)]
    plan = plan_windows(places, tensor_align=256, block_bytes=512)
    assert "40 windows of 512-byte blocks" in repr(plan)
    assert len(repr(plan)) < 200
    text = str(plan)
    assert text.startswith(repr(plan))
    assert "emptied by 1 copies into 41943040" in text
    assert len(text.splitlines()) < 30
    assert "0 windows" in str(plan_windows([], tensor_align=256, block_bytes=512))
