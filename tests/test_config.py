from __future__ import annotations

import os
from pathlib import Path

import pytest

from fxload._errors import StorageError, UsageError
from fxload.config import Config, load_config


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("FXLOAD_CONFIG", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_defaults(home: Path) -> None:
    config = load_config()
    assert config == Config()
    assert config.mounts == {}
    assert config.state_dir == home / ".cache" / "fxload"
    assert config.warm_disk_dir == config.state_dir / "models"
    assert config.warm_ram_dir == Path(f"/dev/shm/fxload-{os.getuid()}")
    assert config.warm_ram_limit_bytes is config.warm_disk_limit_bytes is None


def test_base_folders_of_the_user(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    write(home / "config" / "fxload" / "config.toml", "warm_disk_limit_bytes = 5")
    assert load_config().warm_disk_limit_bytes == 5
    assert load_config().state_dir == home / "cache" / "fxload"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert load_config() == Config(state_dir=home / ".cache" / "fxload")


def test_everything_can_be_set(home: Path) -> None:
    path = write(
        home / "fx.toml",
        """
        state_dir = "~/state"
        warm_ram_dir = "/dev/shm/x"
        warm_disk_dir = "/disk"
        warm_ram_limit_bytes = "1.5GiB"
        warm_disk_limit_bytes = "2 TB"
        [mounts]
        fx100 = "/mnt/fx100/models"
        "b.c-d_1" = "~/b"
        """,
    )
    assert load_config(path) == Config(
        mounts={"fx100": Path("/mnt/fx100/models"), "b.c-d_1": home / "b"},
        state_dir=home / "state",
        warm_ram_dir=Path("/dev/shm/x"),
        warm_disk_dir=Path("/disk"),
        warm_ram_limit_bytes=3 << 29,
        warm_disk_limit_bytes=2 * 10**12,
    )


def test_the_disk_store_follows_the_state_folder() -> None:
    assert Config(state_dir=Path("/s")).warm_disk_dir == Path("/s/models")


def test_a_configuration_cannot_be_changed() -> None:
    mounts = {"a": Path("/a")}
    config = Config(mounts=mounts)
    mounts["b"] = Path("/b")
    assert dict(config.mounts) == {"a": Path("/a")}
    with pytest.raises(TypeError):
        config.mounts["b"] = Path("/b")  # type: ignore[index]


def test_the_argument_goes_before_the_variable_and_it_before_the_default(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home / ".config" / "fxload" / "config.toml", "warm_ram_limit_bytes = 1")
    assert load_config().warm_ram_limit_bytes == 1
    monkeypatch.setenv("FXLOAD_CONFIG", str(write(home / "2.toml", "warm_ram_limit_bytes = 2")))
    assert load_config().warm_ram_limit_bytes == 2
    three = write(home / "3.toml", "warm_ram_limit_bytes = 3")
    assert load_config(three).warm_ram_limit_bytes == 3
    monkeypatch.setenv("FXLOAD_CONFIG", "")
    assert load_config().warm_ram_limit_bytes == 1


def test_a_named_file_must_be_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no such configuration file") as caught:
        load_config(home / "gone.toml")
    assert caught.value.path == str(home / "gone.toml")
    monkeypatch.setenv("FXLOAD_CONFIG", str(home / "gone.toml"))
    with pytest.raises(UsageError, match="FXLOAD_CONFIG"):
        load_config()
    with pytest.raises(StorageError):
        load_config(home)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("warm_ram_limit = 1", "unknown key 'warm_ram_limit'.*known are mounts"),
        ("state_dir = 1", "state_dir = 1 is not"),
        ('state_dir = "relative"', "absolute"),
        ('state_dir = "~nobody-of-this-name/x"', "home"),
        ('state_dir = "/a\\u0000b"', "path"),
        ('mounts = "/a"', "table"),
        ("[mounts]\na = 1", r"mounts\.a = 1 is not"),
        ('[mounts]\n"a/b" = "/a"', "letters"),
        ('[mounts]\n"" = "/a"', "letters"),
        ("warm_ram_limit_bytes = -1", "number of bytes"),
        ("warm_ram_limit_bytes = true", "number of bytes"),
        ("warm_ram_limit_bytes = 1.5", "number of bytes"),
        ('warm_ram_limit_bytes = "64"', "number of bytes"),
        ('warm_ram_limit_bytes = "64 potatoes"', "number of bytes"),
        ("state_dir =\n", "not TOML.*line 1"),
        ("a = 1\na = 2", "not TOML"),
    ],
)
def test_a_bad_file_is_named_with_the_reason(home: Path, text: str, reason: str) -> None:
    path = write(home / "fx.toml", text)
    with pytest.raises(UsageError, match=reason) as caught:
        load_config(path)
    assert caught.value.path == str(path)
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_is_not_utf8(home: Path) -> None:
    path = home / "fx.toml"
    path.write_bytes(b'state_dir = "\xff"')
    with pytest.raises(UsageError, match="not TOML"):
        load_config(path)
