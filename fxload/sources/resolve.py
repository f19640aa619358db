"""Finds the folder or file of a model: a path, a place on a named mount, a name of the hub."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fxload._errors import ModelNotFoundError, StorageError, UnsupportedError, UsageError
from fxload.sources.hub import find_in_hub_cache, split_hub_name

if TYPE_CHECKING:
    from fxload.config import Config

__all__ = ["resolve_model"]

_MOUNT_SCHEME = "fx://"


def resolve_model(model: str | os.PathLike[str], config: Config) -> Path:
    """The folder or file that ``model`` means.

    In this order: ``fx://MOUNT/REST``; a path that exists; ``ORG/NAME[@REVISION]`` in the local
    cache of the Hugging Face hub (nothing is downloaded).

    Raises ModelNotFoundError, UsageError for a name that makes no sense or an unknown mount,
    UnsupportedError for another scheme, StorageError for a path that may not be looked at.
    """
    name = os.fspath(model)
    if not isinstance(name, str) or not name or "\0" in name:
        raise UsageError(
            f"{name!r} names no model", hint="give a path, fx://MOUNT/PATH or a name of the hub"
        )
    if name.startswith(_MOUNT_SCHEME):
        return _on_mount(name, config)
    if "://" in name:
        scheme = name.partition("://")[0]
        raise UnsupportedError(
            f"cannot load from {scheme}://",
            path=name,
            hint="mount the storage and give a path, or fx://MOUNT/PATH",
        )
    path = _expanded(name)
    if _exists(path):
        return path
    hub_name = split_hub_name(name) if isinstance(model, str) else None
    if hub_name is None or name.endswith(".safetensors"):
        raise ModelNotFoundError("no such file or folder", path=name, hint="check the path")
    return find_in_hub_cache(*hub_name)


def _on_mount(name: str, config: Config) -> Path:
    mount, _, rest = name.removeprefix(_MOUNT_SCHEME).partition("/")
    root = config.mounts.get(mount)
    if root is None:
        raise UsageError(
            f"unknown mount {mount!r}",
            path=name,
            hint="known are " + ", ".join(sorted(config.mounts))
            if config.mounts
            else "name its folder under [mounts] in the configuration file",
        )
    if ".." in rest.split("/"):
        raise UsageError("the path leaves its mount", path=name, hint="write it without ..")
    path = root / rest.lstrip("/")
    if not _exists(path):
        where = "no such file or folder" if _exists(root) else f"the mount's folder {root} is gone"
        raise ModelNotFoundError(f"{where} ({name})", path=str(path), hint="is it mounted?")
    return path


def _expanded(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise UsageError("~ stands for no home folder here", path=name) from error


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StorageError(
            f"cannot be looked at: {error.strerror}",
            path=str(path),
            os_errno=error.errno,
            hint="check the permissions and the mount",
        ) from error
    return True
