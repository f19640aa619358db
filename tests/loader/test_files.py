"""Loading some files of a model, chosen by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from safetensors.torch import load_file, save_file

import fxload
from fxload.config import Config
from fxload.loader import load_checkpoint, open_checkpoint
from fxload.warm import stage
from tests.support.checkpoints import same_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from tests.loader.conftest import CheckpointFactory


def test_some_shards_of_a_model(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint(shards=3)
    names = [checkpoint.files[2].name, checkpoint.files[0].name]
    loaded = load_checkpoint(checkpoint.path, files=names)
    expected = load_file(checkpoint.files[0]) | load_file(checkpoint.files[2])
    assert list(loaded) == [*load_file(checkpoint.files[0]), *load_file(checkpoint.files[2])]
    assert all(same_bytes(loaded[name], tensor) for name, tensor in expected.items())


def test_the_index_still_says_which_tensors_of_a_shard_count(
    make_checkpoint: CheckpointFactory,
) -> None:
    checkpoint = make_checkpoint(shards=3)
    index = checkpoint.path / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    del content["weight_map"]["layers.0.bias"]
    index.write_text(json.dumps(content))
    assert "layers.0.bias" not in load_checkpoint(checkpoint.path, files=[checkpoint.files[0].name])


def test_a_file_beside_those_of_the_index(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint(shards=2)
    copy = checkpoint.path / "consolidated.safetensors"
    save_file(load_file(checkpoint.files[0]), copy)
    assert load_checkpoint(checkpoint.path, files=[copy.name]).keys() == load_file(copy).keys()


def test_chosen_files_come_from_a_staged_copy_that_holds_them(
    make_checkpoint: CheckpointFactory, tmp_path: Path
) -> None:
    checkpoint = make_checkpoint(shards=3)
    other = checkpoint.path / "consolidated.safetensors"
    save_file(load_file(checkpoint.files[0]), other)
    config = Config(state_dir=tmp_path / "state", warm_ram_dir=tmp_path / "ram")
    stage(checkpoint.path, config=config)
    for name, staged in ((checkpoint.files[1].name, True), (other.name, False)):
        with open_checkpoint(checkpoint.path, files=[name], config=config) as opened:
            loaded = dict(opened)
            assert opened.report().staged is staged
        assert loaded.keys() == load_file(checkpoint.path / name).keys()


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["../other.safetensors"], fxload.UsageError),
        (["/etc/passwd"], fxload.UsageError),
        (["config.json"], fxload.UsageError),
        ([], fxload.UsageError),
        (["model-00009-of-00002.safetensors"], fxload.ModelNotFoundError),
    ],
)
def test_names_that_make_no_sense_are_refused(
    make_checkpoint: CheckpointFactory, names: list[str], kind: type[Exception]
) -> None:
    checkpoint = make_checkpoint(shards=2)
    with pytest.raises(kind) as raised:
        load_checkpoint(checkpoint.path, files=names)
    assert "\n" not in str(raised.value)
    assert not names or names[0] in str(raised.value)
