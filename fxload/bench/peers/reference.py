"""safetensors, the reference implementation."""

from __future__ import annotations

import inspect
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
    """The pread backend came with safetensors 0.8."""
    package = import_package("safetensors", "safetensors")
    torch_part = import_package("safetensors.torch", "safetensors")
    if (
        job.loader.endswith("-pread")
        and "backend" not in inspect.signature(torch_part.load_file).parameters
    ):
        version = getattr(package, "__version__", "")
        raise UnsupportedError(f"safetensors {version} has no pread backend", hint="upgrade it")
    need_device(job, ("cpu", "cuda", "npu"))


def load(job: Job) -> Iterator[tuple[str, Tensor]]:
    """Shard by shard; from the mapped file a tensor owns its bytes only once it is copied."""
    from safetensors import safe_open

    pread = job.loader.endswith("-pread")
    owned = pread or not on_host(job.device)
    options = {"backend": "pread"} if pread else {}
    for path in job.paths:
        with safe_open(path, framework="pt", device=job.device, **options) as file:
            for name in file.offset_keys():
                tensor = file.get_tensor(name)
                yield name, tensor if owned else tensor.clone()
