"""Plans for what copies whole blocks: no block belongs to two extents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fxload.checkpoint import FileShape, TensorInfo, plan_tensors, plan_whole_files

if TYPE_CHECKING:
    from fxload.checkpoint import ReadPlan

KIB = 1 << 10


def check_blocks(plan: ReadPlan, block: int) -> None:
    cursor = 0
    for extent in plan.extents:
        assert extent.destination % block == extent.file_offset % block
        assert extent.destination // block * block >= cursor
        cursor = -(-(extent.destination + extent.length) // block) * block
    assert plan.space_bytes >= cursor
    assert plan.space_bytes % block == 0


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from([512, 4 * KIB, 64 * KIB]))
def test_extents_share_no_block(data: st.DataObject, block: int) -> None:
    files, wanted = [], []
    for _ in range(data.draw(st.integers(1, 4))):
        header = data.draw(st.integers(8, 9000))
        end = header
        chosen = []
        sizes = st.one_of(st.integers(0, 40), st.integers(0, 3000), st.just(50_000))
        for size, keep in data.draw(st.lists(st.tuples(sizes, st.booleans()), max_size=20)):
            begin, end = end, end + size
            if keep:
                chosen.append(TensorInfo("t", "U8", (size,), begin, end))
        align = data.draw(st.sampled_from([1, 512, 4 * KIB, 64 * KIB]))
        files.append(FileShape(end, align, data.draw(st.sampled_from([0, header]))))
        wanted.append(chosen)
    check_blocks(plan_tensors(files, wanted, block_bytes=block), block)
    check_blocks(plan_whole_files(files, block_bytes=block), block)
    check_blocks(plan_whole_files(files, block_bytes=block, page_align=64 * KIB), block)


@pytest.mark.parametrize("block", [512, 64 * KIB])
def test_without_blocks_neighbours_may_share_one(block: int) -> None:
    """The guard's own check: the plan of a load into host memory breaks the rule."""
    file = FileShape(1 << 20)
    tensors = [TensorInfo("t", "U8", (8,), begin, begin + 8) for begin in (100_000, 400_000)]
    with pytest.raises(AssertionError):
        check_blocks(plan_tensors([file], [tensors]), block)
    check_blocks(plan_tensors([file], [tensors], block_bytes=block), block)


def test_whole_files_of_exact_reads_begin_anywhere_in_a_block() -> None:
    plan = plan_whole_files([FileShape(100, 1, 9), FileShape(700, 1, 64)], block_bytes=512)
    assert [extent[1:] for extent in plan.extents] == [(9, 91, 9), (64, 636, 4096 + 64)]
    assert plan.space_bytes == 4096 + 1024
