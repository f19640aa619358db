"""Starts one worker process for one load and judges what comes back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from fxload.bench.physical import (
    Counters,
    evict,
    prove_cold,
    read_into_cache,
    resident,
)
from fxload.bench.sample import Failure, Sample

if TYPE_CHECKING:
    from fxload.bench.peers import Job

__all__ = ["Run", "run_job"]


class Run:
    """The outcome of one worker: a sample or a failure, and the digest of the content if asked."""

    def __init__(self, outcome: Sample | Failure, content: str | None = None) -> None:
        self.outcome = outcome
        self.content = content


def run_job(job: Job, round_index: int, *, cold: bool, timeout_s: float) -> Run:
    """Prepare the page cache, load in a fresh process, and prove what was read.

    A worker that does not end in time is killed and counted as failed.
    """
    resident_before = _prepare_cache(job, cold)
    answer = _call_worker(job, timeout_s)
    if answer["status"] != "ok":
        return Run(Failure(round_index, str(answer["status"]), str(answer["reason"])))
    proof = None
    if cold:
        spent = Counters(**answer["counters"])
        proof = prove_cold(spent, resident_before, job.payload_bytes)
        if not proof.cold:
            return Run(Failure(round_index, "not_cold", proof.reason))
    elif resident_before is not None and resident_before < 0.99 * job.payload_bytes:
        reason = f"only {resident_before} of {job.payload_bytes} bytes stay in the page cache"
        return Run(Failure(round_index, "not_cached", reason))
    if answer["payload_bytes"] != job.payload_bytes:
        reason = f"{answer['payload_bytes']} bytes of tensors instead of {job.payload_bytes}"
        return Run(Failure(round_index, "wrong_content", reason))
    sample = Sample(
        round_index=round_index,
        payload_bytes=answer["payload_bytes"],
        elapsed_s=answer["elapsed_s"],
        cpu_s=answer["cpu_s"],
        first_tensor_s=answer["first_tensor_s"],
        peak_over_payload_bytes=answer["peak_over_payload_bytes"],
        proof=proof,
        details=answer["details"],
    )
    return Run(sample, answer["content"])


def _prepare_cache(job: Job, cold: bool) -> int | None:
    if cold:
        evict(job.paths)
    else:
        read_into_cache(job.paths)
    return resident(job.paths)


def _call_worker(job: Job, timeout_s: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "fxload.bench.worker", str(os.getpid())]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            out, err = process.communicate(json.dumps(job.as_json()), timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return {"status": "failed", "reason": f"no result within {timeout_s:.0f} s"}
        except BaseException:
            process.kill()
            raise
    if process.returncode == 0 and out.startswith("{"):
        answer: dict[str, Any] = json.loads(out)
        return answer
    return {"status": "failed", "reason": _how_it_died(process.returncode, err)}


def _how_it_died(code: int, err: str) -> str:
    said = err.strip().splitlines()
    last = f": {said[-1].strip()}" if said else ""
    if code < 0:
        return f"its process was killed by {signal.Signals(-code).name}{last}"
    return f"its process ended with exit code {code}{last}"
