from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fxload
from fxload import warm
from fxload.checkpoint.identity import DigestMemory, model_digest
from fxload.checkpoint.shards import find_shards
from fxload.warm.copying import copy_checked
from fxload.warm.manifest import Manifest
from fxload.warm.source import find_source
from tests.warm.looking import content, find, leftovers

if TYPE_CHECKING:
    from fxload.config import Config
    from fxload.progress import Progress
    from tests.conftest import SlowFsFactory
    from tests.warm.conftest import Copies, Model

LEFT_OUT = {"pytorch_model.bin", ".cache"}


def test_staged_copy_holds_the_same_bytes(model: Path, config: Config) -> None:
    staged = warm.stage(model, config=config)
    expected = {name: raw for name, raw in content(model).items() if name not in LEFT_OUT}
    assert content(staged.path) == expected
    assert staged.size_bytes == sum(map(len, expected.values()))
    assert (staged.reused, staged.kind, staged.store) == (False, "ram", config.warm_ram_dir)
    assert staged.entry.name.startswith(staged.digest)
    assert leftovers(staged.store) == []


def test_digest_is_that_of_the_weights(model: Path, config: Config) -> None:
    staged = warm.stage(model, config=config)
    manifest = Manifest.read(staged.entry / "manifest.json")
    weights = [(file.name, file.size_bytes, file.digest) for file in manifest.weights]
    assert [name for name, _, _ in weights] == list(find_shards(model).files)
    assert staged.digest == model_digest(weights)


def test_store_that_cannot_be_remembered_is_a_warning(
    model: Path, config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config.state_dir.mkdir()
    (config.state_dir / "stores").write_text("in the way")
    staged = warm.stage(model, to=tmp_path / "named", config=config)
    assert staged.path.is_dir()
    assert f"the store {tmp_path / 'named'} cannot be remembered" in caplog.text


def test_an_engine_loads_the_copy(model: Path, config: Config) -> None:
    from tests.support.checkpoints import same_bytes

    staged = warm.stage(model, config=config)
    there = fxload.load_checkpoint(model, staged=False)
    copy = fxload.load_checkpoint(staged.path, staged=False)
    assert there.keys() == copy.keys()
    assert all(same_bytes(there[name], copy[name]) for name in there)


def test_second_time_reads_no_byte_of_the_source(
    slowfs: SlowFsFactory, copies: Copies, config: Config
) -> None:
    storage = slowfs(copies.take("a").parent)
    first = warm.stage(storage.mount / "m", config=config)
    before = storage.counters()
    second = warm.stage(storage.mount / "m", config=config)
    after = storage.counters()
    assert not first.reused
    assert second == replace(first, reused=True, reason=second.reason)
    assert (after["read_bytes"], after["reads"]) == (before["read_bytes"], before["reads"])
    assert before["read_bytes"] >= first.size_bytes


def test_memory_is_refused_by_its_limit_then_disk_is_used(model: Path, config: Config) -> None:
    small = replace(config, warm_ram_limit_bytes=100_000)
    staged = warm.stage(model, config=small)
    assert (staged.kind, staged.store) == ("disk", config.warm_disk_dir)
    assert "limit of 100000 bytes" in staged.reason
    found = find(model, small)
    assert found is not None
    assert found.path == staged.path


def test_no_store_has_room(model: Path, config: Config) -> None:
    small = replace(config, warm_ram_limit_bytes=100_000, warm_disk_limit_bytes=200_000)
    with pytest.raises(fxload.CapacityError, match="200000") as caught:
        warm.stage(model, config=small)
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    assert leftovers(config.warm_ram_dir) == leftovers(config.warm_disk_dir) == []


def test_memory_store_that_is_no_memory_is_passed_over(
    model: Path, config: Config, tmp_path: Path
) -> None:
    staged = warm.stage(model, config=replace(config, warm_ram_dir=tmp_path / "not-ram"))
    assert staged.kind == "disk"
    assert "no tmpfs" in staged.reason


def test_named_store_is_used_and_found_later(model: Path, config: Config, tmp_path: Path) -> None:
    staged = warm.stage(model, to=tmp_path / "mine", config=config)
    assert staged.store == tmp_path / "mine"
    found = find(model, config)
    assert found is not None
    assert found.path == staged.path
    shutil.rmtree(tmp_path / "mine")
    assert find(model, config) is None
    assert not warm.stage(model, config=config).reused


def test_named_store_gets_its_own_copy(model: Path, config: Config, tmp_path: Path) -> None:
    warm.stage(model, config=config)
    assert not warm.stage(model, to=tmp_path / "mine", config=config).reused
    assert warm.stage(model, to=tmp_path / "mine", config=config).reused


def test_memory_is_preferred_to_disk(model: Path, config: Config) -> None:
    warm.stage(model, to=config.warm_disk_dir, config=config)
    warm.stage(model, to=config.warm_ram_dir, config=config)
    found = find(model, config)
    assert found is not None
    assert found.kind == "ram"


def test_one_file_is_staged_alone(model: Path, config: Config) -> None:
    path = model / "model-00002-of-00003.safetensors"
    staged = warm.stage(path, config=config)
    assert staged.path.name == path.name
    assert content(staged.root) == {path.name: path.read_bytes()}
    assert find(path, config) is not None
    assert find(model, config) is None


def test_index_is_what_is_pointed_at_if_it_was_named(model: Path, config: Config) -> None:
    staged = warm.stage(model / "model.safetensors.index.json", config=config)
    assert find_shards(staged.path).files == find_shards(model).files
    # The same content, named as a folder, is the same entry.
    folder = warm.stage(model, config=config)
    assert folder.reused
    assert folder.path == staged.path.parent


def test_links_are_followed_to_files(model: Path, config: Config, tmp_path: Path) -> None:
    # As in a hub cache: a snapshot of links to blobs.
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for path in model.iterdir():
        (snapshot / path.name).symlink_to(path)
    source = find_source(snapshot)
    assert {file.name for file in source.files} == {
        path.name for path in model.iterdir() if path.is_file() and path.name not in LEFT_OUT
    }
    staged = warm.stage(snapshot, config=config)
    assert not any(path.is_symlink() for path in staged.path.rglob("*"))


def test_other_models_of_the_folder_stay_behind(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    shutil.copytree(model, folder)
    shutil.copy(folder / "model-00001-of-00003.safetensors", folder / "consolidated.safetensors")
    (folder / "other.safetensors.index.json").write_text('{"weight_map": {}}')
    (folder / "big.json").touch()
    os.truncate(folder / "big.json", (64 << 20) + 1)
    source = find_source(folder)
    assert set(source.left_out) == {
        "big.json",
        "consolidated.safetensors",
        "other.safetensors.index.json",
        "pytorch_model.bin",
    }


def test_changed_source_with_restored_times_is_not_served_stale(
    copies: Copies, config: Config
) -> None:
    source = copies.take("a")
    old = warm.stage(source, config=config)
    shard = source / "model-00002-of-00003.safetensors"
    before = shard.stat()
    with shard.open("r+b") as file:
        file.seek(before.st_size - 1)
        last = file.read(1)
        file.seek(before.st_size - 1)
        file.write(bytes([last[0] ^ 1]))
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert shard.stat().st_mtime_ns == before.st_mtime_ns
    assert find(source, config) is None
    new = warm.stage(source, config=config)
    assert not new.reused
    assert new.digest != old.digest
    assert (new.path / shard.name).read_bytes() == shard.read_bytes()
    found = find(source, config)
    assert found is not None
    assert found.path == new.path


def test_source_that_was_just_written_is_found_afterwards(
    model: Path, config: Config, tmp_path: Path
) -> None:
    shutil.copytree(model, tmp_path / "m")
    warm.stage(tmp_path / "m", config=config)
    assert find(tmp_path / "m", config) is not None


def test_same_weights_beside_another_config_are_another_entry(
    model: Path, config: Config, tmp_path: Path
) -> None:
    shutil.copytree(model, tmp_path / "m")
    (tmp_path / "m/config.json").write_text('{"model_type": "other"}')
    first = warm.stage(model, config=config)
    second = warm.stage(tmp_path / "m", config=config)
    assert first.digest == second.digest
    assert first.path != second.path
    assert (second.path / "config.json").read_text() == '{"model_type": "other"}'
    # A load wants the weights only: any entry with them will do.
    found = find(model, config)
    assert found is not None
    assert found.digest == first.digest


def test_copy_of_a_staged_source_is_recognised(model: Path, copies: Copies, config: Config) -> None:
    first = warm.stage(model, config=config)
    second = warm.stage(copies.take("a"), config=config)
    assert second.reused
    assert second.path == first.path
    assert len(warm.list_entries(config=config).entries) == 1


def test_touched_copy_is_not_served_but_staged_again(model: Path, config: Config) -> None:
    staged = warm.stage(model, config=config)
    shard = staged.path / "model-00001-of-00003.safetensors"
    before = shard.stat()
    with shard.open("r+b") as file:
        file.seek(before.st_size - 1)
        file.write(b"x")
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert find(model, config) is None
    with pytest.raises(fxload.ChangedError):
        staged.hold()
    again = warm.stage(model, config=config)
    assert not again.reused
    assert shard.read_bytes() == (model / shard.name).read_bytes()


def test_wrong_bytes_of_an_unchanged_source_are_refused(copies: Copies, config: Config) -> None:
    source = copies.take("a")
    file = next(file for file in find_source(source).files if file.weights)
    DigestMemory(config.state_dir).remember(file.stat, "0" * 32)
    with pytest.raises(fxload.StorageError, match="remembered") as caught:
        warm.stage(source, config=config)
    assert caught.value.path == str(file.path)
    assert warm.list_entries(config=config).entries == ()
    assert leftovers(config.warm_ram_dir) == []


def test_flipped_bit_on_the_way_is_refused(
    slowfs: SlowFsFactory, copies: Copies, config: Config, tmp_path: Path
) -> None:
    storage = slowfs(copies.take("large").parent, keep_cache=False)
    warm.stage(storage.mount / "m", config=config)
    with (
        storage.faults.during("read flip 6 model-00003-of-00003.safetensors"),
        pytest.raises(fxload.StorageError, match="remembered"),
    ):
        warm.stage(storage.mount / "m", to=tmp_path / "other", config=config)
    assert warm.list_entries(config=config, to=tmp_path / "other").entries == ()
    assert not warm.stage(storage.mount / "m", to=tmp_path / "other", config=config).reused


def test_eio_in_the_middle_leaves_nothing(
    slowfs: SlowFsFactory, copies: Copies, config: Config
) -> None:
    storage = slowfs(copies.take("large").parent)
    shard = "model-00002-of-00003.safetensors"
    with (
        storage.faults.during(f"read EIO 6 {shard}"),
        pytest.raises(fxload.StorageError) as caught,
    ):
        warm.stage(storage.mount / "m", config=config)
    assert caught.value.path == str(storage.mount / "m" / shard)
    assert leftovers(config.warm_ram_dir) == []
    assert find(storage.mount / "m", config) is None
    assert not warm.stage(storage.mount / "m", config=config).reused


def test_source_that_changes_while_it_is_copied_is_refused(
    slowfs: SlowFsFactory, copies: Copies, config: Config
) -> None:
    storage = slowfs(copies.take("a").parent, attr_s=0)
    shard = storage.root / "m/model-00001-of-00003.safetensors"
    changed = False

    def change(_: Progress) -> None:
        nonlocal changed
        if not changed:
            os.utime(shard)
            changed = True

    with pytest.raises(fxload.ChangedError) as caught:
        warm.stage(storage.mount / "m", config=config, progress=change)
    assert caught.value.path == str(storage.mount / "m" / shard.name)
    assert leftovers(config.warm_ram_dir) == []
    assert warm.list_entries(config=config).entries == ()


def test_source_that_changed_since_it_was_listed_is_refused(copies: Copies, tmp_path: Path) -> None:
    source = find_source(copies.take("a"))
    config_file = source.root / "config.json"
    config_file.write_text('{"model_type": "replace"}')
    with pytest.raises(fxload.ChangedError, match="between listing and opening") as caught:
        copy_checked(
            source,
            tmp_path,
            remembered={},
            memory_bytes=0,
            options=warm.CopyOptions(),
            progress=lambda _: None,
        )
    assert caught.value.path == str(config_file)


def test_interrupt_leaves_nothing(model: Path, config: Config) -> None:
    def interrupt(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        warm.stage(model, config=config, progress=interrupt)
    assert leftovers(config.warm_ram_dir) == []
    assert not warm.stage(model, config=config).reused


def test_broken_checkpoint_is_refused_before_anything_is_copied(
    model: Path, config: Config, tmp_path: Path
) -> None:
    shutil.copytree(model, tmp_path / "m")
    shard = tmp_path / "m/model-00002-of-00003.safetensors"
    os.truncate(shard, shard.stat().st_size - 1)
    with pytest.raises(fxload.CheckpointError) as caught:
        warm.stage(tmp_path / "m", config=config)
    assert caught.value.path == str(shard)
    assert leftovers(config.warm_ram_dir) == []


def test_missing_shard_is_named(model: Path, config: Config, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "m")
    (tmp_path / "m/model-00002-of-00003.safetensors").unlink()
    with pytest.raises(fxload.ModelNotFoundError, match="model-00002-of-00003"):
        warm.stage(tmp_path / "m", config=config)


def test_stalled_source_ends_at_the_deadline(
    slowfs: SlowFsFactory, copies: Copies, config: Config
) -> None:
    storage = slowfs(copies.take("large").parent)
    storage.faults.set("read hang 6 model-00003-of-00003.safetensors")
    with pytest.raises(fxload.DeadlineError) as caught:
        warm.stage(
            storage.mount / "m", config=config, options=warm.CopyOptions(stall_timeout_s=0.5)
        )
    assert caught.value.path is not None
    assert Path(caught.value.path).name == "model-00003-of-00003.safetensors"
    storage.faults.clear()
    assert leftovers(config.warm_ram_dir) == []
    assert not warm.stage(storage.mount / "m", config=config).reused


def test_progress_ends_at_the_total(models: dict[str, Model], config: Config) -> None:
    seen: list[Progress] = []
    staged = warm.stage(models["b"].path, config=config, progress=seen.append)
    assert seen[-1] == (staged.size_bytes, staged.size_bytes)
    assert [now.done_bytes for now in seen] == sorted(now.done_bytes for now in seen)
