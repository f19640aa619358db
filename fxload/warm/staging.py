"""Staging a model: copied, checked and published so that no crash leaves a copy to believe.

Each step leaves the store in a state that the next process understands:

1.  The job lock of the source is taken (``jobs/``): a second stager of the same source waits
    there, and finds the result when it gets the lock. The kernel drops the lock of a dead one.
2.  Under the store's lock, what dead processes left in ``staging/`` is removed, and room is made
    and reserved by a new folder ``staging/v1-ID`` whose lock file stays locked by this process.
3.  The files are copied to ``staging/v1-ID/entry/model``, each made durable when it is complete,
    their digests computed from the bytes that pass.
4.  The source must be unchanged since it was opened, and digests that were remembered of it must
    be the ones computed: a source that changed underneath is not staged.
5.  The manifest is written last and made durable, then the folders that lead to it.
6.  Under the store's lock, ``staging/v1-ID/entry`` is renamed to ``entries/NAME``. This one
    rename publishes: before it nothing is found, after it everything is there.
7.  The digests of the source are remembered, by which a load finds the copy.

A process that dies before 6 leaves a folder in ``staging/`` that is never looked into, only
removed (2). One that dies between 6 and 7 leaves a good copy that is found once the source's
digests are known again; staging it again then ends at 6, where the copy is found to be there.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fxload._errors import CapacityError, FxloadError, ModelNotFoundError, UnsupportedError
from fxload._version import __version__
from fxload.checkpoint.file_stat import stat_files
from fxload.checkpoint.identity import DigestMemory
from fxload.config import load_config
from fxload.progress import Progress
from fxload.sources import resolve_model
from fxload.warm.copying import CopyOptions, copy_checked
from fxload.warm.entry import read_entry
from fxload.warm.faults import os_errors
from fxload.warm.job import Job
from fxload.warm.lookup import find_entry
from fxload.warm.manifest import MANIFEST, Manifest, ManifestFile, write_durably
from fxload.warm.place import choose_places
from fxload.warm.registry import known_stores, register
from fxload.warm.room import Demand, Reservation, evict_for, sweep_dead, take_out
from fxload.warm.source import entry_name, find_source
from fxload.warm.staged import StagedModel
from fxload.warm.store import Store, make_folder, sync_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from fxload.config import Config
    from fxload.warm.place import Place
    from fxload.warm.source import Source, SourceFile

__all__ = ["stage"]

_log = logging.getLogger(__name__)

# A file that changed this recently may change again and keep its times.
_RACY_NS = 2_000_000_000


def stage(
    model: str | os.PathLike[str],
    *,
    to: str | os.PathLike[str] | None = None,
    config: Config | None = None,
    progress: Callable[[Progress], None] | None = None,
    evict: bool = True,
    limit_bytes: int | None = None,
    options: CopyOptions | None = None,
) -> StagedModel:
    """Copy a model to a warm store, or find that it is there; return once it is published.

    A model that is already staged, and did not change since, is found by what is remembered of
    its files: no byte of it is read. While another process stages the same model, this one waits
    for the result and takes over if the other dies.

    Args:
        model: a folder, a file, a hub cache name or an ``fx://`` name.
        to: the store folder to use; by default the one in memory if the memory limit of the
            control group, the machine and the store's quota allow, else the local disk.
        config: the configuration; by default that of the user.
        progress: told how far the copy has come, also of another process that is waited for.
        evict: make room by removing the least recently used models that nobody reads.
        limit_bytes: what the store may hold in all, instead of the configured limit.
        options: how to read the source.

    Raises:
        ModelNotFoundError: no such model, or shards are missing.
        CheckpointError: the files break a rule of their format.
        CapacityError: there is no room; nothing is left behind.
        ChangedError: the source changed while it was copied.
        StorageError: the source or the store cannot be read or written, or is not safe to use.
        DeadlineError: the source, or a process that was waited for, made no progress.
        UnsupportedError: a newer fxload owns the store.
    """
    config = load_config() if config is None else config
    options = CopyOptions() if options is None else options
    target = None if to is None else Path(to)
    path = resolve_model(model, config)
    source = find_source(path)
    memory = DigestMemory(config.state_dir)
    staged = _find(source, memory, _searched(target, config))
    if staged is None:
        places = choose_places(target, config, quota_bytes=limit_bytes)
        with ExitStack() as jobs:
            held = [
                jobs.enter_context(
                    Job.take(
                        place.store,
                        source.key,
                        stall_timeout_s=options.stall_timeout_s,
                        progress=progress,
                    )
                )
                for place in places
            ]

            def tell(now: Progress) -> None:
                for job in held:
                    job.tell(now)
                if progress is not None:
                    progress(now)

            _settle(source)
            source = find_source(path)
            staged = _find(source, memory, _searched(target, config)) or _stage_in_one_of(
                places, _Task(source, memory, options, tell), evict=evict
            )
    if progress is not None:
        progress(Progress(source.size_bytes, source.size_bytes))
    if target is not None:
        _register(staged, config)
    return staged


def _register(staged: StagedModel, config: Config) -> None:
    """Let later loads look into the store; the copy is good even where that cannot be."""
    try:
        register(staged.store, config)
    except (FxloadError, OSError) as error:
        _log.warning(
            "staged, but the store %s cannot be remembered, later loads will not look there: %s",
            staged.store,
            error,
        )


@dataclass(frozen=True)
class _Task:
    """A source on its way into a store."""

    source: Source
    memory: DigestMemory
    options: CopyOptions
    tell: Callable[[Progress], None]


def _searched(to: Path | None, config: Config) -> list[Store]:
    """The stores where an existing copy would do."""
    if to is None:
        return known_stores(config)[0]
    store = Store.open(to, create=False)
    return [] if store is None else [store]


def _find(source: Source, memory: DigestMemory, stores: Iterable[Store]) -> StagedModel | None:
    digests = _remembered(source, memory)
    if len(digests) < len(source.files):
        return None
    name, _ = entry_name(source.files, digests)
    for store in stores:
        found = find_entry(
            store, name, file=source.file, reason="it was there: the source is unchanged"
        )
        if found is None:
            continue
        try:
            with found.hold():
                _remember_copy(source.files, digests, found.root, memory)
        except ModelNotFoundError:
            continue  # evicted since it was found
        return found
    return None


def _remembered(source: Source, memory: DigestMemory) -> dict[str, str]:
    known = ((file.name, memory.lookup(file.stat)) for file in source.files)
    return {name: digest for name, digest in known if digest is not None}


def _settle(source: Source) -> None:
    """Wait until a change during the copy could not go unseen for a coarse clock."""
    newest = max(max(file.stat.mtime_ns, file.stat.ctime_ns) for file in source.files)
    age = time.time_ns() - newest
    if 0 <= age < _RACY_NS:
        time.sleep((_RACY_NS - age) / 1e9 + 0.01)


def _stage_in_one_of(
    places: list[Place], task: _Task, *, evict: bool, refused: tuple[str, ...] = ()
) -> StagedModel:
    """Stage to the first store that has room; ``refused`` says why earlier ones had none."""
    first, *others = places
    try:
        return _stage(replace(first, reason="; ".join([*refused, first.reason])), task, evict=evict)
    except CapacityError as error:
        _log.info("no room in the warm store: %s", error)
        refused = (*refused, f"{error.path}: {error.reason}")
        if not others and len(refused) == 1:
            raise
        if not others:
            raise CapacityError(
                "no store has room: " + "; ".join(refused),
                path=str(task.source.path),
                length=task.source.size_bytes,
                hint=error.hint,
            ) from error
    return _stage_in_one_of(others, task, evict=evict, refused=refused)


def _stage(place: Place, task: _Task, *, evict: bool) -> StagedModel:
    source, store = task.source, place.store
    demand = Demand.of([file.size_bytes for file in source.files])
    with store.lock():
        sweep_dead(store)
        for victim in evict_for(store, demand, place.limits, evict=evict):
            _log.info("evicted %s (%s) from %s", victim.name, victim.source, store.root)
        reservation = Reservation.make(store, demand, str(source.path))
    opening_ns = time.time_ns()
    try:
        model = reservation.entry / "model"
        digests = copy_checked(
            source,
            model,
            remembered=_remembered(source, task.memory),
            memory_bytes=demand.size_bytes if store.kind == "ram" else 0,
            options=task.options,
            progress=task.tell,
        )
        name, digest = entry_name(source.files, digests)
        _complete(reservation.entry, source, digest, digests)
        _remember_copy(source.files, digests, model, task.memory)
        reused = _publish(store, reservation, name)
    finally:
        reservation.drop()
    entry = store.entries / name
    # The copy began after the files had settled, and found them as they were listed.
    kept = [
        task.memory.remember(file.stat._replace(opened_ns=opening_ns), digests[file.name])
        for file in source.files
    ]
    if not all(kept):
        _log.warning(
            "%s: its digests cannot be remembered, a later load will not find the copy in %s",
            source.path,
            entry,
        )
    return StagedModel(
        path=entry / "model" / source.file,
        root=entry / "model",
        digest=digest,
        size_bytes=source.size_bytes,
        store=store.root,
        reused=reused,
        kind=store.kind,
        entry=entry,
        reason=place.reason,
    )


def _complete(entry: Path, source: Source, digest: str, digests: Mapping[str, str]) -> None:
    """Step 5: the manifest, and every folder up to the entry's."""
    model = entry / "model"
    # With the content only, times may reach the disk much later: they are part of the trust.
    for file in source.files:
        with os_errors(model / file.name, "make the copy durable"):
            sync_path(model / file.name)
    copies = stat_files([model / file.name for file in source.files])
    files = [
        ManifestFile(
            name=file.name,
            size_bytes=file.size_bytes,
            digest=digests[file.name],
            weights=file.weights,
            inode=copy.inode,
            mtime_ns=copy.mtime_ns,
            ctime_ns=copy.ctime_ns,
        )
        for file, copy in zip(source.files, copies, strict=True)
    ]
    manifest = Manifest(
        digest=digest,
        file=source.file,
        source=str(source.path),
        created_unix_s=time.time(),
        writer=f"fxload {__version__}",
        files=tuple(files),
    )
    with os_errors(entry, "complete the entry"):
        (entry / "lock").touch(mode=0o600)
        write_durably(entry / MANIFEST, manifest.to_json())
        for folder, _, _ in os.walk(entry, topdown=False):
            sync_path(Path(folder))


def _publish(store: Store, reservation: Reservation, name: str) -> bool:
    """Step 6; true if somebody else published the same content before."""
    entry = store.entries / name
    with store.lock():
        there = read_entry(store, name)
        if there is not None:
            if there.state == "ready":
                return True
            if there.state == "newer":
                raise UnsupportedError(
                    f"another entry is in the way: {there.problem}", path=str(entry)
                )
            take_out(store, entry)
        with os_errors(entry, "publish the entry"):
            make_folder(store.entries)
            reservation.entry.rename(entry)
            sync_path(store.entries)
    return False


def _remember_copy(
    files: Iterable[SourceFile], digests: Mapping[str, str], model: Path, memory: DigestMemory
) -> None:
    """Make the copy known, too, for those who are pointed at it by its path."""
    names = [file.name for file in files]
    for name, copy in zip(names, stat_files([model / name for name in names]), strict=True):
        if memory.lookup(copy) is None:
            memory.remember(copy, digests[name])
