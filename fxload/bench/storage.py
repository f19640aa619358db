"""What the storage can deliver: bandwidth against request size and requests in flight.

Reads whole files through a ring of touched memory and throws the bytes away, so that nothing but
the storage is measured. The best cell is the roofline that loaders are judged by.
"""

from __future__ import annotations

import resource
import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from fxload._errors import UsageError
from fxload.bench.physical import evict, prove_cold, read_counters, resident
from fxload.bench.sample import Failure, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["Cell", "CellResult", "best_cells", "grid", "read_cell", "sweep"]

_POLL_S = 0.02
_MIN_REQUEST_BYTES = 4096


class Cell(NamedTuple):
    """One way to read: requests of this size, so many in flight."""

    request_bytes: int
    depth: int

    @property
    def label(self) -> str:
        """As people write it."""
        return f"{self.request_bytes >> 10} KiB x {self.depth}"


@dataclass
class CellResult:
    """A cell's samples, one for each round that could be proven, and its failures."""

    cell: Cell
    samples: list[Sample] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    @property
    def bytes_per_s(self) -> float:
        """The median; 0 without a sample."""
        rates = [sample.bytes_per_s for sample in self.samples]
        return statistics.median(rates) if rates else 0.0

    def as_json(self) -> dict[str, object]:
        """The cell, its figures and every sample."""
        return {
            "request_bytes": self.cell.request_bytes,
            "depth": self.cell.depth,
            "gb_per_s": self.bytes_per_s / 1e9,
            "cpu_s_per_gb": statistics.median([s.cpu_s_per_gb for s in self.samples] or [0.0]),
            "samples": [sample.as_json() for sample in self.samples],
            "failures": [failure.as_json() for failure in self.failures],
        }


def grid(requests: Iterable[int], depths: Iterable[int], memory_bytes: int) -> list[Cell]:
    """Every combination whose ring takes at most a quarter of ``memory_bytes``.

    Raises UsageError for sizes no reader takes, or if nothing is left.
    """
    requests, depths = list(requests), list(depths)
    for size in requests:
        if size < _MIN_REQUEST_BYTES or size & (size - 1):
            raise UsageError(
                f"requests of {size} bytes cannot be read", hint="give powers of two from 4KiB"
            )
    if any(depth < 1 for depth in depths):
        raise UsageError("a depth below 1 reads nothing")
    cells = [
        Cell(size, depth)
        for size in requests
        for depth in depths
        if size * depth <= memory_bytes // 4
    ]
    if not cells:
        raise UsageError(
            "no request size and depth fit into a quarter of the memory",
            hint="give smaller --requests or --depths",
        )
    return cells


def read_cell(
    paths: Sequence[str],
    cell: Cell,
    round_index: int,
    *,
    engine: str = "auto",
    limit_s: float | None = None,
    timeout_s: float = 600.0,
) -> Sample | Failure:
    """Read the files once, cold. After ``limit_s`` the read stops and is rated by what it got."""
    from fxload._native import FileSet, Transfer

    evict(paths)
    resident_before = resident(paths)
    files = FileSet(paths)
    try:
        counters = read_counters(paths)
        transfer = Transfer(
            files,
            digest=False,
            engine=engine,
            request_bytes=cell.request_bytes,
            depth=cell.depth,
            ring_bytes=cell.request_bytes * cell.depth,
            use_page_cache=False,
        )
        # The ring has been touched by now; the reads have just begun.
        cpu_s = _cpu_s()
        start_s = time.perf_counter()
        try:
            end_s = start_s + (timeout_s if limit_s is None else limit_s)
            done = transfer.wait(_POLL_S)
            while not done and time.perf_counter() < end_s:
                done = transfer.wait(min(_POLL_S * 5, max(0.0, end_s - time.perf_counter())))
            stats = transfer.stats()
            elapsed_s = time.perf_counter() - start_s
            cpu_s = _cpu_s() - cpu_s
        finally:
            transfer.close()
        # What was still in flight when the clock stopped has arrived by now: more, never less.
        spent = read_counters(paths).since(counters)
    finally:
        files.close()
    if not done and limit_s is None:
        return Failure(round_index, "failed", f"not read within {timeout_s:.0f} s")
    read_bytes = int(stats["done_bytes"])
    if read_bytes == 0:
        return Failure(round_index, "failed", f"no byte arrived within {elapsed_s:.1f} s")
    proof = prove_cold(spent, resident_before, read_bytes)
    if not proof.cold:
        return Failure(round_index, "not_cold", proof.reason)
    return Sample(
        round_index=round_index,
        payload_bytes=read_bytes,
        elapsed_s=float(stats["elapsed_s"]) if done else elapsed_s,
        cpu_s=cpu_s,
        proof=proof,
        details={"complete": done, **{str(key): value for key, value in stats.items()}},
    )


def sweep(
    paths: Sequence[str],
    cells: Sequence[Cell],
    *,
    rounds: int = 1,
    engine: str = "auto",
    limit_s: float | None = None,
    progress: Callable[[Cell, int, int], None] | None = None,
) -> list[CellResult]:
    """Read the files once for each cell and round, the order turned from round to round."""
    results = [CellResult(cell) for cell in cells]
    done = 0
    for round_index in range(rounds):
        start = round_index * len(results) // max(rounds, 1)
        for result in results[start:] + results[:start]:
            if progress is not None:
                progress(result.cell, done, rounds * len(results))
            outcome = read_cell(paths, result.cell, round_index, engine=engine, limit_s=limit_s)
            if isinstance(outcome, Sample):
                result.samples.append(outcome)
            else:
                result.failures.append(outcome)
            done += 1
    return results


def best_cells(results: Iterable[CellResult], count: int = 1) -> list[CellResult]:
    """The fastest cells first."""
    measured = [result for result in results if result.samples]
    return sorted(measured, key=lambda result: result.bytes_per_s, reverse=True)[:count]


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
