"""Which files of a folder make up its checkpoint, and which tensors each may hand out."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fxload._errors import CheckpointError, ModelNotFoundError, StorageError, UsageError
from fxload.checkpoint._index import INDEX_SUFFIX, read_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fxload.checkpoint.header import Header, TensorInfo

__all__ = ["ShardList", "allowed_tensors", "find_shards"]

_SUFFIX = ".safetensors"
_PART = re.compile(r"(?P<stem>.+)-(?P<part>\d+)-of-(?P<parts>\d+)\.safetensors")
_VARIANT = re.compile(r"(?P<stem>.+)\.(?:fp8|fp16|bf16|fp32|int8|ema|non_ema)\.safetensors")
_MAX_NAMED = 40
_MAX_PARTS = 10_000


@dataclass(frozen=True)
class ShardList:
    """The files of one checkpoint.

    Attributes:
        root: the folder that holds them.
        files: their names relative to ``root``, in load order.
        weight_map: tensor name → file name, from the index; None without an index.
        index: the name of the index, relative to ``root``; None without one.
        ignored: safetensors files of the folder that are not part of the checkpoint.
    """

    root: Path
    files: tuple[str, ...]
    weight_map: Mapping[str, str] | None = None
    index: str | None = None
    ignored: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files' paths, in load order."""
        return tuple(self.root / name for name in self.files)

    def only(self, files: Sequence[str]) -> ShardList:
        """These files of the folder instead, whether or not they were chosen.

        Where an index chose all of them, it goes on to say which tensors count. Raises UsageError
        for names that leave the folder, ModelNotFoundError for files that are not there.
        """
        names = sorted(set(files), key=_natural)
        for name in names:
            inside = name and not name.startswith("/") and ".." not in name.split("/")
            if not inside or not name.endswith(_SUFFIX):
                raise UsageError(
                    f"files names {name!r}, which is no {_SUFFIX} file of the model's folder",
                    path=str(self.root),
                    hint="give names relative to that folder",
                )
        if not names:
            raise UsageError("files names no file", path=str(self.root))
        if set(names) == set(self.files):
            return self
        _require(self.root, {n for n in names if not _is_file(self.root / n)}, "asked for by name")
        weight_map = self.weight_map
        if weight_map is not None:
            known = set(names) <= set(self.files)
            weight_map = {n: f for n, f in weight_map.items() if f in names} if known else None
        return ShardList(self.root, tuple(names), weight_map, self.index)


def find_shards(path: str | os.PathLike[str]) -> ShardList:
    """The files of the checkpoint at ``path``: a folder, a .safetensors file, or an index.

    In a folder an index decides (model.safetensors.index.json, or the only one there is). Without
    one, every .safetensors file counts, except a consolidated copy next to other files, parts of
    a series next to the whole, and precision variants next to the plain file.

    Raises ModelNotFoundError naming every missing shard, before any of them is opened;
    CheckpointError for a broken index; StorageError where the folder cannot be read.
    """
    path = Path(path)
    mode = _mode(path)
    if mode is None:
        raise ModelNotFoundError("no such file or folder", path=str(path), hint="check the name")
    if stat.S_ISDIR(mode):
        return _in_folder(path)
    if path.name.endswith(INDEX_SUFFIX):
        return _from_index(path.parent, path.name, _list_folder(path.parent))
    if path.name.endswith(_SUFFIX):
        return ShardList(path.parent, (path.name,))
    raise UsageError(
        "not a safetensors file",
        path=str(path),
        hint=f"give a folder, a {_SUFFIX} file or a *{INDEX_SUFFIX} file",
    )


def allowed_tensors(shards: ShardList, headers: Sequence[Header]) -> list[list[TensorInfo]]:
    """The tensors that each file hands out, in storage order: one list a file.

    With an index these are the ones that it assigns to the file; without one, all.

    Raises CheckpointError with the rule index-mismatch if the index names a tensor that its file
    does not hold, or duplicate-tensor if, without an index, two files hold the same name.
    """
    if shards.weight_map is None:
        _check_unique(shards, headers)
        return [header.tensors for header in headers]
    where = shards.weight_map.get
    allowed = [
        [tensor for tensor in header.tensors if where(tensor.name) == name]
        for name, header in zip(shards.files, headers, strict=True)
    ]
    if sum(map(len, allowed)) != len(shards.weight_map):
        raise _index_mismatch(shards, shards.weight_map, headers, allowed)
    return allowed


def _in_folder(root: Path) -> ShardList:
    names = _list_folder(root)
    indexes = sorted(name for name in names if name.endswith(INDEX_SUFFIX))
    if indexes:
        preferred = "model" + INDEX_SUFFIX
        if preferred not in indexes:
            plain = [name for name in indexes if not _is_consolidated(name)]
            indexes = plain or indexes
            if len(indexes) > 1:
                raise CheckpointError(
                    f"several indexes and no {preferred}: {', '.join(indexes)}",
                    path=str(root),
                    rule="ambiguous-index",
                    hint="give the path of the index to load",
                )
            preferred = indexes[0]
        return _from_index(root, preferred, names)
    found = {name for name in names if name.endswith(_SUFFIX)}
    if not found:
        raise ModelNotFoundError(
            f"the folder holds no {_SUFFIX} file",
            path=str(root),
            hint="other formats must be converted first"
            if names
            else "give the folder that holds the model",
        )
    chosen = _without_copies(found)
    missing = _missing_parts(chosen) | _missing_files(root, sorted(chosen), names)
    _require(root, missing, "the series has gaps or dangling links")
    return ShardList(
        root, tuple(sorted(chosen, key=_natural)), ignored=tuple(sorted(found - chosen))
    )


def _from_index(root: Path, index: str, names: Mapping[str, bool]) -> ShardList:
    weight_map = read_index(root / index)
    files = sorted(set(weight_map.values()), key=_natural)
    whole = "model" + _SUFFIX
    _require(
        root,
        _missing_files(root, files, names),
        f"named by {index}",
        f"or give the path of {whole} to load it alone" if names.get(whole) else "",
    )
    others = sorted(name for name in names if name.endswith(_SUFFIX) and name not in files)
    return ShardList(root, tuple(files), weight_map, index, tuple(others))


def _list_folder(root: Path) -> dict[str, bool]:
    """Name → whether it is known, without another request, to be a regular file."""
    try:
        with os.scandir(root) as entries:
            return {
                entry.name: entry.is_file(follow_symlinks=False)
                for entry in entries
                if entry.name.endswith((_SUFFIX, INDEX_SUFFIX))
                and not entry.name.startswith(".")
                and not entry.is_dir(follow_symlinks=False)
            }
    except OSError as error:
        raise _unreadable(root, error) from error


def _missing_files(root: Path, files: Sequence[str], names: Mapping[str, bool]) -> set[str]:
    """Those of ``files`` that are no regular file, links followed."""
    unsure = [name for name in files if not names.get(name)]
    if len(unsure) < 8:
        return {name for name in unsure if not _is_file(root / name)}
    # Hub caches hold links only, and a request for metadata may take milliseconds.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(32, len(unsure))) as pool:
        good = pool.map(_is_file, [root / name for name in unsure])
        return {name for name, is_good in zip(unsure, good, strict=True) if not is_good}


def _is_file(path: Path) -> bool:
    mode = _mode(path)
    return mode is not None and stat.S_ISREG(mode)


def _mode(path: Path) -> int | None:
    """Type and permissions, links followed; None if there is nothing of that name."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error) from error


def _require(root: Path, missing: Iterable[str], why: str, hint: str = "") -> None:
    names = sorted(missing, key=_natural)
    if not names:
        return
    listed = ", ".join(names[:_MAX_NAMED])
    if len(names) > _MAX_NAMED:
        listed += f" and {len(names) - _MAX_NAMED} more"
    raise ModelNotFoundError(
        f"missing {len(names)} shard{'s' * (len(names) > 1)}: {listed} ({why})",
        path=str(root),
        hint=" ".join(filter(None, ["download or copy the missing files", hint])),
    )


def _without_copies(found: set[str]) -> set[str]:
    """Less the files that hold again what other files of the folder hold."""
    chosen = {name for name in found if not _is_consolidated(name)} or set(found)
    for name in sorted(chosen):
        copy = _PART.fullmatch(name) or _VARIANT.fullmatch(name)
        if copy and copy["stem"] + _SUFFIX in found:
            chosen.discard(name)
    return chosen


def _missing_parts(chosen: set[str]) -> set[str]:
    """Names that a series (stem-00001-of-00003, or from 00000 on) lacks."""
    matches = filter(None, map(_PART.fullmatch, chosen))
    missing: set[str] = set()
    for stem, parts, width in {(m["stem"], m["parts"], len(m["part"])) for m in matches}:
        if int(parts) > _MAX_PARTS:
            continue
        names = [
            f"{stem}-{number:0{width}}-of-{parts}{_SUFFIX}" for number in range(int(parts) + 1)
        ]
        missing.update(names[:-1] if names[0] in chosen else names[1:])
    return missing - chosen


def _check_unique(shards: ShardList, headers: Sequence[Header]) -> None:
    if len(headers) < 2:
        return
    owner: dict[str, str] = {}
    for file, header in zip(shards.files, headers, strict=True):
        before = len(owner)
        owner.update(dict.fromkeys((tensor.name for tensor in header.tensors), file))
        if len(owner) - before == len(header.tensors):
            continue
        seen: dict[str, str] = {}
        for other, earlier in zip(shards.files, headers, strict=True):
            for tensor in earlier.tensors:
                if tensor.name in seen:
                    raise CheckpointError(
                        f"tensor {tensor.name!r} is in {seen[tensor.name]} and in {other}, and no"
                        " index says which counts",
                        path=str(shards.root),
                        rule="duplicate-tensor",
                        hint="remove the copy, or give the path of one file",
                    )
            seen.update(dict.fromkeys((tensor.name for tensor in earlier.tensors), other))


def _index_mismatch(
    shards: ShardList,
    weight_map: Mapping[str, str],
    headers: Sequence[Header],
    allowed: Sequence[Sequence[TensorInfo]],
) -> CheckpointError:
    handed_out = {tensor.name for tensors in allowed for tensor in tensors}
    absent = [name for name in weight_map if name not in handed_out]
    first = absent[0]
    holder = next(
        (
            file
            for file, header in zip(shards.files, headers, strict=True)
            if any(tensor.name == first for tensor in header.tensors)
        ),
        None,
    )
    place = "no shard holds it" if holder is None else f"{holder} holds it"
    more = f", and {len(absent) - 1} more like it" if len(absent) > 1 else ""
    return CheckpointError(
        f"the index puts tensor {first!r} into {weight_map[first]}, but {place}{more}",
        path=str(shards.root / (shards.index or "")),
        rule="index-mismatch",
        hint="download the index and the shards of one revision",
    )


def _is_consolidated(name: str) -> bool:
    return name.startswith("consolidated")


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts part 2 before part 10."""
    return [
        (int(piece), "") if piece.isdecimal() else (-1, piece)
        for piece in re.split(r"([0-9]+)", name)
    ]


def _unreadable(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"cannot be read: {error.strerror}",
        path=str(path),
        os_errno=error.errno,
        hint="check the permissions and the mount",
    )
