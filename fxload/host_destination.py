"""A load into host memory: reads land in the tensors' own memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxload._errors import OutOfMemoryError
from fxload._native import Load, MemoryPool
from fxload.destination import wait_landed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from fxload._native import FileInfo, FileSet
    from fxload.checkpoint.header import TensorInfo
    from fxload.checkpoint.plan import ReadPlan
    from fxload.load_options import LoadOptions
    from fxload.tensors import TensorMaker

__all__ = ["HostDestination"]


class HostDestination:
    """Memory of the host, in windows that live as long as a tensor in them."""

    device = "cpu"
    block_bytes = 1

    def __init__(self, model: str, options: LoadOptions) -> None:
        self._model = model
        self._options = options
        self._load: Load | None = None
        self._maker: TensorMaker | None = None

    def start(self, files: FileSet, plan: ReadPlan) -> None:
        """Raises OutOfMemoryError for a load that the memory left cannot hold."""
        options = self._options
        _check_memory(plan, options, self._model)
        self._plan = plan
        pool = options.pool
        budget_bytes = options.budget_bytes or 0
        if pool is None:
            # A stream recycles its own memory; what is kept by tensors never comes back here.
            pool = MemoryPool(limit_bytes=budget_bytes)
        self._load = Load(
            files,
            plan.packed(),
            plan.space_bytes,
            pool=pool,
            budget_bytes=budget_bytes,
            engine=options.engine,
            depth=options.depth,
            digest=options.digest,
            stall_timeout_s=options.stall_timeout_s,
        )
        self._window_bytes = pool.window_bytes

    def expect(self, wanted: Sequence[Sequence[TensorInfo]], infos: Sequence[FileInfo]) -> None:
        """Nothing has to be prepared."""
        self._wanted = wanted
        self._infos = infos

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Views of the destination."""
        from fxload.tensors import TensorMaker

        load = self._started()
        maker = self._maker = TensorMaker(load)
        for tensors, info in zip(self._wanted, self._infos, strict=True):
            for tensor in tensors:
                maker.check(tensor, info.path)
        landed = released = 0
        for number, tensors in enumerate(self._wanted):
            placements = self._plan.placements(number, tensors)
            for tensor, destination in zip(tensors, placements, strict=True):
                end = destination + tensor.end - tensor.begin
                if destination - released >= self._window_bytes:
                    load.release_before(destination)
                    released = destination
                if end > landed:
                    landed = wait_landed(load, end, self._options.progress)
                yield tensor.name, maker.make(tensor, destination)

    def finish(self) -> None:
        """Wait for the end of the last file."""
        wait_landed(self._started(), self._plan.space_bytes, self._options.progress)

    def digests(self) -> list[str]:
        """The core's."""
        return self._started().digests()

    def stats(self) -> dict[str, Any]:
        """The core's."""
        return self._started().stats()

    @property
    def realigned_bytes(self) -> int:
        """Tensors on addresses that their element type cannot have."""
        return 0 if self._maker is None else self._maker.realigned_bytes

    def close(self, timeout_s: float) -> None:
        """What tensors hold stays."""
        if self._load is not None:
            self._load.close(timeout_s)

    def _started(self) -> Load:
        assert self._load is not None, "the load was never started"
        return self._load


def _check_memory(plan: ReadPlan, options: LoadOptions, model: str) -> None:
    """The kernel ends a process that outgrows its memory without a word; this says it before."""
    from fxload.host_memory import read_host_memory

    needed = plan.space_bytes
    if options.budget_bytes:
        needed = min(needed, options.budget_bytes)
    if options.pool is not None:
        needed -= min(needed, options.pool.retained_bytes)
    memory = read_host_memory()
    if needed > memory.available_bytes:
        raise OutOfMemoryError(
            f"the load needs {needed} bytes of memory, {memory.available_bytes} are left"
            f" ({memory.limited_by})",
            path=model,
            hint="stream it with open_checkpoint(budget_bytes=…), or raise the limit",
        )
