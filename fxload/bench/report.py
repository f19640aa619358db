"""Figures from samples: medians, spreads, shares and ratios, ready for a table or JSON."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from fxload.bench.device import on_host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fxload.bench.load import Entry, LoadComparison, LoadPlan
    from fxload.bench.sample import Sample
    from fxload.bench.storage import CellResult

__all__ = ["LOAD_SCHEMA", "STORAGE_SCHEMA", "load_report", "spread", "storage_report"]

LOAD_SCHEMA = "fxload.bench.load/1"
STORAGE_SCHEMA = "fxload.bench.storage/1"


def spread(values: Iterable[float | None]) -> dict[str, float | int] | None:
    """Median, least, greatest and count of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return {
        "median": statistics.median(known),
        "min": min(known),
        "max": max(known),
        "count": len(known),
    }


def load_report(comparison: LoadComparison, machine: dict[str, object]) -> dict[str, object]:
    """All of a comparison as one JSON object."""
    plan = comparison.plan
    limit = comparison.limit_samples
    first = comparison.entries[0]
    return {
        "schema": LOAD_SCHEMA,
        "machine": machine,
        "model": {
            "path": plan.model,
            "files": len(plan.paths),
            "payload_bytes": plan.payload_bytes,
        },
        "options": {
            "rounds": plan.rounds,
            "cold": plan.cold,
            "prefault": plan.prefault,
            "engine": plan.engine,
            "digest": plan.digest,
            "device": plan.device,
            "raw": plan.raw,
        },
        "limit": {
            "what": "storage, best request size and depth" if plan.cold else "parallel memory copy",
            "gb_per_s": spread(sample.bytes_per_s / 1e9 for sample in limit),
            "samples": [sample.as_json() for sample in limit],
            "sweep": [result.as_json() for result in comparison.sweep],
            "finalists": [result.as_json() for result in comparison.finalists],
        },
        "compared_to": first.spec.name,
        "loaders": [_entry_report(entry, first, limit, plan) for entry in comparison.entries],
    }


def _entry_report(
    entry: Entry, first: Entry, limit: Sequence[Sample], plan: LoadPlan
) -> dict[str, object]:
    samples = entry.samples
    destination = "touched beforehand" if plan.prefault and _is_own(entry) else "fresh memory"
    if not on_host(plan.device):
        destination = f"{plan.device}, {'of its runtime' if plan.raw else 'of torch'}"
    return {
        "name": entry.spec.name,
        "about": entry.spec.about,
        "owned": entry.spec.owned,
        "destination": destination,
        "status": "ok" if samples else (entry.failures[-1].kind if entry.failures else "not_run"),
        "reason": "" if samples or not entry.failures else entry.failures[-1].reason,
        "gb_per_s": spread(sample.bytes_per_s / 1e9 for sample in samples),
        "share_of_limit": spread(_ratios(samples, limit, _speed)),
        "cpu_s_per_gb": spread(sample.cpu_s_per_gb for sample in samples),
        "first_tensor_s": spread(sample.first_tensor_s for sample in samples),
        "peak_over_payload_bytes": spread(sample.peak_over_payload_bytes for sample in samples),
        "physical_bytes": spread(
            sample.proof.physical_bytes for sample in samples if sample.proof is not None
        ),
        "cold_proof": sorted({s.proof.method for s in samples if s.proof is not None}),
        "speed_ratio_of_first": spread(_ratios(first.samples, samples, _speed)),
        "cpu_ratio_of_first": spread(_ratios(first.samples, samples, _cpu)),
        "pipeline": _pipeline(samples),
        "content_digest": entry.content,
        "samples": [sample.as_json() for sample in samples],
        "discarded": [failure.as_json() for failure in entry.failures],
    }


def _is_own(entry: Entry) -> bool:
    return entry.spec.name == "fxload"


def _pipeline(samples: Sequence[Sample]) -> dict[str, object] | None:
    """Where fxload's time went on its way to a device; None for whoever does not tell."""
    told: list[Any] = [s.details["device"] for s in samples if "device" in s.details]
    if not told:
        return None
    last = told[-1]
    seconds = {
        name: spread(each[name] for each in told) for name in ("read_s", "copy_s", "overlap_s")
    }
    return {name: value for name, value in last.items() if name not in seconds} | seconds


def _speed(sample: Sample) -> float:
    return sample.bytes_per_s


def _cpu(sample: Sample) -> float:
    return sample.cpu_s_per_gb


def _ratios(
    of: Sequence[Sample], to: Sequence[Sample], figure: Callable[[Sample], float]
) -> list[float]:
    """``of`` over ``to`` for every round that has both: neighbours in time, drift cancels out."""
    base = {sample.round_index: figure(sample) for sample in to}
    return [
        figure(sample) / base[sample.round_index] for sample in of if base.get(sample.round_index)
    ]


def storage_report(
    path: str,
    paths: Sequence[str],
    size_bytes: int,
    results: Sequence[CellResult],
    machine: dict[str, object],
    options: dict[str, object],
) -> dict[str, object]:
    """A sweep as one JSON object; ``best`` is the roofline, None if no cell could be measured."""
    measured = [result for result in results if result.samples]
    best = max(measured, key=lambda result: result.bytes_per_s, default=None)
    return {
        "schema": STORAGE_SCHEMA,
        "machine": machine,
        "path": path,
        "files": len(paths),
        "size_bytes": size_bytes,
        "options": options,
        "best": None if best is None else best.as_json(),
        "cells": [result.as_json() for result in results],
    }
