from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fxload._errors import ModelNotFoundError, UnsupportedError, UsageError
from fxload.config import Config
from fxload.sources import find_in_hub_cache, hub_cache_dir, resolve_model

if TYPE_CHECKING:
    from tests.support.isolation import Isolation

COMMIT = "a" * 40
OTHER = "b" * 40


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    cache = tmp_path / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return cache


def add_to_hub(cache: Path, name: str, commits: dict[str, str]) -> Path:
    """A model in the cache: revision → commit. Returns the folder of its snapshots."""
    folder = cache / ("models--" + name.replace("/", "--"))
    for revision, commit in commits.items():
        snapshot = folder / "snapshots" / commit
        snapshot.mkdir(parents=True, exist_ok=True)
        (snapshot / "model.safetensors").write_bytes(b"")
        reference = folder / "refs" / revision
        reference.parent.mkdir(parents=True, exist_ok=True)
        reference.write_text(commit)
    return folder / "snapshots"


CONFIG = Config()


def test_a_path(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "model"
    folder.mkdir(parents=True)
    file = folder / "model.safetensors"
    file.write_bytes(b"")
    for model in (folder, str(folder), file, str(file)):
        assert resolve_model(model, CONFIG) == Path(model)
    assert resolve_model("home/model", CONFIG) == Path("home/model")
    assert resolve_model("~/model", CONFIG) == folder


def test_a_path_goes_before_a_name_of_the_hub(tmp_path: Path, hub: Path) -> None:
    snapshots = add_to_hub(hub, "org/name", {"main": COMMIT})
    assert resolve_model("org/name", CONFIG) == snapshots / COMMIT
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert resolve_model("org/name", CONFIG) == Path("org/name")


def test_a_mount(tmp_path: Path) -> None:
    (tmp_path / "fx" / "org" / "model").mkdir(parents=True)
    config = Config(mounts={"fx100": tmp_path / "fx", "gone": tmp_path / "gone"})
    assert resolve_model("fx://fx100/org/model", config) == tmp_path / "fx" / "org" / "model"
    assert resolve_model("fx://fx100//org/model/", config) == tmp_path / "fx" / "org" / "model"
    assert resolve_model("fx://fx100", config) == tmp_path / "fx"
    with pytest.raises(UsageError, match=r"unknown mount 'fx2'.*known are fx100, gone"):
        resolve_model("fx://fx2/model", config)
    with pytest.raises(UsageError, match=r"unknown mount 'fx100'.*\[mounts\]"):
        resolve_model("fx://fx100/model", CONFIG)
    with pytest.raises(UsageError, match="leaves its mount"):
        resolve_model("fx://fx100/org/../../secret", config)
    with pytest.raises(ModelNotFoundError, match="no such file") as caught:
        resolve_model("fx://fx100/org/other", config)
    assert caught.value.path == str(tmp_path / "fx" / "org" / "other")
    with pytest.raises(ModelNotFoundError, match=r"the mount's folder .* is gone"):
        resolve_model("fx://gone/model", config)


def test_revisions_of_the_hub(hub: Path) -> None:
    commits = {"main": COMMIT, "v1.0": OTHER, "refs/pr/7": OTHER}
    snapshots = add_to_hub(hub, "org/name", commits)
    assert find_in_hub_cache("org/name") == snapshots / COMMIT
    for revision, commit in {**commits, COMMIT: COMMIT, OTHER: OTHER}.items():
        assert resolve_model(f"org/name@{revision}", CONFIG) == snapshots / commit
    assert add_to_hub(hub, "gpt2", {"main": OTHER}) / OTHER == resolve_model("gpt2", CONFIG)


def test_what_the_hub_cache_lacks_is_named(hub: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="hf download org/name") as caught:
        resolve_model("org/name", CONFIG)
    assert str(hub) in str(caught.value)
    snapshots = add_to_hub(hub, "org/name", {"main": COMMIT, "refs/pr/7": COMMIT})
    with pytest.raises(ModelNotFoundError, match=f"not its revision v2; it has {COMMIT}"):
        resolve_model("org/name@v2", CONFIG)
    with pytest.raises(ModelNotFoundError, match="not its revision refs/pr"):
        resolve_model("org/name@refs/pr", CONFIG)
    (snapshots.parent / "refs" / "v3").write_text(OTHER)
    with pytest.raises(ModelNotFoundError, match=rf"revision v3 \(commit {OTHER}\)"):
        resolve_model("org/name@v3", CONFIG)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HUGGINGFACE_HUB_CACHE": "/c", "HF_HOME": "/b"}, "/c"),
        ({"HF_HOME": "/b", "XDG_CACHE_HOME": "/d"}, "/b/hub"),
        ({"HF_HOME": "~/b"}, "{home}/b/hub"),
        ({"HF_HOME": "$XDG_CACHE_HOME/b", "XDG_CACHE_HOME": "/d"}, "/d/b/hub"),
        ({"XDG_CACHE_HOME": "/d"}, "/d/huggingface/hub"),
        ({}, "{home}/.cache/huggingface/hub"),
    ],
)
def test_the_cache_is_where_the_hubs_library_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    monkeypatch.delenv("HF_HUB_CACHE")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    expected = expected.format(home=tmp_path / "home")
    assert hub_cache_dir() == Path(expected)
    theirs = _in_a_new_process(
        "from huggingface_hub.constants import HF_HUB_CACHE; print(HF_HUB_CACHE)"
    )
    assert theirs == expected


def test_the_hubs_library_finds_the_same_snapshot(hub: Path) -> None:
    add_to_hub(hub, "org/name", {"main": COMMIT, "v1": OTHER, "refs/pr/7": OTHER})
    for revision in ("main", "v1", "refs/pr/7", COMMIT):
        theirs = _in_a_new_process(
            "from huggingface_hub import snapshot_download\n"
            f"print(snapshot_download('org/name', revision={revision!r}, local_files_only=True))"
        )
        assert find_in_hub_cache("org/name", revision) == Path(theirs)


def _in_a_new_process(code: str) -> str:
    import subprocess
    import sys

    pytest.importorskip("huggingface_hub")
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.mark.parametrize("model", ["", "a\0b"])
def test_names_of_nothing(model: str) -> None:
    with pytest.raises(UsageError):
        resolve_model(model, CONFIG)


@pytest.mark.parametrize(
    "model",
    [
        "/no/such/model",
        "./org/name",
        "../org",
        "a/b/c",
        "org/name@../../x",
        "org/name@a/../../x",
        "org/..",
        "model.safetensors",
        "org--name",
        "~/model",
        Path("org/name"),
    ],
)
def test_what_can_only_be_a_path_is_not_looked_up_in_the_hub(model: str | Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no such file or folder"):
        resolve_model(model, CONFIG)


def test_other_schemes_are_not_supported() -> None:
    with pytest.raises(UnsupportedError, match="s3://"):
        resolve_model("s3://bucket/model", CONFIG)


def test_a_home_that_does_not_exist() -> None:
    with pytest.raises(UsageError, match="home"):
        resolve_model("~nobody-of-this-name/model", CONFIG)


_RESOLVE = """
import sys
from fxload._errors import StorageError
from fxload.config import Config
from fxload.sources import find_in_hub_cache, resolve_model
from pathlib import Path
folder = Path(sys.argv[1])
for call in (
    lambda: resolve_model(folder / "closed" / "model", Config()),
    lambda: find_in_hub_cache("org/name", "main", folder / "closed"),
    lambda: find_in_hub_cache("org/name", "main", folder / "hub"),
):
    try:
        call()
    except StorageError as error:
        print(error.os_errno, Path(error.path).relative_to(folder))
"""


def test_what_may_not_be_read_is_named(unprivileged: Isolation, public_folder: Path) -> None:
    (public_folder / "closed").mkdir(mode=0o700)
    add_to_hub(public_folder / "hub", "org/name", {"main": COMMIT})
    (public_folder / "hub" / "models--org--name" / "refs").chmod(0o700)
    result = unprivileged.python(_RESOLVE, public_folder)
    assert result.stdout.splitlines() == [
        "13 closed/model",
        "13 closed/models--org--name/snapshots",
        "13 hub/models--org--name/refs/main",
    ]
