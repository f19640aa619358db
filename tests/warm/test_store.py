"""Whose folder a store may be."""

from __future__ import annotations

import json
import os
import shutil
import stat
from typing import TYPE_CHECKING

import pytest

import fxload
from fxload import warm
from fxload.warm.registry import known_stores
from fxload.warm.store import Store
from tests.support.isolation import NOBODY
from tests.support.needs import need_root
from tests.warm.looking import find
from tests.warm.stagers import arguments

if TYPE_CHECKING:
    from pathlib import Path

    from fxload.config import Config
    from tests.support.isolation import Isolation


def opened(path: Path) -> Store:
    store = Store.open(path, create=True)
    assert store is not None
    return store


def test_new_store_is_private(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        store = opened(tmp_path / "new" / "store")
    finally:
        os.umask(old)
    folders = [store.root, store.entries, store.staging, store.jobs]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}
    assert store.kind == "disk"


def test_store_on_tmpfs_is_memory(memory_folder: Path) -> None:
    assert opened(memory_folder / "store").kind == "ram"


def test_missing_store_is_not_made_by_looking(tmp_path: Path) -> None:
    assert Store.open(tmp_path / "none", create=False) is None
    assert not (tmp_path / "none").exists()


def test_empty_folder_becomes_a_private_store(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir(mode=0o755)
    store = opened(tmp_path / "empty")
    assert stat.S_IMODE(store.root.stat().st_mode) == 0o700


def test_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o755)
    (tmp_path / "home/letter.txt").touch()
    with pytest.raises(fxload.UsageError, match=r"letter\.txt") as caught:
        Store.open(tmp_path / "home", create=True)
    assert str(tmp_path / "home/fxload") in str(caught.value)
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o755
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["letter.txt"]
    assert Store.open(tmp_path / "home", create=False) is None


def test_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(fxload.StorageError):
        Store.open(tmp_path / "file", create=True)


def test_store_that_others_can_read_is_closed(tmp_path: Path) -> None:
    root = opened(tmp_path / "store").root
    root.chmod(0o755)
    opened(tmp_path / "store")
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_store_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    opened(tmp_path / "store").root.chmod(mode)
    for create in (True, False):
        with pytest.raises(fxload.StorageError, match="cannot be trusted"):
            Store.open(tmp_path / "store", create=create)


def test_store_that_others_can_replace_is_refused(tmp_path: Path) -> None:
    opened(tmp_path / "open/store")
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(fxload.StorageError, match="anyone can replace it"):
        Store.open(tmp_path / "open/store", create=False)
    (tmp_path / "open").chmod(0o1777)
    assert Store.open(tmp_path / "open/store", create=False) is not None


def test_own_link_to_a_store_is_followed(tmp_path: Path) -> None:
    opened(tmp_path / "store")
    (tmp_path / "link").symlink_to("store")
    assert opened(tmp_path / "link").root == tmp_path / "store"


@pytest.mark.parametrize("name", ["entries", "staging", "jobs"])
def test_store_whose_folders_lead_elsewhere_is_refused(
    tmp_path: Path, model: Path, config: Config, name: str
) -> None:
    root = opened(tmp_path / "store").root
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "v1-0123456789abcdef").mkdir(parents=True)
    (root / name).rmdir()
    (root / name).symlink_to(elsewhere)
    for create in (True, False):
        with pytest.raises(fxload.StorageError, match="symbolic link") as caught:
            Store.open(root, create=create)
        assert str(root / name) in str(caught.value)
    with pytest.raises(fxload.StorageError, match="symbolic link"):
        warm.stage(model, to=root, config=config)
    assert [path.name for path in elsewhere.iterdir()] == ["v1-0123456789abcdef"]
    (root / name).unlink()
    (root / name).touch()
    with pytest.raises(fxload.StorageError, match="not a folder"):
        Store.open(root, create=True)


def test_store_with_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    need_root("giving a folder away")
    store = opened(tmp_path / "store")
    os.chown(store.staging, NOBODY, NOBODY)
    with pytest.raises(fxload.StorageError, match="belongs to another user"):
        Store.open(store.root, create=True)


def test_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    need_root("giving a folder away")
    os.chown(opened(tmp_path / "store").root, NOBODY, NOBODY)
    for create in (True, False):
        with pytest.raises(fxload.StorageError, match="belongs to another user"):
            Store.open(tmp_path / "store", create=create)


def test_link_of_another_user_is_refused(tmp_path: Path) -> None:
    need_root("giving a link away")
    opened(tmp_path / "store")
    link = tmp_path / "link"
    link.symlink_to("store")
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(fxload.StorageError, match="symbolic link of another user"):
        Store.open(link, create=False)


def test_squatted_memory_store_means_the_disk(model: Path, config: Config) -> None:
    need_root("giving a folder away")
    config.warm_ram_dir.mkdir()
    os.chown(config.warm_ram_dir, NOBODY, NOBODY)
    staged = warm.stage(model, config=config)
    assert staged.kind == "disk"
    assert "belongs to another user" in staged.reason
    assert list(config.warm_ram_dir.iterdir()) == []
    found = find(model, config)
    assert found is not None
    assert found.kind == "disk"
    _, unusable = known_stores(config)
    assert [item.path for item in unusable] == [config.warm_ram_dir]


def readable_copy(model: Path, folder: Path) -> Path:
    shutil.copytree(model, folder)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def test_unprivileged_user_stages_and_root_keeps_out(
    unprivileged: Isolation, model: Path, public_folder: Path
) -> None:
    from fxload.config import Config

    model = readable_copy(model, public_folder / "m")
    # As /dev/shm: everybody may make folders, nobody may take another's.
    shared = public_folder / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    config = Config(
        state_dir=public_folder / "home/state",
        warm_ram_dir=shared / "ram",
        warm_disk_dir=shared / "disk",
    )
    staged = json.loads(unprivileged.python(*arguments(config, model)).stdout)
    assert staged["kind"] == "disk"
    assert (shared / "disk").stat().st_uid == NOBODY
    assert stat.S_IMODE((shared / "disk").stat().st_mode) == 0o700
    # And the other way round: root's store is refused to the user, with one line that says so.
    opened(shared / "roots")
    refused = unprivileged.python(*arguments(config, model, more={"to": str(shared / "roots")}))
    answer = json.loads(refused.stdout)
    assert answer["error"] == "StorageError"
    assert "belongs to another user (uid 0)" in answer["text"]


def test_unprivileged_user_cannot_read_the_source(
    unprivileged: Isolation, model: Path, public_folder: Path
) -> None:
    from fxload.config import Config

    readable_copy(model, public_folder / "m")
    secret = public_folder / "m/model-00002-of-00003.safetensors"
    secret.chmod(0o600)
    config = Config(
        state_dir=public_folder / "home/state", warm_ram_dir=public_folder / "home/none"
    )
    answer = json.loads(unprivileged.python(*arguments(config, public_folder / "m")).stdout)
    assert str(secret) in answer["text"]
    assert list((public_folder / "home/state/models/staging").iterdir()) == []
