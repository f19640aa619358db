from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fxload._errors import CheckpointError, ModelNotFoundError, StorageError, UsageError
from fxload.checkpoint import Header, ShardList, TensorInfo, allowed_tensors, find_shards

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.isolation import Isolation

INDEX = "model.safetensors.index.json"


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def write_index(folder: Path, weight_map: Any, name: str = INDEX) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def part(number: int, of: int, stem: str = "model") -> str:
    return f"{stem}-{number:05}-of-{of:05}.safetensors"


def test_a_single_file(tmp_path: Path) -> None:
    touch(tmp_path, "any.safetensors", "other.safetensors")
    shards = find_shards(tmp_path / "any.safetensors")
    assert shards == ShardList(tmp_path, ("any.safetensors",))
    assert shards.paths == (tmp_path / "any.safetensors",)


def test_a_folder_with_one_file(tmp_path: Path) -> None:
    touch(tmp_path, "model.safetensors", "config.json", "pytorch_model.bin", ".part.safetensors")
    (tmp_path / "sub.safetensors").mkdir()
    assert find_shards(str(tmp_path)) == ShardList(tmp_path, ("model.safetensors",))


def test_the_index_decides(tmp_path: Path) -> None:
    touch(tmp_path, part(1, 2), part(2, 2), "model.safetensors", "consolidated.safetensors")
    write_index(tmp_path, {"b": part(2, 2), "a": part(1, 2), "c": part(1, 2)})
    shards = find_shards(tmp_path)
    assert shards.files == (part(1, 2), part(2, 2))
    assert shards.weight_map == {"b": part(2, 2), "a": part(1, 2), "c": part(1, 2)}
    assert shards.index == INDEX
    assert shards.ignored == ("consolidated.safetensors", "model.safetensors")
    assert find_shards(tmp_path / INDEX) == shards


@pytest.mark.parametrize(
    ("names", "files"),
    [
        ([part(2, 2), part(1, 2)], [part(1, 2), part(2, 2)]),
        (["b.safetensors", "a.safetensors"], ["a.safetensors", "b.safetensors"]),
        (["m-10.safetensors", "m-9.safetensors"], ["m-9.safetensors", "m-10.safetensors"]),
        (["consolidated.safetensors", "model.safetensors"], ["model.safetensors"]),
        (["consolidated.00.safetensors", part(1, 1)], [part(1, 1)]),
        (
            ["consolidated.00.safetensors", "consolidated.01.safetensors"],
            ["consolidated.00.safetensors", "consolidated.01.safetensors"],
        ),
        (["model.safetensors", part(1, 2), part(2, 2)], ["model.safetensors"]),
        (
            ["diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.fp16.safetensors"],
            ["diffusion_pytorch_model.safetensors"],
        ),
        (["diffusion_pytorch_model.fp16.safetensors"],) * 2,
        (["model.safetensors", "model.vision.safetensors"],) * 2,
        ([part(0, 2), part(1, 2)],) * 2,
    ],
)
def test_a_folder_without_index(tmp_path: Path, names: list[str], files: list[str]) -> None:
    touch(tmp_path, *names)
    shards = find_shards(tmp_path)
    assert list(shards.files) == files
    assert shards.weight_map is None
    assert sorted([*shards.files, *shards.ignored]) == sorted(names)


def test_an_index_of_many_megabytes(tmp_path: Path) -> None:
    weight_map = {f"layer.{number}.{'x' * 80}": part(number % 3 + 1, 3) for number in range(20_000)}
    for number in (1, 2, 3):
        (tmp_path / part(number, 3)).touch()
    write_index(tmp_path, weight_map)
    assert (tmp_path / INDEX).stat().st_size > 2 << 20
    assert find_shards(tmp_path).weight_map == weight_map


def test_other_indexes_count_where_there_is_no_model_index(tmp_path: Path) -> None:
    stem = "diffusion_pytorch_model"
    touch(tmp_path, part(1, 1, stem))
    write_index(tmp_path, {"a": part(1, 1, stem)}, f"{stem}.safetensors.index.json")
    assert find_shards(tmp_path).files == (part(1, 1, stem),)
    write_index(tmp_path, {"a": "c.safetensors"}, "consolidated.safetensors.index.json")
    assert find_shards(tmp_path).files == (part(1, 1, stem),)
    write_index(tmp_path, {"a": part(1, 1, stem)}, "other.safetensors.index.json")
    with pytest.raises(CheckpointError, match=r"diffusion_.*other") as caught:
        find_shards(tmp_path)
    assert caught.value.rule == "ambiguous-index"
    write_index(tmp_path, {"a": part(1, 1, stem)})
    assert find_shards(tmp_path).index == INDEX


def test_all_missing_shards_are_named_at_once(tmp_path: Path) -> None:
    touch(tmp_path, part(3, 5), "model.safetensors")
    (tmp_path / part(4, 5)).symlink_to(tmp_path / "gone")
    (tmp_path / part(5, 5)).mkdir()
    write_index(tmp_path, {str(number): part(number, 5) for number in range(1, 6)})
    with pytest.raises(ModelNotFoundError) as caught:
        find_shards(tmp_path)
    text = str(caught.value)
    assert "missing 4 shards" in text
    for number in (1, 2, 4, 5):
        assert part(number, 5) in text
    assert part(3, 5) not in text
    assert "model.safetensors to load it alone" in text


def test_gaps_of_a_series_are_named_without_an_index(tmp_path: Path) -> None:
    touch(tmp_path, part(1, 100), part(100, 100))
    with pytest.raises(ModelNotFoundError) as caught:
        find_shards(tmp_path)
    assert "missing 98 shards" in str(caught.value)
    assert part(2, 100) in str(caught.value)
    assert "and 58 more" in str(caught.value)


def test_a_hub_cache_of_links_is_followed(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshots" / "abc"
    names = [part(number, 20) for number in range(1, 21)]
    for name in names:
        touch(tmp_path, f"blobs/{name}.blob")
        touch(snapshot, "x")
        (snapshot / name).symlink_to(f"../../blobs/{name}.blob")
    write_index(snapshot, {name: name for name in names})
    assert find_shards(snapshot).files == tuple(names)
    (tmp_path / "blobs" / f"{names[7]}.blob").unlink()
    with pytest.raises(ModelNotFoundError, match=names[7]):
        find_shards(snapshot)
    (snapshot / INDEX).unlink()
    with pytest.raises(ModelNotFoundError, match=names[7]):
        find_shards(snapshot)


def test_shards_in_subfolders_and_with_roundabout_names(tmp_path: Path) -> None:
    touch(tmp_path, "sub/a.safetensors", "b.safetensors")
    write_index(tmp_path, {"x": "sub/a.safetensors", "y": "./b.safetensors", "z": "b.safetensors"})
    shards = find_shards(tmp_path)
    assert shards.files == ("b.safetensors", "sub/a.safetensors")
    assert shards.weight_map == {
        "x": "sub/a.safetensors",
        "y": "b.safetensors",
        "z": "b.safetensors",
    }


@pytest.mark.parametrize(
    "name",
    [
        "/etc/model.safetensors",
        "../model.safetensors",
        "sub/../../model.safetensors",
        "sub/..",
        "..",
        ".",
        "",
        "a\0.safetensors",
    ],
)
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    touch(tmp_path, "model.safetensors", "model/sub/a.safetensors")
    write_index(folder, {"some.tensor": name})
    with pytest.raises(CheckpointError, match=r"some\.tensor") as caught:
        find_shards(folder)
    assert caught.value.rule == "index-escapes"
    assert caught.value.path == str(folder / INDEX)


@pytest.mark.parametrize(
    ("content", "rule", "offset"),
    [
        (b"", "index-not-json", 0),
        ('{"ä":1,'.encode(), "index-not-json", 8),
        (b'{"weight_map": \xff}', "index-not-json", 15),
        (b"[" * 100_000, "index-not-json", None),
        (b'{"weight_map": ' + b"1" * 5000 + b"}", "index-not-json", None),
        (b"[]", "index-wrong-type", None),
        (b"{}", "index-wrong-type", None),
        (b'{"weight_map": []}', "index-wrong-type", None),
        (b'{"weight_map": {"a": 1}}', "index-wrong-type", None),
        (b'{"weight_map": {"a": null}}', "index-wrong-type", None),
        (b'{"weight_map": {"a": "model.bin"}}', "index-wrong-type", None),
        (b'{"weight_map": {}}', "index-empty", None),
    ],
)
def test_a_broken_index_is_named(
    tmp_path: Path, content: bytes, rule: str, offset: int | None
) -> None:
    touch(tmp_path, "model.safetensors")
    (tmp_path / INDEX).write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        find_shards(tmp_path)
    error = caught.value
    assert (error.rule, error.path) == (rule, str(tmp_path / INDEX))
    if offset is not None:
        assert error.offset == offset
    assert len(str(error).splitlines()) == 1


def test_an_index_that_is_a_dangling_link(tmp_path: Path) -> None:
    touch(tmp_path, "model.safetensors")
    (tmp_path / INDEX).symlink_to("gone")
    with pytest.raises(ModelNotFoundError, match="dangling"):
        find_shards(tmp_path)


def test_folders_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="folder that holds the model"):
        find_shards(tmp_path)
    touch(tmp_path, "pytorch_model.bin")
    with pytest.raises(ModelNotFoundError, match=r"no \.safetensors"):
        find_shards(tmp_path)
    with pytest.raises(ModelNotFoundError, match="no such file"):
        find_shards(tmp_path / "gone")
    with pytest.raises(ModelNotFoundError, match="no such file"):
        find_shards(tmp_path / "pytorch_model.bin" / "sub")
    with pytest.raises(UsageError, match="not a safetensors file"):
        find_shards(tmp_path / "pytorch_model.bin")


_FIND = """
import sys
from fxload._errors import StorageError
from fxload.checkpoint import find_shards
for path in sys.argv[1:]:
    try:
        print(find_shards(path).files)
    except StorageError as error:
        print(error.os_errno, error.path)
"""


def test_what_may_not_be_read_is_named(unprivileged: Isolation, public_folder: Path) -> None:
    closed, half = public_folder / "closed", public_folder / "half"
    touch(closed, "model.safetensors", "linked.safetensors")
    touch(half, "x")
    for number in range(10):
        (half / f"{number}.safetensors").symlink_to(closed / "linked.safetensors")
    closed.chmod(0o700)
    result = unprivileged.python(_FIND, closed, closed / "model.safetensors", half)
    assert result.stdout.splitlines() == [
        f"13 {closed}",
        f"13 {closed / 'model.safetensors'}",
        f"13 {half / '0.safetensors'}",
    ]


def test_a_path_that_loops_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StorageError):
        find_shards(tmp_path / "loop" / "model")


def header(*names: str) -> Header:
    return Header(8, [TensorInfo(name, "U8", (1,), 8 + i, 9 + i) for i, name in enumerate(names)])


def names_of(allowed: list[list[TensorInfo]]) -> list[list[str]]:
    return [[tensor.name for tensor in tensors] for tensors in allowed]


def test_the_index_is_an_allowlist_for_each_file(tmp_path: Path) -> None:
    shards = ShardList(tmp_path, ("1", "2"), {"a": "1", "b": "2", "c": "2"}, INDEX)
    headers = [header("x", "a", "b"), header("a", "c", "b")]
    assert names_of(allowed_tensors(shards, headers)) == [["a"], ["c", "b"]]


def test_without_an_index_all_tensors_are_handed_out(tmp_path: Path) -> None:
    shards = ShardList(tmp_path, ("1", "2"))
    assert names_of(allowed_tensors(shards, [header("b", "a"), header()])) == [["b", "a"], []]


def test_a_tensor_that_no_shard_holds_is_named(tmp_path: Path) -> None:
    shards = ShardList(tmp_path, ("1", "2"), {"a": "1", "gone": "2", "lost": "1"}, INDEX)
    with pytest.raises(CheckpointError, match=r"'gone' into 2, but no shard.* 1 more") as caught:
        allowed_tensors(shards, [header("a"), header("b")])
    assert caught.value.rule == "index-mismatch"
    assert caught.value.path == str(tmp_path / INDEX)


def test_a_tensor_in_another_shard_is_named(tmp_path: Path) -> None:
    shards = ShardList(tmp_path, ("1", "2"), {"a": "1", "b": "2"}, INDEX)
    with pytest.raises(CheckpointError, match="'b' into 2, but 1 holds it"):
        allowed_tensors(shards, [header("a", "b"), header()])


def test_the_same_tensor_in_two_files_needs_an_index(tmp_path: Path) -> None:
    shards = ShardList(tmp_path, ("1", "2", "3"))
    with pytest.raises(CheckpointError, match="'b' is in 1 and in 3") as caught:
        allowed_tensors(shards, [header("a", "b"), header("c"), header("d", "b")])
    assert caught.value.rule == "duplicate-tensor"


def test_an_index_that_names_no_possible_file_is_broken(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"x": "m\\ud800.safetensors"}}')
    with pytest.raises(CheckpointError, match="no possible file name") as caught:
        find_shards(tmp_path)
    assert caught.value.rule == "index-wrong-type"
