from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fxload._errors import UsageError
from fxload.checkpoint import (
    Extent,
    FileShape,
    Selection,
    TensorInfo,
    plan_tensors,
    plan_whole_files,
)
from tests.checkpoint.moe import HeaderOnly, moe_headers, plan_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fxload.checkpoint import ReadPlan

KIB = 1 << 10
PAGE = 4 * KIB


def u8(begin: int, end: int) -> TensorInfo:
    return TensorInfo(f"{begin}-{end}", "U8", (end - begin,), begin, end)


def is_direct(extent: Extent, file: FileShape) -> bool:
    end = extent.file_offset + extent.length
    at_end = end % file.align == 0 or end == file.size_bytes
    return extent.file_offset % file.align == 0 and at_end


def check_shape(plan: ReadPlan, files: Sequence[FileShape]) -> None:
    """What the core relies on."""
    cursor = 0
    for extent in plan.extents:
        file = files[extent.file]
        assert extent.length > 0
        assert extent.file_offset + extent.length <= file.size_bytes
        assert extent.destination >= cursor
        cursor = extent.destination + extent.length
        assert extent.destination % 8 == extent.file_offset % 8
        if is_direct(extent, file):
            assert extent.destination % file.align == extent.file_offset % file.align
            cursor = extent.destination + -(-extent.length // file.align) * file.align
    assert plan.space_bytes >= cursor
    assert plan.read_bytes == sum(extent.length for extent in plan.extents)
    assert [extent.file for extent in plan.extents] == sorted(
        extent.file for extent in plan.extents
    )
    assert list(plan.packed()) == [number for extent in plan.extents for number in extent]


def carry_out(plan: ReadPlan, contents: Sequence[bytes]) -> bytes:
    destination = bytearray(plan.space_bytes)
    for file, offset, length, where in plan.extents:
        destination[where : where + length] = contents[file][offset : offset + length]
    return bytes(destination)


@st.composite
def checkpoints(draw: st.DrawFn) -> tuple[list[FileShape], list[list[TensorInfo]]]:
    """Files and some of their tensors: of all sizes from none to a few blocks."""
    files, wanted = [], []
    for _ in range(draw(st.integers(1, 3))):
        align = draw(st.sampled_from([1, 512, PAGE, 64 * KIB]))
        unit = draw(st.sampled_from([1, 64, align]))
        end = draw(st.integers(10, 5000))
        chosen = []
        sizes = st.one_of(st.integers(0, 40), st.integers(0, 3000), st.just(50_000))
        for size, keep in draw(st.lists(st.tuples(sizes, st.booleans()), max_size=30)):
            begin, end = end, end + size * unit // draw(st.sampled_from([1, 1, unit]))
            if keep:
                chosen.append(u8(begin, end))
        files.append(FileShape(end, align))
        wanted.append(chosen)
    return files, wanted


@settings(max_examples=200, deadline=None)
@given(checkpoints(), st.sampled_from([0, 5, 50]))
def test_every_wanted_byte_arrives_and_few_others_are_read(
    checkpoint: tuple[list[FileShape], list[list[TensorInfo]]], waste_percent: int
) -> None:
    files, wanted = checkpoint
    if sum(file.size_bytes for file in files) > 64 << 20:
        return
    plan = plan_tensors(files, wanted, waste_percent=waste_percent)
    check_shape(plan, files)
    assert plan.wanted_bytes == sum(tensor.size_bytes for group in wanted for tensor in group)
    assert plan.read_bytes * 100 <= plan.wanted_bytes * (100 + waste_percent)
    contents = [random.Random(number).randbytes(f.size_bytes) for number, f in enumerate(files)]
    memory = carry_out(plan, contents)
    for number, group in enumerate(wanted):
        placed = plan.placements(number, group)
        assert placed == sorted(placed)
        for tensor, where in zip(group, placed, strict=True):
            assert (
                memory[where : where + tensor.size_bytes]
                == (contents[number][tensor.begin : tensor.end])
            )
            if tensor.size_bytes:
                assert plan.destination_of(number, tensor.begin) == where


def one_in_eight() -> Selection:
    return Selection(predicate=lambda name: int(name.split(".experts.")[1].split(".")[0]) % 8 == 3)


@pytest.mark.parametrize("order", ["name", "dtype"])
@pytest.mark.parametrize("shards", [1, 5])
@pytest.mark.parametrize(
    ("hidden", "intermediate"),
    [(7168, 2048), (512, 256), (160, 96)],
    ids=["real", "small", "tiny"],
)
def test_an_expert_filter_reads_little_more_than_it_wants(
    order: str, shards: int, hidden: int, intermediate: int
) -> None:
    files = moe_headers(
        tensors=6144,
        shards=shards,
        order=order,  # type: ignore[arg-type]
        hidden=hidden,
        intermediate=intermediate,
    )
    plan = plan_of(files, one_in_eight())
    check_shape(plan, [file.shape for file in files])
    whole = plan_of(files, Selection())
    assert plan.wanted_bytes == whole.wanted_bytes / 8
    assert plan.wanted_bytes <= plan.read_bytes <= 1.05 * plan.wanted_bytes
    assert plan.space_bytes <= 1.1 * plan.wanted_bytes + PAGE * len(files)


@pytest.mark.parametrize("order", ["name", "dtype"])
def test_scales_alone_are_read_without_the_weights(order: str) -> None:
    files = moe_headers(tensors=6144, shards=3, order=order)  # type: ignore[arg-type]
    plan = plan_of(files, Selection(include=("*_scale_inv",)))
    check_shape(plan, [file.shape for file in files])
    assert plan.read_bytes <= 1.05 * plan.wanted_bytes
    # A block of the file for each of 3072 tensors would take 3.5 times as much.
    assert plan.space_bytes <= 1.3 * plan.wanted_bytes


@pytest.mark.parametrize("order", ["name", "dtype"])
def test_all_of_a_large_checkpoint_is_one_direct_extent_a_file(order: str) -> None:
    files = moe_headers(shards=16, order=order)  # type: ignore[arg-type]
    shapes = [file.shape for file in files]
    plan = plan_of(files, Selection())
    assert len(plan.extents) == 16
    assert all(is_direct(extent, file) for extent, file in zip(plan.extents, shapes, strict=True))
    assert plan.read_bytes < 1.0001 * plan.wanted_bytes


@pytest.mark.parametrize("align", [512, PAGE, 64 * KIB])
def test_large_tensors_are_widened_to_the_alignment_and_merged(align: int) -> None:
    file = FileShape(100 << 20, align)
    tensors = [u8(1000, (10 << 20) + 9), u8((10 << 20) + 10, 20 << 20), u8(30 << 20, 40 << 20)]
    plan = plan_tensors([file], [tensors])
    assert [extent[1:3] for extent in plan.extents] == [
        (1000 - 1000 % align, (20 << 20) - (1000 - 1000 % align)),
        (30 << 20, 10 << 20),
    ]
    check_shape(plan, [file])


def test_small_gaps_are_bridged_before_large_ones_and_wide_ones_never() -> None:
    size = 1 << 20
    offsets = [0, size + 500, 2 * size + 70_500, 4 * size]
    tensors = [u8(offset, offset + size) for offset in offsets]
    file = FileShape(100 << 20, 1)
    assert [extent.file_offset for extent in plan_tensors([file], [tensors]).extents] == [
        0,
        2 * size + 70_500,
        4 * size,
    ]
    plan = plan_tensors([file], [tensors], max_gap_bytes=size // 2, waste_percent=5)
    assert [extent.file_offset for extent in plan.extents] == [0, 4 * size]
    plan = plan_tensors([file], [tensors], waste_percent=0)
    assert plan.read_bytes == plan.wanted_bytes


def test_only_the_smallest_gaps_are_paid_for() -> None:
    size = 1 << 20
    tensors = [u8(0, size), u8(size + 100_000, 2 * size), u8(2 * size + 50_000, 3 * size)]
    plan = plan_tensors([FileShape(1 << 30)], [tensors], max_gap_bytes=1 << 20)
    assert [extent.file_offset for extent in plan.extents] == [0, size + 100_000]


def test_large_tensors_are_widened_before_tiny_ones() -> None:
    file = FileShape(1 << 30, PAGE)
    tiny, large = u8(100_004, 100_008), u8((1 << 20) + 2000, (1 << 20) + 22 * PAGE)
    plan = plan_tensors([file], [[tiny, large]])
    assert [is_direct(extent, file) for extent in plan.extents] == [False, True]


@pytest.mark.parametrize(
    ("tensors", "waste_percent"),
    [
        ([u8(PAGE + 8, PAGE + 16), u8(PAGE + 512, 16 * PAGE)], 5),
        ([u8(PAGE, 16 * PAGE - 500), u8(16 * PAGE - 100, 16 * PAGE - 96)], 5),
        ([u8(PAGE, 9 * PAGE - 500), u8(9 * PAGE - 100, 16 * PAGE)], 10),
        ([u8(PAGE, 9 * PAGE), u8(9 * PAGE + 100, 16 * PAGE)], 5),
    ],
    ids=["before", "after", "shared", "adjacent"],
)
def test_what_lies_in_a_block_of_a_direct_extent_is_not_read_again(
    tensors: list[TensorInfo], waste_percent: int
) -> None:
    file = FileShape(1 << 30, PAGE)
    plan = plan_tensors([file], [tensors], max_gap_bytes=0, waste_percent=waste_percent)
    assert plan.extents == (Extent(0, PAGE, 15 * PAGE, 0),)


def test_a_tiny_tensor_far_from_others_is_read_exactly() -> None:
    file = FileShape(1 << 30, PAGE)
    tensors = [u8(offset, offset + 4) for offset in range(100_004, 1 << 24, 1 << 18)]
    plan = plan_tensors([file], [tensors])
    assert plan.read_bytes == plan.wanted_bytes == 4 * len(tensors)
    assert plan.space_bytes <= 8 * len(tensors)


def test_a_tiny_tensor_in_the_block_of_a_large_one_costs_nothing() -> None:
    file = FileShape(1 << 30, PAGE)
    plan = plan_tensors([file], [[u8(PAGE + 8, PAGE + 16), u8(PAGE + 512, 1 << 20)]])
    assert plan.extents == (Extent(0, PAGE, (1 << 20) - PAGE, 0),)


def test_the_end_of_a_file_is_direct_and_its_last_block_reserved() -> None:
    files = [FileShape(1_000_001, PAGE), FileShape(1_000_001, 1)]
    plan = plan_tensors(files, [[u8(PAGE, 1_000_001)], [u8(64, 1_000_001)]])
    assert plan.extents[0] == Extent(0, PAGE, 1_000_001 - PAGE, 0)
    assert plan.extents[1].destination >= -(-(1_000_001 - PAGE) // PAGE) * PAGE
    check_shape(plan, files)


def test_tensors_of_no_bytes_need_no_read_and_keep_the_order() -> None:
    tensors = [u8(64, 64), u8(64, 200), u8(200, 200), u8(200, 300)]
    plan = plan_tensors([FileShape(300)], [tensors])
    first, second, third, fourth = plan.placements(0, tensors)
    assert first <= second < third == fourth
    nothing = plan_tensors([FileShape(300, PAGE)], [[u8(64, 64)]])
    assert (nothing.extents, nothing.space_bytes, nothing.read_bytes) == ((), 0, 0)
    assert nothing.placements(0, [u8(64, 64)]) == [0]


@pytest.mark.parametrize(
    "tensors",
    [[u8(100, 200), u8(50, 90)], [u8(100, 200), u8(150, 250)], [u8(100, 2000)]],
    ids=["order", "overlap", "end"],
)
def test_tensors_that_no_header_can_have_are_refused(tensors: list[TensorInfo]) -> None:
    with pytest.raises(UsageError):
        plan_tensors([FileShape(1000)], [tensors])


def test_bytes_outside_of_the_plan_have_no_destination() -> None:
    plan = plan_tensors([FileShape(10_000), FileShape(10_000)], [[u8(1000, 2000)], []])
    for file, offset in ((0, 999), (0, 2000), (1, 1000), (2, 0)):
        with pytest.raises(UsageError):
            plan.destination_of(file, offset)
    for tensor in (u8(999, 1001), u8(1999, 2001), u8(3000, 3001)):
        with pytest.raises(UsageError):
            plan.placements(0, [tensor])


@pytest.mark.parametrize("page_align", [PAGE, 64 * KIB])
@pytest.mark.parametrize("align", [1, 512, PAGE, 64 * KIB])
def test_whole_files_begin_on_pages(page_align: int, align: int) -> None:
    files = [FileShape(size, align) for size in (100_000, 0, 1, 70_000, 65_536)]
    plan = plan_whole_files(files, page_align=page_align)
    check_shape(plan, files)
    assert [extent[:3] for extent in plan.extents] == [
        (0, 0, 100_000),
        (2, 0, 1),
        (3, 0, 70_000),
        (4, 0, 65_536),
    ]
    assert all(extent.destination % page_align == 0 for extent in plan.extents)
    assert plan.read_bytes == plan.wanted_bytes == 235_537
    assert plan.destination_of(3, 12) == plan.extents[2].destination + 12


def test_the_last_block_of_a_whole_file_is_reserved_too() -> None:
    files = [FileShape(100_001, 64 * KIB), FileShape(5000, PAGE)]
    plan = plan_whole_files(files)
    check_shape(plan, files)
    assert plan.extents[1].destination == 128 * KIB
    assert plan.space_bytes == 128 * KIB + 2 * PAGE


def test_headers_that_are_known_are_not_read_again() -> None:
    files = [
        FileShape(1 << 20, PAGE, 3 * PAGE + 8),
        FileShape(100, PAGE, 100),
        FileShape(100, 1, 9),
    ]
    plan = plan_whole_files(files, page_align=64 * KIB)
    check_shape(plan, files)
    first, second, third = plan.extents
    assert first == Extent(0, 3 * PAGE, (1 << 20) - 3 * PAGE, 3 * PAGE)
    assert second[:3] == (1, 0, 100)
    assert third[:3] == (2, 9, 91)
    assert third.destination % (64 * KIB) == 9


def test_a_plan_prints_itself_in_a_few_lines() -> None:
    files = moe_headers(tensors=6144, shards=2)
    plan = plan_of(files, one_in_eight())
    assert "extents of 2 files" in repr(plan)
    assert len(repr(plan)) < 200
    text = str(plan)
    assert text.startswith(repr(plan))
    assert f"{plan.extents[0].file_offset} + {plan.extents[0].length} -> 0" in text
    assert len(text.splitlines()) < 30
    assert "0 extents" in str(plan_tensors([], []))


def test_the_generated_headers_are_what_they_claim() -> None:
    files = moe_headers(tensors=1000, shards=3, order="dtype")
    assert all(isinstance(file, HeaderOnly) for file in files)
    tensors = [tensor for file in files for tensor in file.parse().tensors]
    assert len({tensor.name for tensor in tensors}) == 1000
    assert {tensor.dtype for tensor in tensors} == {"F8_E4M3", "F32"}
    first = files[0].parse().tensors
    assert [tensor.dtype for tensor in first] == sorted(tensor.dtype for tensor in first)
