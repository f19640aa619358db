"""The local cache of the Hugging Face hub, read offline.

Its layout: ``models--ORG--NAME/refs/REVISION`` holds a commit, and
``models--ORG--NAME/snapshots/COMMIT`` the files, as links into ``blobs``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from fxload._errors import ModelNotFoundError, StorageError, UsageError

__all__ = ["find_in_hub_cache", "hub_cache_dir", "split_hub_name"]

_NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9_][\w.-]*", re.ASCII)
_REVISION = re.compile(r"[\w][\w./+-]*", re.ASCII)


def hub_cache_dir() -> Path:
    """The cache's folder, as the hub's own library finds it: $HF_HUB_CACHE, $HF_HOME, …"""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return _expanded(os.environ[variable])
    if os.environ.get("HF_HOME"):
        return _expanded(os.environ["HF_HOME"]) / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return _expanded(base) / "huggingface" / "hub"


def split_hub_name(model: str) -> tuple[str, str] | None:
    """Name and revision (main by default) of ``[ORG/]NAME[@REVISION]``; None for anything else."""
    name, at, revision = model.partition("@")
    if not at:
        revision = "main"
    good = _NAME.fullmatch(name) and _REVISION.fullmatch(revision)
    if not good or "--" in name or ".." in name or ".." in revision.split("/"):
        return None
    return name, revision


def find_in_hub_cache(name: str, revision: str = "main", cache: Path | None = None) -> Path:
    """The snapshot folder of a model in the cache (by default :func:`hub_cache_dir`).

    ``revision`` is a branch, a tag or a full commit. Raises ModelNotFoundError saying what the
    cache holds instead.
    """
    cache = hub_cache_dir() if cache is None else cache
    repository = cache / ("models--" + name.replace("/", "--"))
    commits = _names_in(repository / "snapshots")
    if commits is None:
        raise ModelNotFoundError(
            f"no file or folder {name}, and the hub cache has no model of that name",
            path=str(repository),
            hint=f"download it first (hf download {name}), give a folder, or set HF_HUB_CACHE",
        )
    commit = _commit_of(repository, revision)
    if commit not in commits:
        held = ", ".join(sorted(commits)) or "nothing"
        meant = "" if commit == revision else f" (commit {commit})"
        raise ModelNotFoundError(
            f"the hub cache has {name}, but not its revision {revision}{meant}; it has {held}",
            path=str(repository),
            hint=f"download it (hf download {name} --revision {revision}), or name one it has",
        )
    return repository / "snapshots" / commit


def _commit_of(repository: Path, revision: str) -> str:
    reference = repository / "refs" / revision
    try:
        return reference.read_text("utf-8").strip()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return revision
    except (OSError, ValueError) as error:
        raise StorageError(
            f"cannot read the revision: {error}",
            path=str(reference),
            os_errno=getattr(error, "errno", None),
            hint="check the permissions of the hub cache",
        ) from error


def _names_in(folder: Path) -> set[str] | None:
    try:
        return {entry.name for entry in folder.iterdir()}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageError(
            f"cannot be read: {error.strerror}",
            path=str(folder),
            os_errno=error.errno,
            hint="check the permissions of the hub cache",
        ) from error


def _expanded(path: str) -> Path:
    try:
        return Path(os.path.expandvars(path)).expanduser()
    except RuntimeError as error:
        raise UsageError(
            f"{path!r} needs a home folder, and this user has none", hint="set HF_HUB_CACHE"
        ) from error
