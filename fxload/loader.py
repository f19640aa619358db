"""Loading a checkpoint: from a model's name to tensors, streamed in storage order."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fxload._collector import paused_collector
from fxload._errors import FxloadError, UsageError
from fxload._native import FileSet
from fxload.checkpoint.file_stat import stat_files
from fxload.checkpoint.header import header_size, parse_header
from fxload.checkpoint.identity import DigestMemory, model_digest
from fxload.checkpoint.plan import FileShape, plan_tensors, plan_whole_files
from fxload.checkpoint.selection import Selection
from fxload.checkpoint.shards import allowed_tensors, find_shards
from fxload.config import load_config
from fxload.host_destination import HostDestination
from fxload.load_options import LoadOptions
from fxload.load_report import LoadReport
from fxload.sources import resolve_model
from fxload.warm.lookup import find_staged
from fxload.warm.registry import known_stores
from fxload.warm.staged import hold_path

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import torch

    from fxload._native import FileInfo, MemoryPool
    from fxload.checkpoint.header import TensorInfo
    from fxload.checkpoint.shards import ShardList
    from fxload.config import Config
    from fxload.destination import Destination
    from fxload.devices.resolve import Target
    from fxload.progress import Progress
    from fxload.warm.staged import StagedModel

__all__ = ["Checkpoint", "LoadReport", "load_checkpoint", "open_checkpoint", "open_target"]

_log = logging.getLogger(__name__)

_CLOSE_S = 5.0
# After a failure nobody wants to wait longer for a storage that may have died; what it still holds
# is quarantined.
_CLOSE_FAILED_S = 0.2


class Checkpoint:
    """A checkpoint being loaded; iterate it once for ``(name, tensor)`` in storage order.

    Reading starts when it is opened. Not thread-safe. Close it, or use it as a context manager:
    closing stops the reads at once; tensors that were handed out stay valid, and each keeps at
    most 32 MiB beyond its own size alive.
    """

    def __init__(
        self,
        shards: ShardList,
        *,
        model: str,
        copy: StagedModel | None,
        hold: AbstractContextManager[object] | None,
        config: Config,
        options: LoadOptions,
        target: Target | None,
    ) -> None:
        self._started_s = time.monotonic()
        self._shards = shards
        self._model = model
        self._copy = copy
        self._memory = DigestMemory(config.state_dir)
        self._options = options
        self._digest: str | None = None
        self._elapsed_s = 0.0
        self._first_tensor_s: float | None = None
        self._iterated = False
        self._hold = hold
        self._destination: Destination | None = None
        self._files: FileSet | None = None
        self._infos: list[FileInfo] = []
        try:
            self._open(_destination(target, model, options))
        except BaseException:
            self._close(_CLOSE_FAILED_S)
            raise

    def _open(self, destination: Destination) -> None:
        options = self._options
        self._destination = destination
        files = self._files = FileSet(
            [str(path) for path in self._shards.paths],
            whole_header=True,
            timeout_s=options.stall_timeout_s,
        )
        self._infos = infos = files.infos
        sizes = [
            header_size(files.head(number, 8), info.size_bytes, info.path)
            for number, info in enumerate(infos)
        ]
        # Without a filter the plan needs no tensor names: the storage works while they are parsed.
        shapes = [
            FileShape(
                info.size_bytes,
                max(1, info.offset_align, info.memory_align),
                0 if options.digest else size,
            )
            for info, size in zip(infos, sizes, strict=True)
        ]
        everything = options.selection.everything
        block_bytes = destination.block_bytes
        if everything:
            plan = plan_whole_files(shapes, block_bytes=block_bytes)
            destination.start(files, plan)
        headers = [
            parse_header(files.head(number), info.size_bytes, info.path)
            for number, info in enumerate(infos)
        ]
        files.release_heads()
        self._metadata = [header.metadata for header in headers]
        self._wanted = [
            options.selection.pick(tensors) for tensors in allowed_tensors(self._shards, headers)
        ]
        # Large models have large indexes, and this one has done its work.
        self._shards = replace(self._shards, weight_map=None)
        self._wanted_bytes = sum(t.end - t.begin for tensors in self._wanted for t in tensors)
        if not everything:
            plan = plan_tensors(shapes, self._wanted, block_bytes=block_bytes)
            destination.start(files, plan)
        destination.expect(self._wanted, infos)

    @property
    def path(self) -> str:
        """The checkpoint that was asked for, resolved to a path."""
        return self._model

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """What will be handed out, by name: dtype, shape and place in the file."""
        return {info.name: info for tensors in self._wanted for info in tensors}

    @property
    def metadata(self) -> list[dict[str, str]]:
        """The ``__metadata__`` of each file, in load order."""
        return self._metadata

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield each wanted tensor once.

        Raises StorageError (or a kind of it) with path and offset when the storage fails,
        DeadlineError when it returns nothing for ``stall_timeout_s``, UnsupportedError for a dtype
        that this torch lacks.
        """
        if self._iterated:
            raise UsageError("a checkpoint is iterated once", path=self._model)
        self._iterated = True
        destination = self._opened()
        if self._files is None:
            raise UsageError("the checkpoint is closed", path=self._model)
        for pair in destination.tensors():
            if self._first_tensor_s is None:
                self._first_tensor_s = time.monotonic() - self._started_s
            yield pair
            # While the next one is awaited, the consumer alone decides what lives.
            del pair
        self._finish(destination)

    def _finish(self, destination: Destination) -> None:
        destination.finish()
        assert self._files is not None
        self._files.check_unchanged(self._options.stall_timeout_s)
        if self._options.digest:
            digests = destination.digests()
            for info, digest in zip(self._infos, digests, strict=True):
                self._memory.remember(info, digest)
            self._digest = self._model_digest(digests)
        self._elapsed_s = time.monotonic() - self._started_s

    def _model_digest(self, digests: Sequence[str]) -> str:
        return model_digest(
            (name, info.size_bytes, digest)
            for name, info, digest in zip(self._shards.files, self._infos, digests, strict=True)
        )

    def digest(self) -> str | None:
        """The checkpoint's digest: computed by this load, or remembered; None if neither."""
        if self._digest is None and self._copy is not None:
            self._digest = self._copy.digest
        if self._digest is None and not self._options.digest:
            digests = [self._memory.lookup(info) for info in self._infos]
            known = [digest for digest in digests if digest is not None]
            if len(known) == len(self._infos):
                self._digest = self._model_digest(known)
        return self._digest

    def report(self) -> LoadReport:
        """What was done so far."""
        destination = self._opened()
        stats = destination.stats()
        return LoadReport(
            model=self._model,
            read_from=str(self._shards.root),
            staged=self._copy is not None,
            reason=self._copy.reason if self._copy is not None else "read from the model itself",
            engine=stats["engine"],
            wanted_bytes=self._wanted_bytes,
            realigned_bytes=destination.realigned_bytes,
            elapsed_s=self._elapsed_s or time.monotonic() - self._started_s,
            first_tensor_s=self._first_tensor_s,
            digest=self.digest(),
            stats=stats,
            device=destination.device,
            read_s=stats.get("read_s"),
            copy_s=stats.get("copy_s"),
            overlap_s=stats.get("overlap_s"),
        )

    def _opened(self) -> Destination:
        if self._destination is None:
            raise UsageError("the checkpoint was never opened", path=self._model)
        return self._destination

    def close(self) -> None:
        """Stop reading and release all that no tensor keeps alive. Idempotent."""
        self._close(_CLOSE_S)

    def _close(self, timeout_s: float) -> None:
        destination, files, hold = self._destination, self._files, self._hold
        self._files = self._hold = None
        if destination is not None:
            destination.close(timeout_s)
        if files is not None:
            files.close()
        if hold is not None:
            hold.__exit__(None, None, None)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._close(_CLOSE_S if kind is None else _CLOSE_FAILED_S)


def _destination(target: Target | None, model: str, options: LoadOptions) -> Destination:
    if target is None:
        return HostDestination(model, options)
    from fxload.devices.destination import DeviceDestination

    return DeviceDestination(target, model, options)


def open_checkpoint(
    model: str | os.PathLike[str],
    *,
    device: str | torch.device = "cpu",
    files: Sequence[str] | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    select: Callable[[str], bool] | None = None,
    budget_bytes: int | None = None,
    device_memory_budget: int | None = None,
    ring_bytes: int | None = None,
    digest: bool = False,
    staged: bool = True,
    engine: str = "auto",
    pool: MemoryPool | None = None,
    progress: Callable[[Progress], None] | None = None,
    stall_timeout_s: float = 120.0,
    config: Config | None = None,
) -> Checkpoint:
    """Open a checkpoint and start reading it.

    Args:
        model: a folder, a ``.safetensors`` file, an index, a name in the local Hugging Face cache
            (``org/name`` or ``org/name@revision``), or ``fx://MOUNT/path``.
        device: where the tensors go: ``"cpu"``, ``"cuda:0"`` (NVIDIA, and AMD with ROCm's torch),
            ``"npu:0"`` (Ascend, with torch_npu), or a ``torch.device``.
        files: weight files to load, by their names in the model's folder, instead of those that
            its index, or their names, choose.
        include: globs of tensor names; empty means all.
        exclude: globs of tensor names to leave out.
        select: a function of the name that says whether a tensor is wanted.
        budget_bytes: destination memory of the host alive at once. The reads wait while it is
            used up; a consumer that keeps every tensor makes it be exceeded, which is counted.
        device_memory_budget: the same, in bytes of a device's memory.
        ring_bytes: pinned host memory that a device copies from; by default the smaller of 1 GiB,
            the payload, and 5 % of the host's (or the control group's) memory over the processes
            of this job on the node; at least 32 MiB.
        digest: compute the digest of every byte as it streams by; needs an unfiltered load.
        staged: use a staged copy (``fxload warm``) of exactly this content if there is one.
        engine: ``"auto"``, ``"io_uring"`` or ``"pread"``.
        pool: host memory to recycle, for callers that load more than once.
        progress: called with the bytes landed so far.
        stall_timeout_s: after so many seconds without a completed request, DeadlineError.
        config: settings; by default the user's configuration file.

    Raises ModelNotFoundError, CheckpointError, StorageError, OutOfMemoryError, UsageError, and
    for a device UnsupportedError (it, or its runtime, is not there) and DeviceError.
    """
    # Its refusal comes before that of an option: who names a wrong device learns that first.
    target = _target(device)
    options = LoadOptions(
        selection=Selection(include, exclude, select),
        budget_bytes=budget_bytes,
        device_memory_budget=device_memory_budget,
        ring_bytes=ring_bytes,
        digest=digest,
        engine=engine,
        pool=pool,
        progress=progress,
        stall_timeout_s=stall_timeout_s,
    )
    return open_target(model, target, options, files=files, staged=staged, config=config)


def open_target(
    model: str | os.PathLike[str],
    target: Target | None,
    options: LoadOptions,
    *,
    files: Sequence[str] | None = None,
    staged: bool = True,
    config: Config | None = None,
) -> Checkpoint:
    """open_checkpoint for a device that is resolved already; None is the host.

    To a device without torch, the checkpoint yields RawTensors.
    """
    options.check_for(on_device=target is not None)
    if config is None:
        config = load_config()
    path = resolve_model(model, config)
    shards = find_shards(path)
    chosen = shards if files is None else shards.only(files)
    hold: AbstractContextManager[object] | None = hold_path(path)  # a staged copy, named itself
    copy = None
    # A copy holds what was chosen of itself; other files are read where they are.
    if staged and hold is None and set(chosen.files) <= set(shards.files):
        copy, hold = _hold_copy(shards, config)
    return Checkpoint(
        chosen if copy is None else find_shards(copy.path).only(chosen.files),
        model=str(path),
        copy=copy,
        hold=hold,
        config=config,
        options=options,
        target=target,
    )


def load_checkpoint(
    model: str | os.PathLike[str], *, device: str | torch.device = "cpu", **options: Any
) -> dict[str, torch.Tensor]:
    """Load a whole checkpoint: name → tensor, on the device. Options as in open_checkpoint."""
    with open_checkpoint(model, device=device, **options) as checkpoint, paused_collector():
        return dict(checkpoint)


def _hold_copy(
    shards: ShardList, config: Config
) -> tuple[StagedModel, AbstractContextManager[object]] | tuple[None, None]:
    """The staged copy of these very files, held against eviction; reads none of their bytes."""
    if not known_stores(config)[0]:
        return None, None
    copy = find_staged(shards, stat_files(shards.paths), config)
    if copy is None:
        return None, None
    try:
        return copy, copy.hold()
    except FxloadError as error:
        _log.warning("the staged copy is left aside: %s", error)
        return None, None


def _target(device: str | torch.device) -> Target | None:
    if str(device) == "cpu":  # no device's module is imported for the host
        return None
    from fxload.devices.resolve import resolve_device

    return resolve_device(device)
