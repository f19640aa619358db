"""Speaks to a stand-in runtime that this process has loaded, or will load.

Imports next to nothing, for scripts that watch their memory. tests/simulators/README.md describes
the names of controls and counters.
"""

from __future__ import annotations

import ctypes
import json
from typing import Any


class Controls:
    """The controls of one stand-in library in this process; thread-safe.

    Loads the library unless it is loaded already; the runtime keeps it until the process ends.
    """

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        for name in ("get", "violation", "report"):
            getattr(self._library, f"fxsim_{name}").restype = ctypes.c_long

    @property
    def library(self) -> ctypes.CDLL:
        """The library itself, to call the runtime's own functions."""
        return self._library

    def set(self, **values: int) -> None:
        """Set controls, at once: ``set(copy_delay_us=1000)``."""
        for name, value in values.items():
            if self._library.fxsim_set(name.encode(), ctypes.c_long(value)):
                raise KeyError(name)

    def get(self, name: str) -> int:
        """A control or a counter. Raises KeyError for neither."""
        found: int = self._library.fxsim_get(name.encode())
        if found == -1 and name != "hang_after":
            raise KeyError(name)
        return found

    def wait(self, name: str, value: int, timeout_s: float = 30.0) -> None:
        """Return once a counter has reached `value`; raises TimeoutError."""
        timeout_ms = ctypes.c_long(int(timeout_s * 1e3))
        if not self._library.fxsim_wait(name.encode(), ctypes.c_long(value), timeout_ms):
            raise TimeoutError(f"{name} is {self.get(name)} after {timeout_s} s, not {value}")

    def fail(self, function: str, nth: int, status: int) -> None:
        """Let the `nth` call from now (1: the next) answer `status`; "copy": when a copy runs."""
        self._library.fxsim_fail(function.encode(), ctypes.c_long(nth), status)

    def hold(self, stream: int, held: bool = True) -> None:
        """Let the copies of one stream wait, or run again. Raises KeyError for no stream."""
        if self._library.fxsim_hold(ctypes.c_void_p(stream), int(held)):
            raise KeyError(stream)

    def release(self) -> None:
        """No stream is held, nothing hangs."""
        self._library.fxsim_hold(None, 0)
        self.set(hang=0, hang_after=-1)

    def violations(self) -> list[str]:
        """What broke a rule so far (the first hundred)."""
        violations: list[str] = self.report()["violations"]
        return violations

    def report(self) -> dict[str, Any]:
        """What FXSIM_REPORT will get when the process ends, as of now."""
        size = 1 << 16
        while True:
            buffer = ctypes.create_string_buffer(size)
            length = self._library.fxsim_report(buffer, ctypes.c_long(size))
            if length < size:
                report: dict[str, Any] = json.loads(buffer.value)
                return report
            size = length + 1

    def reset(self) -> None:
        """Forget calls, traffic, violations, contexts and peaks; what lives goes on."""
        self._library.fxsim_reset()
