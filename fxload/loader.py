"""Loading a checkpoint: from a model's name to tensors, streamed in storage order."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fxload._collector import paused_collector
from fxload._errors import FxloadError, OutOfMemoryError, UnsupportedError, UsageError
from fxload._native import FileSet, Load, MemoryPool
from fxload.checkpoint.file_stat import stat_files
from fxload.checkpoint.header import header_size, parse_header
from fxload.checkpoint.identity import DigestMemory, model_digest
from fxload.checkpoint.plan import FileShape, plan_tensors, plan_whole_files
from fxload.checkpoint.selection import Selection
from fxload.checkpoint.shards import allowed_tensors, find_shards
from fxload.config import load_config
from fxload.progress import Progress
from fxload.sources import resolve_model
from fxload.warm.lookup import find_staged
from fxload.warm.registry import known_stores
from fxload.warm.staged import hold_path

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import torch

    from fxload._native import FileInfo
    from fxload.checkpoint.header import TensorInfo
    from fxload.checkpoint.plan import ReadPlan
    from fxload.checkpoint.shards import ShardList
    from fxload.config import Config
    from fxload.tensors import TensorMaker
    from fxload.warm.staged import StagedModel

__all__ = ["Checkpoint", "LoadReport", "load_checkpoint", "open_checkpoint"]

_log = logging.getLogger(__name__)

_ENGINES = ("auto", "io_uring", "pread")
_PROGRESS_S = 0.1
_WAIT_S = 1.0
_CLOSE_S = 5.0
# After a failure nobody wants to wait longer for a storage that may have died; what it still holds
# is quarantined.
_CLOSE_FAILED_S = 0.2


@dataclass(frozen=True)
class LoadReport:
    """What one load did.

    Attributes:
        model: the checkpoint that was asked for, resolved to a path.
        read_from: the files that were read: the model's own, or a staged copy of them.
        staged: whether ``read_from`` is a staged copy.
        reason: why that copy was used.
        engine: what did the reads ("io_uring" or "pread").
        wanted_bytes: bytes of the tensors that were asked for.
        realigned_bytes: bytes of tensors that the file stores misaligned, and that were copied.
        elapsed_s: from opening to the last tensor handed out.
        first_tensor_s: from opening to the first tensor handed out; None before.
        digest: the checkpoint's digest, if it was computed or is remembered.
        stats: the core's own counters.
    """

    model: str
    read_from: str
    staged: bool
    reason: str
    engine: str
    wanted_bytes: int
    realigned_bytes: int
    elapsed_s: float
    first_tensor_s: float | None
    digest: str | None
    stats: dict[str, Any] = field(default_factory=dict)


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
        selection: Selection,
        config: Config,
        options: _Options,
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
        self._maker: TensorMaker | None = None
        self._hold = hold
        self._load: Load | None = None
        self._files: FileSet | None = None
        self._infos: list[FileInfo] = []
        try:
            self._open(selection)
        except BaseException:
            self._close(_CLOSE_FAILED_S)
            raise

    def _open(self, selection: Selection) -> None:
        options = self._options
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
        if selection.everything:
            plan = plan_whole_files(shapes)
            self._start(plan)
        headers = [
            parse_header(files.head(number), info.size_bytes, info.path)
            for number, info in enumerate(infos)
        ]
        files.release_heads()
        self._metadata = [header.metadata for header in headers]
        self._wanted = [
            selection.pick(tensors) for tensors in allowed_tensors(self._shards, headers)
        ]
        # Large models have large indexes, and this one has done its work.
        self._shards = replace(self._shards, weight_map=None)
        self._wanted_bytes = sum(t.end - t.begin for tensors in self._wanted for t in tensors)
        if not selection.everything:
            plan = plan_tensors(shapes, self._wanted)
            self._start(plan)
        self._plan = plan

    def _start(self, plan: ReadPlan) -> None:
        options = self._options
        _check_memory(plan, options, self._model)
        assert self._files is not None
        pool = options.pool
        if pool is None:
            # A stream recycles its own memory; what is kept by tensors never comes back here.
            pool = MemoryPool(limit_bytes=options.budget_bytes)
        self._load = Load(
            self._files,
            plan.packed(),
            plan.space_bytes,
            pool=pool,
            budget_bytes=options.budget_bytes,
            engine=options.engine,
            digest=options.digest,
            stall_timeout_s=options.stall_timeout_s,
        )
        self._window_bytes = pool.window_bytes

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
        load = self._require_load()
        if self._files is None:
            raise UsageError("the checkpoint is closed", path=self._model)
        from fxload.tensors import TensorMaker

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
                    landed = self._wait_past(load, end)
                made = maker.make(tensor, destination)
                if self._first_tensor_s is None:
                    self._first_tensor_s = time.monotonic() - self._started_s
                yield tensor.name, made
        self._finish(load)

    def _wait_past(self, load: Load, end: int) -> int:
        progress = self._options.progress
        while True:
            landed = load.wait_past(end, _WAIT_S if progress is None else _PROGRESS_S)
            if progress is not None:
                stats = load.stats()
                progress(Progress(stats["landed_bytes"], stats["planned_bytes"]))
            if landed >= end:
                return landed

    def _finish(self, load: Load) -> None:
        self._wait_past(load, self._plan.space_bytes)
        assert self._files is not None
        self._files.check_unchanged(self._options.stall_timeout_s)
        if self._options.digest:
            digests = load.digests()
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
        stats = self._require_load().stats()
        return LoadReport(
            model=self._model,
            read_from=str(self._shards.root),
            staged=self._copy is not None,
            reason=self._copy.reason if self._copy is not None else "read from the model itself",
            engine=stats["engine"],
            wanted_bytes=self._wanted_bytes,
            realigned_bytes=self._maker.realigned_bytes if self._maker is not None else 0,
            elapsed_s=self._elapsed_s or time.monotonic() - self._started_s,
            first_tensor_s=self._first_tensor_s,
            digest=self.digest(),
            stats=stats,
        )

    def _require_load(self) -> Load:
        if self._load is None:
            raise UsageError("the checkpoint was never opened", path=self._model)
        return self._load

    def close(self) -> None:
        """Stop reading and release all that no tensor keeps alive. Idempotent."""
        self._close(_CLOSE_S)

    def _close(self, timeout_s: float) -> None:
        load, files, hold = self._load, self._files, self._hold
        self._files = self._hold = None
        if load is not None:
            load.close(timeout_s)
        if files is not None:
            files.close()
        if hold is not None:
            hold.__exit__(None, None, None)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._close(_CLOSE_S if kind is None else _CLOSE_FAILED_S)


@dataclass(frozen=True)
class _Options:
    budget_bytes: int
    digest: bool
    engine: str
    pool: MemoryPool | None
    progress: Callable[[Progress], None] | None
    stall_timeout_s: float


def open_checkpoint(
    model: str | os.PathLike[str],
    *,
    device: str | torch.device = "cpu",
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    select: Callable[[str], bool] | None = None,
    budget_bytes: int | None = None,
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
        device: where the tensors go; this version knows ``"cpu"``.
        include: globs of tensor names; empty means all.
        exclude: globs of tensor names to leave out.
        select: a function of the name that says whether a tensor is wanted.
        budget_bytes: destination memory alive at once. The reads wait while it is used up; a
            consumer that keeps every tensor makes it be exceeded, which is counted.
        digest: compute the digest of every byte as it streams by; needs an unfiltered load.
        staged: use a staged copy (``fxload warm``) of exactly this content if there is one.
        engine: ``"auto"``, ``"io_uring"`` or ``"pread"``.
        pool: memory to recycle, for callers that load more than once.
        progress: called with the bytes landed so far.
        stall_timeout_s: after so many seconds without a completed request, DeadlineError.
        config: settings; by default the user's configuration file.

    Raises ModelNotFoundError, CheckpointError, StorageError, OutOfMemoryError, UsageError.
    """
    _check_device(device)
    if engine not in _ENGINES:
        raise UsageError(f"no I/O engine named {engine!r}", hint="one of " + ", ".join(_ENGINES))
    selection = Selection(include, exclude, select)
    if digest and not selection.everything:
        raise UsageError("a digest covers every byte: it needs a load without filters")
    if budget_bytes is not None and (not isinstance(budget_bytes, int) or budget_bytes <= 0):
        raise UsageError(
            f"budget_bytes is {budget_bytes!r}, not a number of bytes",
            hint="leave it out for no budget",
        )
    if not isinstance(stall_timeout_s, (int, float)) or not stall_timeout_s > 0:
        raise UsageError(f"stall_timeout_s is {stall_timeout_s!r}, not a number of seconds")
    if progress is not None and not callable(progress):
        raise UsageError(f"progress is {progress!r}, not a function of a Progress")
    if config is None:
        config = load_config()
    path = resolve_model(model, config)
    shards = find_shards(path)
    hold: AbstractContextManager[object] | None = hold_path(path)  # a staged copy, named itself
    copy = None
    if staged and hold is None:
        copy, hold = _hold_copy(shards, config)
    return Checkpoint(
        shards if copy is None else find_shards(copy.path),
        model=str(path),
        copy=copy,
        hold=hold,
        selection=selection,
        config=config,
        options=_Options(budget_bytes or 0, digest, engine, pool, progress, stall_timeout_s),
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


def _check_device(device: str | torch.device) -> None:
    name = str(device)
    if name != "cpu":
        raise UnsupportedError(
            f"device {name!r}: this version loads into host memory",
            hint='use device="cpu" and move the tensors',
        )


def _check_memory(plan: ReadPlan, options: _Options, model: str) -> None:
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
