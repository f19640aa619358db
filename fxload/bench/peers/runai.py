"""Run:ai Model Streamer."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from fxload._errors import UnsupportedError
from fxload.bench.device import need_device, on_host
from fxload.bench.peers import import_package

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from torch import Tensor

    from fxload.bench.peers import Job

__all__ = ["check", "load"]


def check(job: Job) -> None:
    """Its own owned tensors came with 0.17; before, every tensor had to be cloned."""
    if job.loader == "runai" and not _can_own():
        raise UnsupportedError(
            "this version of runai-model-streamer hands out views only",
            hint="compare with runai-clone, or upgrade it",
        )
    need_device(job, ("cpu", "cuda", "npu"))


def _streamer() -> Any:
    return import_package("runai_model_streamer", "runai-model-streamer").SafetensorsStreamer


def _can_own() -> bool:
    return "owned" in inspect.signature(_streamer().stream_files).parameters


def load(job: Job) -> Iterator[tuple[str, Tensor]]:
    """All shards in one streaming session, as its engines' adapters do it.

    What it hands out lies in host memory unless ranks share the work: they copy it, as we do here.
    """
    options = {"owned": job.loader == "runai"} if _can_own() else {}
    with _streamer()() as streamer:
        streamer.stream_files(list(job.paths), **options)
        for name, tensor in streamer.get_tensors():
            if not on_host(job.device):
                yield name, tensor.to(job.device)
            else:
                yield name, tensor.clone() if job.loader == "runai-clone" else tensor
