"""Which device memory a load needs, in what order, and which tensors have to move in it.

A window is device memory for whole blocks of the plan's destination space. Tensors never straddle
windows, so each is a view of one; the block in which one window ends and the next one begins may
belong to both. A window lies on a multiple of ``tensor_align`` and begins with a whole block: a
tensor is aligned in it exactly if its destination is a multiple of ``tensor_align``.

A tensor that is not aligned moves, by a copy within the device, to memory that starts where
kernels want it. Headers are padded to 8 bytes, so all of a real file may be misaligned: where more
than 1/8 of a window is, all of its tensors move, and the window itself is free again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fxload._errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MAX_WINDOW_BYTES", "Run", "Window", "WindowPlan", "block_size", "plan_windows"]

MAX_WINDOW_BYTES = 64 << 20
# What is not wanted takes device memory up to this; a wider gap starts a window of its own.
_MAX_GAP_BYTES = 256 << 10
_LEAST_BLOCK = 512
_EMPTIED_FROM = 8  # one part in so many
_SHOWN = 8


class Run(NamedTuple):
    """Neighbouring tensors, ``first`` to ``last`` (exclusive), that move by one copy.

    Destination bytes ``begin`` to ``end`` go to offset ``to`` of the memory that this window's
    runs move to.
    """

    first: int
    last: int
    begin: int
    end: int
    to: int


class Window(NamedTuple):
    """Destination bytes ``begin`` to ``end``, and tensors ``first`` to ``last`` (exclusive).

    ``runs`` are the tensors that move, into ``moved_bytes`` of memory; the others are views.
    ``emptied``: all of them move, and nothing needs the window afterwards.
    """

    begin: int
    end: int
    first: int
    last: int
    runs: tuple[Run, ...] = ()
    moved_bytes: int = 0
    emptied: bool = False

    @property
    def size_bytes(self) -> int:
        """Bytes of device memory that the window takes."""
        return self.end - self.begin


@dataclass(frozen=True, repr=False)
class WindowPlan:
    """Windows in the order in which they are needed.

    Attributes:
        windows: ascending; neighbours share at most one block.
        block_bytes: what windows begin and end on.
        tensor_bytes: bytes of the tensors.
        realigned_bytes: those of them that move.
    """

    windows: tuple[Window, ...]
    block_bytes: int
    tensor_bytes: int
    realigned_bytes: int

    def __repr__(self) -> str:
        return (
            f"<WindowPlan: {len(self.windows)} windows of {self.block_bytes}-byte blocks,"
            f" {sum(window.size_bytes for window in self.windows)} bytes for"
            f" {self.tensor_bytes} of tensors, {self.realigned_bytes} of them move>"
        )

    def __str__(self) -> str:
        lines = [repr(self)]
        for window in self.windows[:_SHOWN]:
            moves = ""
            if window.runs:
                moves = f", {'emptied' if window.emptied else 'partly moved'}"
                moves += f" by {len(window.runs)} copies into {window.moved_bytes}"
            lines.append(
                f"  {window.begin} to {window.end}: tensors {window.first} to {window.last}{moves}"
            )
        if len(self.windows) > _SHOWN:
            lines.append(f"  and {len(self.windows) - _SHOWN} more")
        return "\n".join(lines)


def block_size(tensor_align: int, copy_align: int = 1) -> int:
    """The block that suits storage, copies and tensors of a device. All are powers of two."""
    for align in (tensor_align, copy_align):
        if align < 1 or align & (align - 1):
            raise UsageError(f"an alignment of {align} bytes is no power of two")
    return max(_LEAST_BLOCK, tensor_align, copy_align)


def plan_windows(
    places: Sequence[tuple[int, int]],
    *,
    tensor_align: int,
    block_bytes: int,
    window_bytes: int = MAX_WINDOW_BYTES,
) -> WindowPlan:
    """Windows for tensors at these destinations.

    Args:
        places: begin and end of each tensor in the destination space, ascending; none is empty.
        tensor_align: bytes; where kernels want a tensor to start.
        block_bytes: a multiple of ``tensor_align``; see :func:`block_size`.
        window_bytes: the most that a window takes, unless a single tensor, with what lies wholly in
            its last block, needs more.

    Raises UsageError for tensors out of order, or of no bytes.
    """
    if block_bytes < 1 or block_bytes % tensor_align:
        raise UsageError(f"blocks of {block_bytes} bytes do not keep {tensor_align}-byte alignment")
    windows = []
    tensor_bytes = realigned_bytes = first = cursor = 0
    while first < len(places):
        last = first
        begin = places[first][0] // block_bytes * block_bytes
        misaligned = total = 0
        while last < len(places):
            tensor_begin, tensor_end = places[last]
            if not cursor <= tensor_begin < tensor_end:
                raise UsageError(f"tensor {last} is empty, or begins before its neighbour ends")
            block_end = -(-tensor_end // block_bytes) * block_bytes
            # A block counts as landed once the first window that holds it has it: what lies wholly
            # in the last one stays here.
            held_end = -(-cursor // block_bytes) * block_bytes
            if (
                last > first
                and block_end > held_end
                and (block_end - begin > window_bytes or tensor_begin - cursor > _MAX_GAP_BYTES)
            ):
                break
            cursor = tensor_end
            total += tensor_end - tensor_begin
            if tensor_begin % tensor_align:
                misaligned += tensor_end - tensor_begin
            last += 1
        end = -(-cursor // block_bytes) * block_bytes
        emptied = misaligned * _EMPTIED_FROM > total
        runs: tuple[Run, ...] = ()
        moved_bytes = 0
        if misaligned:
            runs, moved_bytes = _runs(places, first, last, tensor_align, everything=emptied)
        windows.append(Window(begin, end, first, last, runs, moved_bytes, emptied))
        tensor_bytes += total
        realigned_bytes += total if emptied else misaligned
        first = last
    return WindowPlan(tuple(windows), block_bytes, tensor_bytes, realigned_bytes)


def _runs(
    places: Sequence[tuple[int, int]], first: int, last: int, align: int, *, everything: bool
) -> tuple[tuple[Run, ...], int]:
    """Tensors that move, neighbours with one shift joined; and the bytes that they need."""
    runs: list[Run] = []
    run_first = run_begin = run_end = to = 0
    run_last = -1  # of the run that is being gathered; -1: there is none
    for number in range(first, last):
        begin, end = places[number]
        if not everything and begin % align == 0:
            continue
        joins = run_last == number and (begin - run_begin) % align == 0 and begin - run_end < align
        if not joins:
            if run_last >= 0:
                runs.append(Run(run_first, run_last, run_begin, run_end, to))
                to = -(-(to + run_end - run_begin) // align) * align
            run_first, run_begin = number, begin
        run_last, run_end = number + 1, end
    runs.append(Run(run_first, run_last, run_begin, run_end, to))
    return tuple(runs), to + run_end - run_begin
