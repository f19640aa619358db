"""Quotas, eviction, full file systems and memory limits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fxload
from fxload import warm
from fxload.host_memory import HostMemory
from fxload.warm.room import Demand, Limits, Reservation, evict_for, room, sweep_dead
from fxload.warm.store import Store
from tests.support.needs import need_root
from tests.warm.groups import memory_group
from tests.warm.looking import find, leftovers
from tests.warm.mounting import mount, unmount
from tests.warm.stagers import arguments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fxload.config import Config
    from tests.warm.conftest import Model

# Enough for two of the small models, not for three.
TWO = 2_000_000


@pytest.fixture
def small_tmpfs(session_folder: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    need_root("mounting tmpfs")
    folder = Path(tempfile.mkdtemp(dir=session_folder))
    options = getattr(request, "param", "size=4m")
    mount(folder, "-t", "tmpfs", "-o", options, "tmpfs")
    yield folder
    unmount(folder)


@pytest.fixture
def store(config: Config) -> Store:
    made = Store.open(config.warm_ram_dir, create=True)
    assert made is not None
    return made


def names(config: Config) -> set[str]:
    return {entry.source.rpartition("/")[2] for entry in warm.list_entries(config=config).entries}


def fill(config: Config, models: dict[str, Model], *which: str) -> Config:
    """The named models staged in turn, in a store with room for two."""
    tight = replace(config, warm_ram_limit_bytes=TWO, warm_disk_limit_bytes=0)
    for name in which:
        warm.stage(models[name].path, config=tight)
    return tight


def test_least_recently_used_makes_room(models: dict[str, Model], config: Config) -> None:
    tight = fill(config, models, "a", "b")
    assert find(models["a"].path, tight) is not None  # now "b" is the older one
    warm.stage(models["c"].path, config=tight)
    assert names(tight) == {"a", "c"}
    assert leftovers(config.warm_ram_dir) == []


def test_what_is_being_read_stays(models: dict[str, Model], config: Config) -> None:
    tight = fill(config, models, "a", "b")
    oldest = find(models["a"].path, tight)
    assert oldest is not None
    with oldest.hold():
        find(models["b"].path, tight)
        warm.stage(models["c"].path, config=tight)
        assert names(tight) == {"a", "c"}
        held = {entry.source: entry.in_use for entry in warm.list_entries(config=tight).entries}
        assert held == {str(models["a"].path): True, str(models["c"].path): False}
    assert not any(entry.in_use for entry in warm.list_entries(config=tight).entries)


def test_nothing_is_evicted_if_that_is_not_enough(models: dict[str, Model], config: Config) -> None:
    tight = fill(config, models, "a", "b")
    first, second = warm.list_entries(config=tight).entries
    with (
        warm.hold_path(first.path) or pytest.fail("not held"),
        warm.hold_path(second.path) or pytest.fail("not held"),
        pytest.raises(fxload.CapacityError),
    ):
        warm.stage(models["c"].path, config=tight)
    assert names(tight) == {"a", "b"}
    # One could go, but a model of the whole quota needs both.
    with (
        warm.hold_path(first.path) or pytest.fail("not held"),
        pytest.raises(fxload.CapacityError, match="more if unused entries are evicted"),
    ):
        warm.stage(
            models["c"].path,
            to=config.warm_ram_dir,
            config=replace(tight, warm_ram_limit_bytes=1_000_000),
        )
    assert names(tight) == {"a", "b"}


def test_no_eviction_if_it_is_not_wanted(models: dict[str, Model], config: Config) -> None:
    tight = fill(config, models, "a", "b")
    with pytest.raises(fxload.CapacityError) as caught:
        warm.stage(models["c"].path, config=tight, evict=False)
    assert str(TWO) in str(caught.value)
    assert names(tight) == {"a", "b"}


def test_quota_of_the_call_goes_before_that_of_the_configuration(
    models: dict[str, Model], config: Config, tmp_path: Path
) -> None:
    with pytest.raises(fxload.CapacityError, match="500000"):
        warm.stage(models["a"].path, to=tmp_path / "mine", config=config, limit_bytes=500_000)


def test_full_file_system_is_found_before_anything_is_copied(
    models: dict[str, Model], small_tmpfs: Path, config: Config
) -> None:
    (small_tmpfs / "hog").write_bytes(bytes(3_600_000))
    with pytest.raises(fxload.CapacityError, match="free space") as caught:
        warm.stage(models["a"].path, to=small_tmpfs / "store", config=config)
    assert caught.value.hint
    assert leftovers(small_tmpfs / "store") == []
    (small_tmpfs / "hog").unlink()
    assert not warm.stage(models["a"].path, to=small_tmpfs / "store", config=config).reused


@pytest.mark.parametrize("small_tmpfs", ["size=16m,nr_inodes=20"], indirect=True)
def test_no_room_in_the_middle_of_the_copy(
    models: dict[str, Model], small_tmpfs: Path, config: Config
) -> None:
    # The free space is there, but the last files cannot be made: ENOSPC in the middle.
    with pytest.raises(fxload.CapacityError, match=str(small_tmpfs)) as caught:
        warm.stage(models["a"].path, to=small_tmpfs / "store", config=config)
    del caught  # with its frames it would keep the transfer alive
    assert leftovers(small_tmpfs / "store") == []
    assert list((small_tmpfs / "store/entries").iterdir()) == []
    assert find(models["a"].path, config) is None
    mount(small_tmpfs, "-o", "remount,nr_inodes=100")
    assert not warm.stage(models["a"].path, to=small_tmpfs / "store", config=config).reused


def test_eviction_works_on_a_full_file_system(
    models: dict[str, Model], small_tmpfs: Path, config: Config
) -> None:
    store = small_tmpfs / "store"
    warm.stage(models["a"].path, to=store, config=config)
    warm.stage(models["b"].path, to=store, config=config)
    free = os.statvfs(small_tmpfs)
    (small_tmpfs / "hog").write_bytes(bytes(free.f_bavail * free.f_frsize))
    warm.stage(models["c"].path, to=store, config=config)
    (entry,) = warm.list_entries(config=config, to=store).entries
    assert entry.source == str(models["c"].path)


def test_room_is_the_least_of_its_bounds(store: Store) -> None:
    memory = HostMemory(8 << 30, 16 << 30, "a limit")
    with store.lock():
        free = room(store, Limits(memory=lambda: HostMemory(1 << 50, 1 << 50, "")))
        assert free.bound.startswith("free space")
        assert room(store, Limits(memory=lambda: memory)) == (7 << 30, "memory (a limit)")
        assert room(store, Limits(1000, memory=lambda: memory)).available_bytes == 1000
        nothing = HostMemory(0, 16 << 30, "a limit")
        assert room(store, Limits(memory=lambda: nothing)).available_bytes == 0


def test_disk_store_does_not_ask_for_memory(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", create=True)
    assert store is not None

    def fail() -> HostMemory:
        raise AssertionError("a disk store takes no memory")

    with store.lock():
        assert room(store, Limits(memory=fail)).available_bytes > 0
        space = os.statvfs(tmp_path)
        margin = space.f_blocks * space.f_frsize
        assert room(store, Limits(margin_bytes=margin, memory=fail)).available_bytes == 0


def test_reservations_of_others_count_until_they_are_written(store: Store) -> None:
    limits = Limits(1 << 30, memory=lambda: HostMemory(8 << 30, 16 << 30, "a limit"))
    by_memory = replace(limits, quota_bytes=None)
    with store.lock():
        quota, memory = room(store, limits)[0], room(store, by_memory)[0]
        other = Reservation.make(store, Demand(100 << 20), "other")
        assert room(store, limits)[0] == quota - (100 << 20)
        assert memory - (100 << 20) <= room(store, by_memory)[0] <= memory - (99 << 20)
        # What is written takes from the memory itself; the rest is still outstanding.
        other.entry.mkdir()
        with (other.entry / "part").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 60 << 20)
        assert room(store, limits)[0] == quota - (100 << 20)
        assert memory - (41 << 20) <= room(store, by_memory)[0] <= memory - (39 << 20)
        sweep_dead(store)
        assert other.folder.exists()
    other.drop()
    with store.lock():
        assert room(store, limits)[0] == quota
    assert leftovers(store.root) == []


def test_reservations_of_others_count_against_the_file_system(small_tmpfs: Path) -> None:
    store = Store.open(small_tmpfs / "store", create=True)
    assert store is not None
    limits = Limits(memory=lambda: HostMemory(1 << 50, 1 << 50, ""))
    with store.lock():
        before = room(store, limits)[0]
        other = Reservation.make(store, Demand(2 << 20), "other")
        assert before - (2 << 20) <= room(store, limits)[0] <= before - (1 << 20)
    other.drop()
    with store.lock():
        assert room(store, limits)[0] == before


def test_damaged_entries_go_first(models: dict[str, Model], config: Config, store: Store) -> None:
    warm.stage(models["a"].path, config=config)
    newest = warm.stage(models["b"].path, config=config)
    (newest.path / "config.json").write_text("touched")
    with store.lock():
        limits = Limits(TWO)
        removed = evict_for(store, Demand(1_000_000), limits, evict=True)
    assert [entry.source for entry in removed] == [str(models["b"].path)]


@pytest.mark.parametrize("others_bytes", [300 << 20, 0])
def test_control_group_limits_what_goes_to_memory(
    sparse_model: Path, config: Config, others_bytes: int
) -> None:
    # 200 MB are to be staged, in a group of 512 MB in which others hold a tmpfs file.
    code, settings, model = arguments(config, sparse_model)
    held = config.warm_ram_dir.with_name(config.warm_ram_dir.name + "-others")
    setting = f"""
import os, sys
open(sys.argv[3] + "/cgroup.procs", "w").write(str(os.getpid()))
if {others_bytes}:
    os.posix_fallocate(os.open({str(held)!r}, os.O_RDWR | os.O_CREAT), 0, {others_bytes})
"""
    unlimited = json.dumps({**json.loads(settings), "limits": {"warm_ram_limit_bytes": 1 << 40}})
    with memory_group(512 << 20) as group:
        try:
            done = subprocess.run(
                [sys.executable, "-c", setting + code, unlimited, model, str(group)],
                capture_output=True,
                text=True,
                timeout=60,
            )
        finally:
            held.unlink(missing_ok=True)
            shutil.rmtree(config.warm_ram_dir, ignore_errors=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["kind"] == ("disk" if others_bytes else "ram")
    assert (str(group) in result["reason"]) == bool(others_bytes)


@pytest.fixture(scope="module")
def sparse_model(session_folder: Path) -> Path:
    """A model of 200 MB of zeros that take no room."""
    path = session_folder / "sparse" / "model.safetensors"
    path.parent.mkdir()
    size = 200_000_000
    header = json.dumps({"zeros": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}})
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode())
    os.truncate(path, 8 + len(header) + size)
    return path.parent
