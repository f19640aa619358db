"""Loaders against each other, and against what the storage or the memory can deliver.

Every load runs in a fresh process. The loaders of a round follow each other, and the order turns
from round to round, so that whatever drifts on the machine drifts for all. The limit is measured
in the same rounds: cold, the best way to read these files; cached, a parallel copy into fresh
memory.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fxload._errors import CapacityError, UsageError
from fxload.bench.device import on_host
from fxload.bench.peers import Job, loader_named
from fxload.bench.runner import run_job
from fxload.bench.sample import Failure, Sample
from fxload.bench.storage import CellResult, best_cells, grid, read_cell, sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fxload.bench.peers import LoaderSpec

__all__ = ["Entry", "LoadComparison", "LoadPlan", "compare_loaders"]

_ATTEMPTS = 3  # of a run that cannot be proven cold
_LIMIT_REQUESTS = (1 << 20, 4 << 20, 8 << 20)
_LIMIT_DEPTHS = (4, 16, 32, 128)
_LIMIT_CELL_S = 3.0
_LIMIT_FINALISTS = 2
_FINAL_KINDS = frozenset({"missing", "unusable"})
_GIVE_UP_AFTER = 2


@dataclass(frozen=True)
class LoadPlan:
    """What to compare. ``loaders`` are names; the first is the one the others are compared to."""

    model: str
    paths: tuple[str, ...]
    payload_bytes: int
    loaders: tuple[str, ...]
    rounds: int
    cold: bool
    prefault: bool = False
    engine: str = "auto"
    digest: bool = False
    timeout_s: float = 1800.0
    memory_bytes: int = 1 << 40
    device: str = "cpu"
    raw: bool = False
    ring_bytes: int | None = None

    def job(self, loader: str, verify: bool) -> Job:
        """The worker's orders for one load."""
        own = loader == "fxload"
        return Job(
            loader=loader,
            model=self.model,
            paths=self.paths,
            payload_bytes=self.payload_bytes,
            engine=self.engine if own else "auto",
            digest=self.digest and own,
            prefault=self.prefault and own,
            verify=verify,
            device=self.device,
            raw=self.raw,
            ring_bytes=self.ring_bytes if own else None,
        )


@dataclass
class Entry:
    """A loader's samples and failures; ``given_up`` says that no more rounds were tried."""

    spec: LoaderSpec
    samples: list[Sample] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    given_up: bool = False
    content: str | None = None


@dataclass
class LoadComparison:
    """Everything that was measured. ``limit`` is the cell (cold) or copy that bounds the rest."""

    plan: LoadPlan
    entries: list[Entry]
    sweep: list[CellResult]
    finalists: list[CellResult]
    copies: list[Sample]

    @property
    def limit_samples(self) -> list[Sample]:
        """One for each round: of the fastest finalist, or of the memory copy."""
        if not self.plan.cold:
            return self.copies
        best = best_cells(self.finalists)
        return best[0].samples if best else []

    @property
    def limit_bytes_per_s(self) -> float:
        """The median; 0 where it could not be measured."""
        rates = [sample.bytes_per_s for sample in self.limit_samples]
        return statistics.median(rates) if rates else 0.0


def compare_loaders(
    plan: LoadPlan, progress: Callable[[str, int, int], None] | None = None
) -> LoadComparison:
    """Run all rounds. ``progress`` gets what is being run, runs done and runs in all.

    Raises UsageError for an unknown loader, or for cold rounds of files that are in memory;
    CapacityError for a model that the memory cannot hold.
    """
    entries = [Entry(loader_named(name)) for name in dict.fromkeys(plan.loaders)]
    if plan.rounds < 1:
        raise UsageError("--rounds wants at least 1")
    if on_host(plan.device) and plan.payload_bytes > plan.memory_bytes:
        raise CapacityError(
            f"{plan.payload_bytes} bytes of tensors do not fit into the {plan.memory_bytes} "
            "bytes of memory that are available",
            path=plan.model,
            hint="measure a smaller model, or raise the memory limit",
        )
    comparison = LoadComparison(plan, entries, [], [], [])
    if plan.cold:
        _refuse_memory_files(plan.paths)
        cells = grid(_LIMIT_REQUESTS, _LIMIT_DEPTHS, plan.memory_bytes)
        steps = _Steps(progress, len(cells) + plan.rounds * (len(entries) + _LIMIT_FINALISTS))
        for cell in cells:
            steps.next(f"storage {cell.label}")
            comparison.sweep += sweep(plan.paths, [cell], limit_s=_LIMIT_CELL_S)
        finalists = best_cells(comparison.sweep, _LIMIT_FINALISTS)
        comparison.finalists = [CellResult(result.cell) for result in finalists]
    else:
        steps = _Steps(progress, plan.rounds * (len(entries) + 1))
    for round_index in range(plan.rounds):
        _run_round(comparison, round_index, steps)
    _compare_content(comparison)
    return comparison


class _Steps:
    """Counts runs for whoever watches."""

    def __init__(self, progress: Callable[[str, int, int], None] | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def next(self, name: str) -> None:
        if self._progress is not None:
            self._progress(name, self._done, self._total)
        self._done += 1


def _run_round(comparison: LoadComparison, round_index: int, steps: _Steps) -> None:
    plan = comparison.plan
    turns: list[Entry | CellResult | None] = [*comparison.entries, *comparison.finalists]
    if not plan.cold:
        turns.append(None)
    first = round_index % len(turns)
    place = f"round {round_index + 1} of {plan.rounds}"
    for turn in turns[first:] + turns[:first]:
        if isinstance(turn, Entry):
            steps.next(f"{place}: {turn.spec.name}")
            _run_entry(plan, turn, round_index)
        elif isinstance(turn, CellResult):
            steps.next(f"{place}: storage {turn.cell.label}")
            _run_cell(plan, turn, round_index)
        else:
            steps.next(f"{place}: memory copy")
            comparison.copies.append(_copy(plan, round_index))


def _run_entry(plan: LoadPlan, entry: Entry, round_index: int) -> None:
    if entry.given_up:
        return
    for _ in range(_ATTEMPTS):
        verify = entry.content is None
        job = plan.job(entry.spec.name, verify)
        run = run_job(job, round_index, cold=plan.cold, timeout_s=plan.timeout_s)
        if isinstance(run.outcome, Sample):
            entry.samples.append(run.outcome)
            entry.content = entry.content or run.content
            return
        entry.failures.append(run.outcome)
        if run.outcome.kind not in ("not_cold", "not_cached"):
            break
    kinds = [failure.kind for failure in entry.failures]
    broken = sum(kind not in ("not_cold", "not_cached") for kind in kinds)
    entry.given_up = kinds[-1] in _FINAL_KINDS or broken >= _GIVE_UP_AFTER


def _run_cell(plan: LoadPlan, result: CellResult, round_index: int) -> None:
    for _ in range(_ATTEMPTS):
        outcome = read_cell(plan.paths, result.cell, round_index, timeout_s=plan.timeout_s)
        if isinstance(outcome, Sample):
            result.samples.append(outcome)
            return
        result.failures.append(outcome)


def _copy(plan: LoadPlan, round_index: int) -> Sample:
    from fxload._native import copy_bandwidth

    rate = max(
        copy_bandwidth(plan.payload_bytes, fresh=True, huge_pages=huge) for huge in (True, False)
    )
    return Sample(round_index, plan.payload_bytes, plan.payload_bytes / rate, 0.0)


def _compare_content(comparison: LoadComparison) -> None:
    """A loader whose bytes differ from the reference's has not loaded the model."""
    known = [entry for entry in comparison.entries if entry.content is not None]
    reference = next((entry for entry in known if entry.spec.module == "reference"), None)
    reference = reference or (known[0] if known else None)
    for entry in known:
        if reference is not None and entry.content != reference.content:
            reason = f"its tensors differ from those of {reference.spec.name}"
            entry.failures.append(Failure(0, "wrong_content", reason))
            entry.samples.clear()


def _refuse_memory_files(paths: Sequence[str]) -> None:
    from fxload._native import FileSet

    files = FileSet(list(paths))
    try:
        kinds = {info.file_system: info.path for info in files.infos}
    finally:
        files.close()
    for kind in ("tmpfs", "ramfs"):
        if kind in kinds:
            raise UsageError(
                f"lies on {kind}: a file in memory has no cold read",
                path=kinds[kind],
                hint="use --no-cold, or a model on storage",
            )
