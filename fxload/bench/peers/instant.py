"""InstantTensor: for CUDA devices only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxload._errors import UnsupportedError
from fxload.bench.peers import import_package

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from fxload.bench.peers import Job

__all__ = ["check", "load"]


def check(job: Job) -> None:  # noqa: ARG001 - it has no variants
    """It refuses host memory, so there is nothing to compare without a CUDA device."""
    import torch

    if not torch.cuda.is_available():
        raise UnsupportedError("it loads into CUDA devices only, and torch sees none here")
    import_package("instanttensor", "instanttensor")


def load(job: Job) -> Iterator[tuple[str, Tensor]]:
    """All shards through one ring on the device; a copy to host memory is owned."""
    package = import_package("instanttensor", "instanttensor")
    with package.safe_open(list(job.paths), framework="pt", device="cuda:0") as file:
        for name, tensor in file.tensors():
            yield name, tensor.cpu()
