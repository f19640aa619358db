"""What to read, and where it goes: decided before the first byte, as a value that can be printed.

A plan is a list of extents. An extent is *direct* if it begins and ends on the file's alignment
(or ends with the file): it can then be read past the page cache, straight to its destination,
which is congruent to the file offset. Any other extent is exact: read through the page cache.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from math import lcm
from typing import TYPE_CHECKING, NamedTuple

from fxload._errors import UsageError
from fxload.checkpoint._coalesce import choose_spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fxload.checkpoint._coalesce import Span
    from fxload.checkpoint.header import TensorInfo

__all__ = ["Extent", "FileShape", "ReadPlan", "plan_tensors", "plan_whole_files"]


class Extent(NamedTuple):
    """``length`` bytes of file ``file`` (its number in the plan) that go to ``destination``."""

    file: int
    file_offset: int
    length: int
    destination: int


@dataclass(frozen=True)
class FileShape:
    """A file as the planner sees it.

    ``align`` is what direct reads ask of offsets, lengths and memory, in bytes; 1 where the file
    is not read directly. ``header_bytes`` at its start need not be read again.
    """

    size_bytes: int
    align: int = 1
    header_bytes: int = 0

    def __post_init__(self) -> None:
        if self.size_bytes < 0 or self.align < 1:
            raise UsageError(f"a file of {self.size_bytes} bytes, alignment {self.align}")


@dataclass(frozen=True, repr=False)
class ReadPlan:
    """Extents, ascending and disjoint in destination; file by file, each in storage order.

    Attributes:
        extents: what to read.
        space_bytes: destination bytes, alignment included.
        wanted_bytes: bytes that were asked for.
        read_bytes: bytes that the extents read.
    """

    extents: tuple[Extent, ...]
    space_bytes: int
    wanted_bytes: int
    read_bytes: int

    def packed(self) -> array[int]:
        """The extents as uint64, four to an extent: what the core takes."""
        return array("Q", [number for extent in self.extents for number in extent])

    def destination_of(self, file: int, offset: int) -> int:
        """Where the byte at ``offset`` of a file goes. Raises UsageError if it is not read."""
        starts, extents = self._by_file.get(file, _NOTHING)
        position = bisect_right(starts, offset) - 1
        if position >= 0:
            _, file_offset, length, destination = extents[position]
            if offset < file_offset + length:
                return destination + offset - file_offset
        raise UsageError(f"byte {offset} of file {file} is not in the plan")

    def placements(self, file: int, tensors: Iterable[TensorInfo]) -> list[int]:
        """The destination of each tensor of a file, in the given order.

        Tensors of 0 bytes need no read: each stands where the tensor before it ends.
        Raises UsageError for a tensor that the plan does not read.
        """
        starts, extents = self._by_file.get(file, _NOTHING)
        begin = end = shift = previous_end = 0
        placed = []
        for _, _, _, first, last in tensors:
            if first == last:
                placed.append(previous_end)
                continue
            if not begin <= first < last <= end:
                position = bisect_right(starts, first) - 1
                if position < 0 or extents[position][1] + extents[position][2] < last:
                    raise UsageError(f"bytes {first} to {last} of file {file} are not in the plan")
                _, begin, length, destination = extents[position]
                end, shift = begin + length, destination - begin
            placed.append(first + shift)
            previous_end = last + shift
        return placed

    @cached_property
    def _by_file(self) -> dict[int, tuple[list[int], list[Extent]]]:
        found: dict[int, tuple[list[int], list[Extent]]] = defaultdict(lambda: ([], []))
        for extent in self.extents:
            starts, extents = found[extent.file]
            starts.append(extent.file_offset)
            extents.append(extent)
        return dict(found)

    def __repr__(self) -> str:
        ratio = self.read_bytes / self.wanted_bytes if self.wanted_bytes else 1.0
        return (
            f"<ReadPlan: {len(self.extents)} extents of {len(self._by_file)} files,"
            f" {self.read_bytes} bytes read for {self.wanted_bytes} wanted ({ratio:.4f}),"
            f" into {self.space_bytes}>"
        )

    def __str__(self) -> str:
        lines = [repr(self)]
        for file, (_, extents) in self._by_file.items():
            lengths = [extent.length for extent in extents]
            lines.append(
                f"  file {file}: {len(extents)} extents, {sum(lengths)} bytes,"
                f" each {min(lengths)} to {max(lengths)}"
            )
            lines += [
                f"    {extent.file_offset} + {extent.length} -> {extent.destination}"
                for extent in extents[:_SHOWN]
            ]
            if len(extents) > _SHOWN:
                lines.append(f"    and {len(extents) - _SHOWN} more")
        return "\n".join(lines)


_NOTHING: tuple[list[int], list[Extent]] = ([], [])
_SHOWN = 8


def plan_whole_files(
    files: Sequence[FileShape], *, page_align: int = 4096, block_bytes: int = 1
) -> ReadPlan:
    """Every byte of every file behind its ``header_bytes``, in order; needs no names.

    Destinations are congruent to file offsets modulo ``page_align``, ``block_bytes`` and the
    file's alignment, and nothing else lies in the last block that a direct read of its end may
    touch. No two extents touch one block of ``block_bytes``: what copies whole blocks, as loads
    to a device do, then writes nothing over another's bytes.
    """
    extents = []
    cursor = total = 0
    for number, file in enumerate(files):
        begin = file.header_bytes // file.align * file.align
        length = file.size_bytes - begin
        if not length:
            continue
        # Congruent to the file's offset, so that whatever is aligned in the file stays so.
        step = lcm(page_align, file.align, block_bytes)
        destination = _round_up(cursor, step) + begin % step
        extents.append(Extent(number, begin, length, destination))
        cursor = destination + _round_up(length, file.align)
        total += length
    return ReadPlan(tuple(extents), _round_up(cursor, block_bytes), total, total)


def plan_tensors(
    files: Sequence[FileShape],
    tensors: Sequence[Sequence[TensorInfo]],
    *,
    waste_percent: int = 5,
    max_gap_bytes: int = 64 << 10,
    block_bytes: int = 1,
) -> ReadPlan:
    """The wanted tensors of each file, and as little else as direct reads allow.

    Args:
        files: the files, in load order.
        tensors: the wanted tensors of each, in storage order.
        waste_percent: at most so much is read beyond the wanted bytes, for alignment and to
            bridge gaps, the cheapest first. What that does not pay for is read exactly.
        max_gap_bytes: a wider gap is never bridged: another request costs less.
        block_bytes: as in :func:`plan_whole_files`.

    Destinations are packed: at most one unit of a file's alignment, and one block, lie unused
    before an extent.
    Raises UsageError for tensors out of order or beyond the end of their file.
    """
    spans = [
        span
        for number, (file, chosen) in enumerate(zip(files, tensors, strict=True))
        for span in _touching(number, file, chosen)
    ]
    wanted = sum(end - begin for _, begin, end in spans)
    aligns = [file.align for file in files]
    sizes = [file.size_bytes for file in files]
    spans = choose_spans(spans, aligns, sizes, wanted * waste_percent // 100, max_gap_bytes)
    return _placed(spans, files, wanted, block_bytes)


def _touching(number: int, file: FileShape, tensors: Iterable[TensorInfo]) -> list[Span]:
    """The tensors' bytes, neighbours joined."""
    spans: list[Span] = []
    begin = end = 0
    for _, _, _, first, last in tensors:
        if first == last:
            continue
        if first != end:
            if first < end:
                raise UsageError(f"the tensors of file {number} are not in storage order")
            if end:
                spans.append((number, begin, end))
            begin = first
        end = last
    if end > file.size_bytes:
        raise UsageError(f"a tensor of file {number} ends at {end}, the file at {file.size_bytes}")
    if end:
        spans.append((number, begin, end))
    return spans


def _placed(
    spans: Iterable[Span], files: Sequence[FileShape], wanted: int, block_bytes: int
) -> ReadPlan:
    extents = []
    cursor = read = 0
    for number, begin, end in spans:
        file = files[number]
        length = end - begin
        modulus = lcm(_congruence(length), block_bytes)
        reserved = length
        if begin % file.align == 0 and (end % file.align == 0 or end == file.size_bytes):
            modulus = lcm(modulus, file.align)
            # A direct read of the last block may touch all of it.
            reserved = _round_up(length, file.align)
        destination = cursor + (begin - cursor) % modulus
        extents.append(Extent(number, begin, length, destination))
        # A whole number of blocks: the next extent begins in one of its own.
        cursor = _round_up(destination + reserved, block_bytes)
        read += length
    return ReadPlan(tuple(extents), cursor, wanted, read)


def _congruence(length: int) -> int:
    """Modulo what a destination keeps the offset in the file.

    8 keeps every element type aligned; more serves kernels, where it costs little space.
    """
    if length < 2048:
        return 8
    return 64 if length < 1 << 20 else 4096


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step
