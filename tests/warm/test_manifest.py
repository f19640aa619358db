from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fxload
from fxload.warm.manifest import Manifest, ManifestFile, write_durably

if TYPE_CHECKING:
    from pathlib import Path

FILE = ManifestFile("a/model.safetensors", 8, "0" * 32, True, 5, 6, 7)
SIDE = ManifestFile("config.json", 0, "1" * 32, False, 6, 7, 8)
MANIFEST = Manifest("fx1-" + "0" * 32, "", "/models/m", 1.5, "fxload", (FILE, SIDE))

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def written(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_durably(tmp_path / "manifest.json", MANIFEST.to_json())
    assert Manifest.read(tmp_path / "manifest.json") == MANIFEST
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_unknown_members_are_ignored(tmp_path: Path) -> None:
    content = {**json.loads(MANIFEST.to_json()), "later": [1]}
    assert Manifest.read(written(tmp_path / "m", content)) == MANIFEST


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", 0),
        ("format", True),
        ("format", "1"),
        ("digest", None),
        ("file", "elsewhere"),
        ("files", [1]),
        ("files", [json.loads(MANIFEST.to_json())["files"][0]] * 2),
        ("created_unix_s", "today"),
    ],
)
def test_wrong_member(tmp_path: Path, key: str, value: object) -> None:
    content = {**json.loads(MANIFEST.to_json()), key: value}
    with pytest.raises(fxload.StorageError) as caught:
        Manifest.read(written(tmp_path / "m", content))
    assert caught.value.path == str(tmp_path / "m")


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../up", "a/../../b", "a\0b"])
def test_names_stay_in_the_folder(tmp_path: Path, name: str) -> None:
    content = json.loads(MANIFEST.to_json())
    content["files"][0]["name"] = name
    with pytest.raises(fxload.StorageError, match="leaves the folder"):
        Manifest.read(written(tmp_path / "m", content))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_mutation_is_one_clear_error_or_a_manifest(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = json.loads(MANIFEST.to_json())
    place = content if data.draw(st.booleans()) else content["files"][0]
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON)
    raw = bytearray(json.dumps(content).encode())
    if data.draw(st.booleans()):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "mutated.json"
    path.write_bytes(raw)
    line = ""
    try:
        Manifest.read(path)
    except (fxload.StorageError, fxload.UnsupportedError) as error:
        line = str(error)
    assert "\n" not in line


def test_deep_nesting_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("[" * 200_000)
    with pytest.raises(fxload.StorageError):
        Manifest.read(tmp_path / "m")
