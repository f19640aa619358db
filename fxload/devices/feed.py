"""Gives a load its windows: a few ahead of the consumer, within the budget."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from fxload._errors import OutOfMemoryError
from fxload.devices.memory import Ledger

if TYPE_CHECKING:
    from fxload._native import DeviceLoad
    from fxload.devices.memory import DeviceMemory
    from fxload.devices.windows import Window, WindowPlan

__all__ = ["WindowFeed"]

# The copies must not wait for a consumer that is busy with one window: 256 MiB are 10 ms of the
# fastest links.
_AHEAD_BYTES = 256 << 20


class WindowFeed:
    """Allocates windows in order and places them in the load. Not thread-safe.

    Memory counts against the budget as long as anything holds it. The windows ahead wait while it
    is used up; the one that the consumer needs next never does: that is counted.
    """

    def __init__(
        self, load: DeviceLoad, memory: DeviceMemory, plan: WindowPlan, budget_bytes: int | None
    ) -> None:
        self._load = load
        self._memory = memory
        self._windows = plan.windows
        self._budget_bytes = budget_bytes
        self._ledger = Ledger()
        self._placed: deque[Any] = deque()
        self.first = 0  # the first window, by number, that is not taken
        self._ahead_bytes = 0
        self._owed_bytes = 0  # what the placed windows' tensors will move to
        self._exceeded = False
        self.over_budget_bytes = 0
        if not self._windows:
            load.place(0, 0, 0, None, None)

    @property
    def next(self) -> int:
        """The first window, by number, that is not placed."""
        return self.first + len(self._placed)

    @property
    def peak_bytes(self) -> int | None:
        """The most device memory that was alive at once; None without a budget."""
        return None if self._budget_bytes is None else self._ledger.peak_bytes

    def take(self, number: int) -> Any:
        """The block of window ``number``, which leaves the feed; called in order.

        Raises OutOfMemoryError, DeviceError.
        """
        while self.next <= number:
            self._place()
        self.first += 1
        block = self._placed.popleft()
        self._ahead_bytes -= block.size_bytes
        self._exceeded = False
        return block

    def fill(self) -> None:
        """Place windows ahead, as far as memory and budget go."""
        # A consumer that keeps everything is asked once a window: the answer takes time.
        while not self._exceeded and self.next < len(self._windows):
            window = self._windows[self.next]
            if self._ahead_bytes and self._ahead_bytes + window.size_bytes > _AHEAD_BYTES:
                return
            if not self._fits(window):
                return
            try:
                self._place()
            except OutOfMemoryError:
                # The consumer may still let go of some: it is told once it needs the window.
                return

    def memory_to_move_to(self, window: Window) -> Any:
        """A block for the tensors of a window that move. Raises as take()."""
        block = self._allocate(window.moved_bytes)
        self._owed_bytes -= window.moved_bytes
        return block

    def _fits(self, window: Window) -> bool:
        if self._budget_bytes is None:
            return True
        live = self._ledger.live_bytes() + self._owed_bytes
        self._exceeded = live > self._budget_bytes
        return live + window.size_bytes + window.moved_bytes <= self._budget_bytes

    def _place(self) -> None:
        number = self.next
        window = self._windows[number]
        if not self._fits(window):
            self.over_budget_bytes += window.size_bytes + window.moved_bytes
        block = self._allocate(window.size_bytes)
        following = self._windows[number + 1].begin if number + 1 < len(self._windows) else None
        self._load.place(
            window.begin,
            window.end,
            block.address,
            block.owner,
            following,
            after=self._memory.last_user(),
        )
        self._placed.append(block)
        self._ahead_bytes += block.size_bytes
        self._owed_bytes += window.moved_bytes

    def _allocate(self, size_bytes: int) -> Any:
        block = self._memory.allocate(size_bytes)
        self._ledger.add(block)
        if self._budget_bytes is not None:
            self._ledger.live_bytes()  # for its peak
        return block

    def drop(self) -> None:
        """Let go of all blocks; the load keeps those that copies may still write to."""
        self._placed.clear()
