"""A load to a device: reads land in a pinned ring, copies fill windows of device memory."""

from __future__ import annotations

import logging
from array import array
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fxload._errors import OutOfMemoryError, UsageError
from fxload._native import DeviceLoad, PinnedRing
from fxload.destination import wait_landed
from fxload.devices.feed import WindowFeed
from fxload.devices.fork import ForkGuard
from fxload.devices.ring import SLOT_BYTES, local_ranks, ring_size
from fxload.devices.windows import MAX_WINDOW_BYTES, block_size, plan_windows
from fxload.host_memory import read_host_memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fxload._native import FileInfo, FileSet
    from fxload.checkpoint.header import TensorInfo
    from fxload.checkpoint.plan import ReadPlan
    from fxload.devices.memory import DeviceMemory
    from fxload.devices.resolve import Target
    from fxload.devices.windows import Window
    from fxload.load_options import LoadOptions

__all__ = ["DeviceDestination"]

_log = logging.getLogger(__name__)

_WAIT_S = 1.0
# A budget has room for a few windows: one in use, one that moves, and some ahead.
_WINDOWS_OF_BUDGET = 8
_LEAST_WINDOW_BYTES = 8 << 20
# Between two looks at whether the consumer has let go of device memory.
_LOOK_BYTES = 8 << 20


@dataclass
class _Staged:
    """A window whose tensors are about to be handed out.

    ``block`` holds those that stay; None once all have moved. ``moved`` holds the others, as soon
    as the copies of ``ticket`` have run, which ``arrived`` says.
    """

    window: Window
    block: Any
    moved: Any = None
    ticket: int | None = None
    arrived: bool = False


class DeviceDestination:
    """Memory of one device: torch's, or the runtime's own where torch cannot use it."""

    def __init__(self, target: Target, model: str, options: LoadOptions) -> None:
        self.device = target.name
        self._target = target
        self._model = model
        self._options = options
        self._fork = ForkGuard()
        self._native = target.open()
        self.block_bytes = block_size(self._native.tensor_align, self._native.copy_align)
        self._ring: PinnedRing | None = None
        self._load: DeviceLoad | None = None
        self._feed: WindowFeed | None = None
        self._last_stats: dict[str, Any] | None = None
        self._landed = 0
        self.realigned_bytes = 0

    def start(self, files: FileSet, plan: ReadPlan) -> None:
        """Raises OutOfMemoryError where the host has no room for the ring, DeviceError."""
        self._plan = plan
        options = self._options
        self._ring = PinnedRing(
            self._native,
            _checked_ring_size(plan, options, self._model),
            slot_bytes=SLOT_BYTES,
            probe_path=next((info.path for info in files.infos if info.direct), None),
        )
        if not self._ring.pinned:
            # Right, but slow: each copy then waits, and keeps a processor busy.
            _log.warning("copies to %s run unpinned: %s", self.device, self._ring.reason)
        self._load = DeviceLoad(
            files,
            plan.packed(),
            plan.space_bytes,
            device=self._native,
            ring=self._ring,
            block_bytes=self.block_bytes,
            engine=options.engine,
            depth=options.depth,
            digest=options.digest,
            stall_timeout_s=options.stall_timeout_s,
        )

    def expect(self, wanted: Sequence[Sequence[TensorInfo]], infos: Sequence[FileInfo]) -> None:
        """Plan the windows, and place the first of them."""
        load = self._started()
        self._wanted = wanted
        self._infos = infos
        places = []
        for number, tensors in enumerate(wanted):
            placements = self._plan.placements(number, tensors)
            places += [
                (begin, begin + tensor.end - tensor.begin)
                for tensor, begin in zip(tensors, placements, strict=True)
                if tensor.begin < tensor.end
            ]
        self._places = places
        budget_bytes = self._options.device_memory_budget
        self._windows = plan_windows(
            places,
            tensor_align=self._native.tensor_align,
            block_bytes=self.block_bytes,
            window_bytes=_window_bytes(budget_bytes, self.block_bytes),
        )
        self._memory = self._make_memory()
        self._feed = WindowFeed(load, self._memory, self._windows, budget_bytes)
        self._feed.fill()

    def _make_memory(self) -> DeviceMemory:
        from fxload.tensors import TorchTypes

        self._types = TorchTypes()
        if self._target.torch_type is None:
            from fxload.devices.raw_windows import RawMemory

            return RawMemory(self.device, self._native, self._types)
        from fxload.devices.torch_windows import TorchMemory

        return TorchMemory(self.device, self._native, self._types)

    def tensors(self) -> Iterator[tuple[str, Any]]:
        """Views of the windows, or of the memory that their tensors moved to."""
        for tensors, info in zip(self._wanted, self._infos, strict=True):
            for tensor in tensors:
                self._types.check(tensor, info.path)
        places = self._places_in_memory()
        for tensors in self._wanted:
            for tensor in tensors:
                self._fork.check(self._model)
                if tensor.begin == tensor.end:
                    yield tensor.name, self._memory.empty(tensor)
                    continue
                # One expression: a name in this frame would keep the last tensor's memory alive.
                yield tensor.name, self._memory.make(*next(places), tensor)

    def _places_in_memory(self) -> Iterator[tuple[Any, int]]:
        """Block and offset of each tensor that holds bytes, once they are there."""
        windows = self._windows.windows
        following: _Staged | None = None
        for number, window in enumerate(windows):
            staged = following or self._take(number)
            following = None
            self._fed().fill()
            if window.emptied:
                self._begin_move(staged)
            if self._may_move(number + 1):
                following = self._take(number + 1)
                # Its move runs beside the copies into later windows, and not behind them. Where
                # there is no memory for that yet, the consumer may still let go of some.
                with suppress(OutOfMemoryError):
                    self._begin_move(following)
            yield from self._places_in(staged)
            # The next window may need the memory that the consumer has let go of.
            del staged

    def _places_in(self, staged: _Staged) -> Iterator[tuple[Any, int]]:
        window = staged.window
        looked = window.begin
        runs = iter(window.runs)
        run = next(runs, None)
        for number in range(window.first, window.last):
            begin, end = self._places[number]
            if begin - looked >= _LOOK_BYTES:
                looked = begin
                self._fed().fill()
            while run is not None and run.last <= number:
                run = next(runs, None)
            if run is not None and run.first <= number:
                self._begin_move(staged)
                self._await_move(staged)
                yield staged.moved, run.to + begin - run.begin
            else:
                self._wait_past(end)
                yield staged.block, begin - window.begin

    def _take(self, number: int) -> _Staged:
        return _Staged(self._windows.windows[number], self._fed().take(number))

    def _may_move(self, number: int) -> bool:
        """Whether all of this window is on the device, and nothing but its move is left to do."""
        if not self._fed().first <= number < self._fed().next:
            return False
        window = self._windows.windows[number]
        return window.emptied and self._started().wait_past(window.runs[-1].end, 0) >= (
            window.runs[-1].end
        )

    def _begin_move(self, staged: _Staged) -> None:
        if staged.ticket is not None:
            return
        window = staged.window
        self._wait_past(window.runs[-1].end)
        block = staged.block
        staged.moved = moved = self._fed().memory_to_move_to(window)
        shift = block.address - window.begin
        moves = array("Q")
        for run in window.runs:
            moves.extend((moved.address + run.to, shift + run.begin, run.end - run.begin))
            self.realigned_bytes += run.end - run.begin
        owners = (block.owner, moved.owner)
        staged.ticket = self._started().move(moves, owners, after=self._memory.last_user())
        if window.emptied:
            staged.block = None

    def _await_move(self, staged: _Staged) -> None:
        if staged.arrived:
            return
        assert staged.ticket is not None
        while not self._started().wait_moved(staged.ticket, _WAIT_S):
            pass
        staged.arrived = True

    def finish(self) -> None:
        """Wait for what belongs to no window."""
        self._fork.check(self._model)
        self._wait_past(self._plan.space_bytes)

    def _wait_past(self, end: int) -> None:
        if end > self._landed:
            self._landed = wait_landed(self._started(), end, self._options.progress)

    def digests(self) -> list[str]:
        """The core's."""
        return self._started().digests()

    def stats(self) -> dict[str, Any]:
        """The core's, and: platform, device_name, ring_method, ring_reason, ring_numa_node,
        ring_takes_direct_reads, windows, window_bytes, device_peak_bytes (None without a budget),
        over_budget_bytes."""
        if self._last_stats is not None:
            return self._last_stats
        stats = self._started().stats()
        stats |= {"platform": self._native.platform, "device_name": self._native.name}
        if self._ring is not None:
            stats |= {
                "ring_method": self._ring.method,
                "ring_reason": self._ring.reason,
                "ring_numa_node": self._ring.numa_node,
                "ring_takes_direct_reads": self._ring.takes_direct_reads,
            }
        if self._feed is not None:
            windows = self._windows.windows
            stats |= {
                "windows": len(windows),
                "window_bytes": sum(window.size_bytes for window in windows),
                "device_peak_bytes": self._feed.peak_bytes,
                "over_budget_bytes": self._feed.over_budget_bytes,
            }
        return stats

    def close(self, timeout_s: float) -> None:
        """What a late read or copy may still touch stays alive until it is through."""
        if self._feed is not None:
            self._feed.drop()
        if self._load is not None:
            held = self._load.close(timeout_s)
            if self._fork.is_owner:
                self._last_stats = self.stats()
                if not held and self._ring is not None:
                    self._ring.close()
        # The ring's memory goes with the last who holds it: the load's threads, if they must.
        self._load = self._ring = self._feed = None

    def _started(self) -> DeviceLoad:
        if self._load is None:
            raise UsageError("the checkpoint is closed", path=self._model)
        return self._load

    def _fed(self) -> WindowFeed:
        if self._feed is None:
            raise UsageError("the checkpoint is closed", path=self._model)
        return self._feed


def _window_bytes(budget_bytes: int | None, block_bytes: int) -> int:
    if budget_bytes is None:
        return MAX_WINDOW_BYTES
    wanted = min(MAX_WINDOW_BYTES, max(_LEAST_WINDOW_BYTES, budget_bytes // _WINDOWS_OF_BUDGET))
    return wanted // block_bytes * block_bytes


def _checked_ring_size(plan: ReadPlan, options: LoadOptions, model: str) -> int:
    memory = read_host_memory()
    size_bytes = ring_size(
        plan.read_bytes,
        memory_limit_bytes=memory.limit_bytes,
        ranks=local_ranks(),
        asked_bytes=options.ring_bytes,
        slot_bytes=SLOT_BYTES,
    )
    if size_bytes > memory.available_bytes:
        raise OutOfMemoryError(
            f"the pinned ring needs {size_bytes} bytes of memory, {memory.available_bytes} are left"
            f" ({memory.limited_by})",
            path=model,
            hint="raise the limit, or ask for a smaller ring (ring_bytes=…)",
        )
    return size_bytes
