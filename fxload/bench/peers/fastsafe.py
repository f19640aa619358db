"""fastsafetensors, without GPU Direct Storage: its path through host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxload.bench.device import need_device
from fxload.bench.peers import import_package

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from fxload.bench.peers import Job

__all__ = ["check", "load"]

_INSTALL = "fastsafetensors"


def check(job: Job) -> None:
    """It knows the host and what torch calls cuda."""
    import_package("fastsafetensors", _INSTALL)
    need_device(job, ("cpu", "cuda"))


def load(job: Job) -> Iterator[tuple[str, Tensor]]:
    """One batch of one shard after the other, as its own parallel loader does for one rank."""
    package = import_package("fastsafetensors", _INSTALL)
    for path in job.paths:
        loader = package.SafeTensorsFileLoader(
            package.SingleGroup(), device=job.device, nogds=True, set_numa=False
        )
        loader.add_filenames({0: [path]})
        buffer = loader.copy_files_to_device()
        for name in loader.get_keys():
            tensor = buffer.get_tensor(name)
            yield name, tensor.clone() if job.loader.endswith("-clone") else tensor
        buffer.close()
        loader.close()
