"""The configuration file: named mounts, and where fxload keeps what it keeps.

An example::

    state_dir = "/var/cache/fxload"
    warm_ram_limit_bytes = "64GiB"

    [mounts]
    fx100 = "/mnt/fx100/models"        # fx://fx100/llama is /mnt/fx100/models/llama
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fxload._errors import StorageError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Config", "load_config"]

_MOUNT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)(i?)B", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


@dataclass(frozen=True)
class Config:
    """Settings of one process; all paths are absolute.

    Attributes:
        mounts: fx://NAME/rest is mounts[NAME]/rest.
        state_dir: remembered digests.
        warm_ram_dir: staged models in memory (a tmpfs).
        warm_disk_dir: staged models on a local disk; by default models/ in state_dir.
        warm_ram_limit_bytes: most that staged models may take of memory; None: found out.
        warm_disk_limit_bytes: the same of the disk.
    """

    mounts: Mapping[str, Path] = field(default_factory=dict)
    state_dir: Path = field(default_factory=lambda: _xdg("XDG_CACHE_HOME", ".cache"))
    warm_ram_dir: Path = field(default_factory=lambda: Path(f"/dev/shm/fxload-{os.getuid()}"))
    warm_disk_dir: Path = Path()
    warm_ram_limit_bytes: int | None = None
    warm_disk_limit_bytes: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "mounts", MappingProxyType(dict(self.mounts)))
        if self.warm_disk_dir == Path():
            object.__setattr__(self, "warm_disk_dir", self.state_dir / "models")


def load_config(path: str | os.PathLike[str] | None = None) -> Config:
    """The settings of ``path``, else of $FXLOAD_CONFIG, else of the user's configuration folder.

    The last one may be absent: all settings have defaults. Raises UsageError for a file that is
    not there, not TOML, or has an unknown key or a value of the wrong type; StorageError for one
    that cannot be read.
    """
    named = path if path is not None else os.environ.get("FXLOAD_CONFIG") or None
    file = Path(named) if named is not None else _xdg("XDG_CONFIG_HOME", ".config") / "config.toml"
    try:
        raw = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        if named is None:
            return Config()
        source = "$FXLOAD_CONFIG names it" if path is None else "write it, or leave the option out"
        raise UsageError("no such configuration file", path=str(file), hint=source) from error
    except OSError as error:
        raise StorageError(
            f"cannot read the configuration: {error.strerror}",
            path=str(file),
            os_errno=error.errno,
            hint="check that it is a file that you may read",
        ) from error
    return _from_table(_parse(raw, file), file)


def _parse(raw: bytes, file: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(raw.decode("utf-8"))
    except ValueError as error:
        raise UsageError(f"the configuration is not TOML: {error}", path=str(file)) from error


def _from_table(table: dict[str, Any], file: Path) -> Config:
    readers = {
        "mounts": _mounts,
        "state_dir": _folder,
        "warm_ram_dir": _folder,
        "warm_disk_dir": _folder,
        "warm_ram_limit_bytes": _size,
        "warm_disk_limit_bytes": _size,
    }
    settings: dict[str, Any] = {}
    for key, value in table.items():
        if key not in readers:
            raise UsageError(
                f"unknown key {key!r}", path=str(file), hint="known are " + ", ".join(readers)
            )
        settings[key] = readers[key](key, value, file)
    return Config(**settings)


def _mounts(key: str, value: object, file: Path) -> dict[str, Path]:
    if not isinstance(value, dict):
        raise _wrong(key, value, "a table of NAME = folder", file)
    for name in value:
        if not _MOUNT_NAME.fullmatch(name):
            raise _wrong(f"{key}.{name}", name, "a name of letters, digits, . _ and -", file)
    return {name: _folder(f"{key}.{name}", folder, file) for name, folder in value.items()}


def _folder(key: str, value: object, file: Path) -> Path:
    if not isinstance(value, str) or "\0" in value:
        raise _wrong(key, value, "the path of a folder", file)
    try:
        folder = Path(value).expanduser()
    except RuntimeError as error:
        raise _wrong(key, value, "a path whose ~ has a home", file) from error
    if not folder.is_absolute():
        raise _wrong(key, value, "an absolute path", file)
    return folder


def _size(key: str, value: object, file: Path) -> int:
    if type(value) is int and value >= 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise _wrong(key, value, 'a number of bytes or a size such as "64GiB"', file)
    number, unit, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** _POWERS[unit.upper()])


def _wrong(key: str, value: object, wanted: str, file: Path) -> UsageError:
    return UsageError(f"{key} = {value!r} is not {wanted}", path=str(file))


def _xdg(variable: str, fallback: str) -> Path:
    """fxload's folder in one of the user's base folders; a relative setting does not count."""
    base = os.environ.get(variable, "")
    if base.startswith("/"):
        return Path(base) / "fxload"
    try:
        return Path.home() / fallback / "fxload"
    except RuntimeError as error:
        raise UsageError(
            "this user has no home folder", hint=f"set {variable} to an absolute path"
        ) from error
