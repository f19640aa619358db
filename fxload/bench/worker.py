"""One load in a process of its own: ``python -m fxload.bench.worker PARENT``, a Job on stdin.

PARENT is the process that asked, whose end ends this one. The Job comes as JSON. The worker
writes one JSON object to stdout; whatever a loader prints goes to stderr. torch is imported
before anything is measured, the loader's own package before the clock starts.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import json
import os
import resource
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxload._errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fxload.bench.peers import Job

__all__ = ["main", "reset_peak", "status_bytes"]


def main(parent: int) -> int:
    """Run the job for process `parent`; the exit code is 0 whenever an object was written."""
    _end_with(parent)
    result_descriptor = os.dup(1)
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    answer = _answer(request)
    with os.fdopen(result_descriptor, "w") as out:
        json.dump(answer, out)
    return 0


def _end_with(parent: int) -> None:
    """Let the kernel end this process with its parent, however that ends."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, int(signal.SIGKILL))
    if os.getppid() != parent:
        raise SystemExit("the process that asked for this load has ended")


def _answer(request: dict[str, object]) -> dict[str, object]:
    import torch  # noqa: F401 - every user of a loader has it in memory already

    from fxload.bench.peers import Job

    request["paths"] = tuple(request["paths"])  # type: ignore[arg-type]
    job = Job(**request)  # type: ignore[arg-type]
    try:
        return {"status": "ok"} | run(job)
    except UnsupportedError as error:
        return {"status": error.rule or "unusable", "reason": _one_line(error)}
    except Exception as error:  # noqa: BLE001 - whatever a peer raises is its result
        return {"status": "failed", "reason": f"{type(error).__name__}: {_one_line(error)}"}


def run(job: Job) -> dict[str, object]:
    """Load, keep every tensor, and tell what it took."""
    import importlib

    from fxload._collector import paused_collector
    from fxload.bench.device import on_host, synchronize
    from fxload.bench.peers import loader_named
    from fxload.bench.peers.own import OwnRun
    from fxload.bench.physical import read_counters

    spec = loader_named(job.loader)
    baseline_bytes = reset_peak()
    module = importlib.import_module(f"fxload.bench.peers.{spec.module}")
    module.check(job)
    own = OwnRun(job) if spec.module == "own" else None
    if own is not None:
        own.prepare()
    # Whoever loads to a device has it open: a context takes longer than a small model.
    synchronize(job)
    gc.collect()

    tensors: dict[str, Any] = {}  # of torch, or raw ones with bytes of their own
    first_s: float | None = None
    payload_bytes = 0
    counters = read_counters(job.paths)
    cpu_s = _cpu_s()
    start_s = time.perf_counter()
    # For every loader alike: Python's collector would walk what it has just been given.
    with paused_collector():
        for name, tensor in own.load() if own is not None else module.load(job):
            if first_s is None:
                first_s = time.perf_counter() - start_s
            payload_bytes += tensor.nbytes
            # Of views that do not last only one is kept: keeping them all would keep nothing valid.
            tensors[name if spec.owned else ""] = tensor
        synchronize(job)
    elapsed_s = time.perf_counter() - start_s
    cpu_s = _cpu_s() - cpu_s
    spent = read_counters(job.paths).since(counters)
    peak_bytes = status_bytes("VmHWM")
    return {
        "payload_bytes": payload_bytes,
        "tensors": len(tensors),
        "elapsed_s": elapsed_s,
        "cpu_s": cpu_s,
        "first_tensor_s": first_s,
        "peak_over_payload_bytes": (
            peak_bytes - baseline_bytes - (payload_bytes if on_host(job.device) else 0)
            if spec.owned
            else None
        ),
        "counters": asdict(spent),
        "content": content_digest(tensors) if job.verify and spec.owned else None,
        "details": own.details() if own is not None else {},
    }


def content_digest(tensors: Mapping[str, Any]) -> str:
    """A digest of names, dtypes, shapes and bytes: equal for equal checkpoints."""
    from fxload import _native

    total = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        if hasattr(tensor, "to_bytes"):
            digest = _native.digest_bytes(tensor.to_bytes())
        else:
            here = tensor.cpu().contiguous()
            size = here.nbytes
            data = (ctypes.c_char * size).from_address(here.data_ptr()) if size else b""
            digest = _native.digest_bytes(data)
        line = [name, str(tensor.dtype), list(tensor.shape), digest]
        total.update(json.dumps(line).encode())
    return total.hexdigest()


def _cpu_s() -> float:
    """User and system time of this process, with the helpers it has waited for."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total


def reset_peak() -> int:
    """Forget the peak of the imports where the kernel allows it; bytes resident now."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        # The peak then still contains that of the imports, and so does the baseline.
        return status_bytes("VmHWM")
    return status_bytes("VmRSS")


def status_bytes(field: str) -> int:
    """A size of this process in bytes: "VmRSS", "VmHWM" (the peak), …"""
    for line in Path("/proc/self/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == field:
            return int(value.split()[0]) * 1024
    return 0


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
