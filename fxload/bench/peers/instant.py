"""InstantTensor: for CUDA devices only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxload._errors import UnsupportedError
from fxload.bench.device import need_device, on_host
from fxload.bench.peers import import_package

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from fxload.bench.peers import Job

__all__ = ["check", "load"]


def check(job: Job) -> None:
    """It refuses host memory, so there is nothing to compare without a CUDA device."""
    import torch

    if not torch.cuda.is_available():
        raise UnsupportedError("it loads into CUDA devices only, and torch sees none here")
    need_device(job, ("cpu", "cuda"))
    import_package("instanttensor", "instanttensor")


def load(job: Job) -> Iterator[tuple[str, Tensor]]:
    """All shards through one ring on the device; what is kept has to be copied out of it."""
    package = import_package("instanttensor", "instanttensor")
    device = "cuda:0" if on_host(job.device) else job.device
    with package.safe_open(list(job.paths), framework="pt", device=device) as file:
        for name, tensor in file.tensors():
            if job.loader.endswith("-view"):
                yield name, tensor
            else:
                yield name, tensor.cpu() if on_host(job.device) else tensor.clone()
