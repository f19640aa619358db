"""Chooses which bytes to read so that every wanted byte is read, with a bounded surplus.

The surplus buys two things: gaps between wanted bytes are bridged, so that there are fewer
requests, and spans are widened to the file's alignment, so that they can be read directly.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    # File number, begin, end.
    Span: TypeAlias = tuple[int, int, int]

__all__ = ["Span", "choose_spans"]


def choose_spans(
    spans: Sequence[Span],
    aligns: Sequence[int],
    sizes: Sequence[int],
    surplus_bytes: int,
    max_gap_bytes: int,
) -> list[Span]:
    """Spans that cover ``spans`` (ascending, disjoint) and sum up to at most the surplus more.

    A chosen span may overlap the next one in the file; it never contains the next one's begin
    without containing, or being followed by, all of its bytes.
    """
    # Widening pays most, so it keeps what bridging may not use.
    bridged, spent = _bridge(spans, surplus_bytes * 3 // 5, max_gap_bytes)
    return _widen(bridged, aligns, sizes, surplus_bytes - spent)


def _bridge(
    spans: Sequence[Span], surplus_bytes: int, max_gap_bytes: int
) -> tuple[list[Span], int]:
    """Join neighbours over the smallest gaps that the surplus pays for."""
    gaps = [
        (right[1] - left[2], position)
        for position, (left, right) in enumerate(pairwise(spans), 1)
        if left[0] == right[0] and right[1] - left[2] <= max_gap_bytes
    ]
    gaps.sort()
    bought = _affordable([gap for gap, _ in gaps], surplus_bytes)
    joined = {position for _, position in gaps[:bought]}
    result: list[Span] = []
    for position, span in enumerate(spans):
        if position in joined:
            file, begin, _ = result[-1]
            result[-1] = (file, begin, span[2])
        else:
            result.append(span)
    return result, sum(gap for gap, _ in gaps[:bought])


def _widen(
    spans: Sequence[Span], aligns: Sequence[int], sizes: Sequence[int], surplus_bytes: int
) -> list[Span]:
    """Widen spans to their file's alignment, those first that gain most direct bytes by it."""
    wide: list[Span] = []
    costs: list[tuple[float, int, int]] = []
    for position, (file, begin, end) in enumerate(spans):
        align = aligns[file]
        low = begin - begin % align
        high = min(-(-end // align) * align, sizes[file])
        wide.append((file, low, high))
        cost = (high - low) - (end - begin)
        costs.append((cost / (end - begin), position, cost))
    costs.sort()
    bought = _affordable([cost for _, _, cost in costs], surplus_bytes)
    chosen = {position for _, position, _ in costs[:bought]}

    result: list[Span] = []
    is_wide: list[bool] = []
    for position, exact in enumerate(spans):
        direct = position in chosen
        file, begin, end = wide[position] if direct else exact
        if direct:
            # Exact spans before it may lie in the same block.
            while result and result[-1][0] == file and result[-1][1] >= begin:
                result.pop()
                is_wide.pop()
        if result and result[-1][0] == file and is_wide[-1]:
            _, previous_begin, previous_end = result[-1]
            if end <= previous_end:
                continue
            if direct and begin <= previous_end:
                result[-1] = (file, previous_begin, end)
                continue
        result.append((file, begin, end))
        is_wide.append(direct)
    return result


def _affordable(costs: Sequence[int], surplus_bytes: int) -> int:
    """How many of these, from the first on, the surplus pays for."""
    return sum(total <= surplus_bytes for total in accumulate(costs))
