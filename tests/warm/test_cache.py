"""Listing, removing, verifying; entries of other formats."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fxload
from fxload import warm
from fxload.warm.room import Demand, Limits, evict_for, room
from fxload.warm.store import Store
from tests.support.needs import need_device, need_program, need_root
from tests.warm.looking import content, find, leftovers
from tests.warm.mounting import mount, unmount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fxload.config import Config
    from tests.warm.conftest import Model


def test_listing(models: dict[str, Model], config: Config, tmp_path: Path) -> None:
    assert warm.list_entries(config=config) == warm.Listing((), ())
    first = warm.stage(models["a"].path, config=config)
    second = warm.stage(models["b"].path, config=config)
    named = warm.stage(models["c"].path, to=tmp_path / "mine", config=config)
    entries = warm.list_entries(config=config).entries
    assert [entry.path for entry in entries] == [second.path, first.path, named.path]
    assert [entry.kind for entry in entries] == ["ram", "ram", "disk"]
    entry = entries[1]
    assert (entry.state, entry.problem, entry.in_use) == ("ready", "", False)
    assert (entry.digest, entry.source) == (first.digest, str(models["a"].path))
    assert entry.files == len(content(first.path))
    assert entry.size_bytes >= first.size_bytes
    assert entry.created_unix_s <= entry.last_used_unix_s
    json.dumps([asdict(entry) for entry in entries], default=str)
    only = warm.list_entries(to=tmp_path / "mine").entries
    assert [entry.path for entry in only] == [named.path]


def test_listing_of_no_store(tmp_path: Path) -> None:
    with pytest.raises(fxload.ModelNotFoundError, match="no warm store"):
        warm.list_entries(to=tmp_path / "none")


@pytest.mark.parametrize("by", ["name", "digest", "prefix", "bare", "path", "entry", "source"])
def test_remove_by(models: dict[str, Model], config: Config, by: str) -> None:
    staged = warm.stage(models["a"].path, config=config)
    warm.stage(models["b"].path, config=config)
    name = {
        "name": staged.entry.name,
        "digest": staged.digest,
        "prefix": staged.digest[:12],
        "bare": staged.digest.partition("-")[2][:8],
        "path": str(staged.path),
        "entry": str(staged.entry),
        "source": str(models["a"].path),
    }[by]
    (result,) = warm.remove([name], config=config)
    assert (result.removed, result.reason) == (True, "")
    assert not staged.entry.exists()
    (left,) = warm.list_entries(config=config).entries
    assert left.source == str(models["b"].path)
    assert leftovers(config.warm_ram_dir) == []
    assert find(models["a"].path, config) is None


def test_remove_what_is_not_there(model: Path, config: Config) -> None:
    warm.stage(model, config=config)
    with pytest.raises(fxload.ModelNotFoundError, match="cache ls"):
        warm.remove(["fx1-000000"], config=config)
    with pytest.raises(fxload.ModelNotFoundError, match="6 characters"):
        warm.remove(["fx1"], config=config)
    with pytest.raises(fxload.UsageError):
        warm.remove([], config=config)
    assert len(warm.list_entries(config=config).entries) == 1


def test_remove_everything(models: dict[str, Model], config: Config) -> None:
    for name in "abc":
        warm.stage(models[name].path, config=config)
    assert [item.removed for item in warm.remove([], everything=True, config=config)] == [True] * 3
    assert warm.list_entries(config=config).entries == ()


def test_remove_leaves_what_is_being_read_unless_forced(model: Path, config: Config) -> None:
    staged = warm.stage(model, config=config)
    with staged.hold() as hold:
        (refused,) = warm.remove([staged.digest], config=config)
        assert (refused.removed, refused.reason) == (False, "somebody is reading it")
        assert content(hold.path) == content(staged.path)
        (forced,) = warm.remove([staged.digest], force=True, config=config)
        assert forced.removed
        with pytest.raises(fxload.ModelNotFoundError):
            staged.hold()
    assert not staged.entry.exists()
    warm.sweep(config=config)
    assert leftovers(config.warm_ram_dir) == []


def test_hold_by_path(model: Path, config: Config, tmp_path: Path) -> None:
    staged = warm.stage(model, config=config)
    for path in (staged.path, staged.path / "config.json", staged.entry):
        hold = warm.hold_path(path)
        assert hold is not None
        assert hold.entry == staged.entry
        assert hold.digests.keys() == content(staged.path).keys()
        hold.close()
        hold.close()
    assert warm.hold_path(model) is None
    # A folder that only looks like an entry holds nothing.
    shutil.copytree(staged.entry, tmp_path / "entries/x")
    assert warm.hold_path(tmp_path / "entries/x/model") is None


def test_verify_good_entries(models: dict[str, Model], config: Config) -> None:
    for name in "ab":
        warm.stage(models[name].path, config=config)
    seen: list[fxload.Progress] = []
    verdicts = warm.verify(config=config, progress=seen.append)
    assert [(verdict.good, verdict.faults, verdict.reason) for verdict in verdicts] == [
        (True, (), "")
    ] * 2
    assert all(verdict.checked_bytes > 700_000 for verdict in verdicts)
    assert seen[-1].done_bytes == seen[-1].total_bytes


def test_verify_names_every_wrong_file(model: Path, config: Config) -> None:
    staged = warm.stage(model, config=config)
    first, second, _ = sorted(staged.path.glob("*.safetensors"))
    raw = bytearray(first.read_bytes())
    raw[-1] ^= 1
    first.write_bytes(raw)
    second.write_bytes(second.read_bytes()[:-1])
    (staged.path / "config.json").unlink()
    (verdict,) = warm.verify([staged.digest], config=config)
    assert not verdict.good
    assert {(fault.name, fault.problem) for fault in verdict.faults} == {
        (first.name, "digest"),
        (second.name, "size"),
        ("config.json", "missing"),
    }
    json.dumps(asdict(verdict), default=str)
    (entry,) = warm.list_entries(config=config).entries
    assert entry.state == "damaged"
    # Still so when asked again, until it is staged again.
    assert not warm.verify(config=config)[0].good
    assert not warm.stage(model, config=config).reused
    assert warm.verify(config=config)[0].good


@pytest.fixture
def image(session_folder: Path) -> Iterator[Path]:
    need_root("mounting ext4")
    need_device("/dev/loop-control")
    maker = need_program("mkfs.ext4", "e2fsprogs")
    folder = Path(tempfile.mkdtemp(dir=session_folder))
    path = folder / "disk.img"
    path.touch()
    os.truncate(path, 32 << 20)
    subprocess.run([maker, "-q", "-F", str(path)], check=True)
    (folder / "disk").mkdir()
    yield path
    if (folder / "disk").is_mount():
        unmount(folder / "disk")


def test_verify_sees_a_bit_that_rotted_on_the_disk(
    models: dict[str, Model], config: Config, image: Path
) -> None:
    disk = image.parent / "disk"
    model = models["a"].path
    shard = "model-00002-of-00003.safetensors"
    mount(disk, "-o", "loop", str(image))
    staged = warm.stage(model, to=disk / "store", config=config)
    os.sync()
    good = content(staged.path)
    # Below the file system: no time and no size tells of it, and memory still has it right.
    pattern = (model / shard).read_bytes()[-64:]
    where = image.read_bytes().index(pattern)
    with image.open("r+b") as file:
        file.seek(where)
        file.write(bytes([pattern[0] ^ 1]))
    assert content(staged.path) == good
    assert find(model, config) is not None
    (verdict,) = warm.verify(config=config)
    assert not verdict.good
    assert [(fault.name, fault.problem) for fault in verdict.faults] == [(shard, "digest")]
    assert find(model, config) is None
    (entry,) = warm.list_entries(config=config).entries
    assert (entry.state, entry.source) == ("damaged", str(model))
    assert not warm.stage(model, to=disk / "store", config=config).reused
    assert warm.verify(config=config)[0].good


def newer_entry(store: Path, name: str = "fx2-new") -> dict[str, bytes]:
    """An entry, a staging folder and a job of a format to come."""
    for folder in (store / "entries" / name, store / "staging/v2-x"):
        (folder / "model").mkdir(parents=True)
        (folder / "model/weights").write_bytes(bytes(100_000))
        (folder / "lock").touch()
    (store / "entries" / name / "manifest.json").write_text('{"format": 2, "all": "new"}')
    (store / "staging/v2-x/reservation.json").write_text('{"format": 2}')
    (store / "jobs/v2-x.lock").touch()
    return {key: raw for key, raw in content(store).items() if "fx2-" in key or "v2-" in key}


def test_newer_format_is_neither_believed_nor_removed(
    models: dict[str, Model], config: Config
) -> None:
    warm.stage(models["a"].path, config=config)
    before = newer_entry(config.warm_ram_dir)
    store = Store.open(config.warm_ram_dir, create=False)
    assert store is not None
    entries = {entry.name: entry for entry in warm.list_entries(config=config).entries}
    assert entries["fx2-new"].state == "newer"
    assert entries["fx2-new"].size_bytes >= 100_000
    assert warm.hold_path(entries["fx2-new"].path) is None
    results = warm.remove([], everything=True, force=True, config=config)
    assert {item.entry.name: item.removed for item in results}["fx2-new"] is False
    assert "fxload that wrote it" in next(
        item.reason for item in results if item.entry.name == "fx2-new"
    )
    assert [(v.good, bool(v.reason)) for v in warm.verify(config=config)] == [(False, True)]
    with store.lock():
        # It counts, and it does not go.
        assert room(store, Limits(1_000_000)).available_bytes <= 800_000
        with pytest.raises(fxload.CapacityError):
            evict_for(store, Demand(950_000), Limits(1_000_000), evict=True)
    warm.sweep(config=config)
    assert {
        key: raw for key, raw in content(store.root).items() if "fx2-" in key or "v2-" in key
    } == before


def test_newer_entry_in_the_way_is_not_replaced(model: Path, config: Config) -> None:
    staged = warm.stage(model, config=config)
    (staged.entry / "manifest.json").write_text('{"format": 2}')
    assert find(model, config) is None
    with pytest.raises(fxload.UnsupportedError, match="format 2"):
        warm.stage(model, config=config)
    assert (staged.entry / "manifest.json").read_text() == '{"format": 2}'
    assert leftovers(config.warm_ram_dir) == []


def test_newer_store_is_not_used(model: Path, config: Config) -> None:
    warm.stage(model, config=config)
    marker = config.warm_ram_dir / "fxload-store.json"
    marker.write_text('{"format": 2}')
    before = content(config.warm_ram_dir)
    assert find(model, config) is None
    listing = warm.list_entries(config=config)
    assert listing.entries == ()
    assert "format 2" in listing.unusable[0]
    assert warm.stage(model, config=config).kind == "disk"
    with pytest.raises(fxload.UnsupportedError):
        warm.stage(model, to=config.warm_ram_dir, config=config)
    assert content(config.warm_ram_dir) == before


def test_unreadable_entry_is_shown_kept_and_removable(
    models: dict[str, Model], config: Config
) -> None:
    staged = warm.stage(models["a"].path, config=config)
    (staged.entry / "manifest.json").write_text("not JSON")
    (entry,) = warm.list_entries(config=config).entries
    assert (entry.state, entry.name) == ("unreadable", staged.entry.name)
    store = Store.open(config.warm_ram_dir, create=False)
    assert store is not None
    with store.lock(), pytest.raises(fxload.CapacityError):
        evict_for(store, Demand(1_500_000), Limits(2_000_000), evict=True)
    assert warm.remove([entry.name], config=config)[0].removed
