"""How much memory this process may still use, whoever sets the limit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from fxload._errors import UnsupportedError

__all__ = ["HostMemory", "read_host_memory"]

_KIB = 1024


class HostMemory(NamedTuple):
    """What the host and the control groups of this process leave to it, in bytes.

    Attributes:
        available_bytes: what may still be used before a limit is met. Page cache that can be
            dropped counts as available; tmpfs files do not, nothing but deleting frees them.
        limit_bytes: the smallest of the machine's memory and the limits of the control groups.
        limited_by: the file that gave ``available_bytes``.
    """

    available_bytes: int
    limit_bytes: int
    limited_by: str


class _Mount(NamedTuple):
    """A mounted control group hierarchy: ``folder`` shows what ``group`` and below hold."""

    folder: Path
    group: str


def read_host_memory(root: Path = Path("/")) -> HostMemory:
    """The memory left to this process.

    The smaller of ``MemAvailable`` and, for each control group from that of this process up to
    the topmost visible one, in version 1 and in version 2, the group's limit less what it uses
    and could not give back.

    Args:
        root: where ``proc`` and ``sys`` are found.

    Raises:
        UnsupportedError: ``/proc/meminfo`` cannot be read.
    """
    best = _machine(root)
    for group in _groups(root):
        best = HostMemory(
            min(best.available_bytes, group.available_bytes),
            min(best.limit_bytes, group.limit_bytes),
            group.limited_by if group.available_bytes < best.available_bytes else best.limited_by,
        )
    return best


def _machine(root: Path) -> HostMemory:
    path = root / "proc/meminfo"
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise UnsupportedError(
            f"the memory of this host is unknown: {error.strerror}",
            path=str(path),
            hint="mount /proc, or set warm_ram_limit_bytes in the config file",
            os_errno=error.errno,
        ) from error
    kib = {name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.M)}
    # Kernels before 3.14 and some sandboxes have no MemAvailable.
    available = kib.get("MemAvailable", kib.get("MemFree", 0) + kib.get("Buffers", 0))
    return HostMemory(available * _KIB, kib.get("MemTotal", available) * _KIB, str(path))


def _groups(root: Path) -> list[HostMemory]:
    v1_path, v2_path = _own_groups(root)
    v1_mounts, v2_mounts = _mounts(root)
    groups = []
    if v1_path is not None:
        for folder in _walk(v1_mounts, v1_path, "memory.usage_in_bytes"):
            group = _v1(folder)
            if group is not None:
                groups.append(group)
    if v2_path is not None:
        for folder in _walk(v2_mounts, v2_path, "cgroup.controllers"):
            groups.extend(_v2(folder))
    return groups


def _own_groups(root: Path) -> tuple[str | None, str | None]:
    """The paths of the memory group of version 1, and of the group of version 2."""
    v1 = v2 = None
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            v1 = path
        elif number == "0" and not controllers:
            v2 = path
    return v1, v2


def _mounts(root: Path) -> tuple[list[_Mount], list[_Mount]]:
    v1: list[_Mount] = []
    v2: list[_Mount] = []
    for line in _text(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        place, kind = left.split(), right.split()
        if len(place) < 5 or len(kind) < 3:
            continue
        mount = _Mount(root / _unescape(place[4]).lstrip("/"), _unescape(place[3]))
        if kind[0] == "cgroup2":
            v2.append(mount)
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            v1.append(mount)
    return v1, v2


def _walk(mounts: list[_Mount], path: str, marker: str) -> list[Path]:
    """The visible folders of the group ``path`` and of those above it, innermost first."""
    for mount in mounts:
        relative = _below(path, mount.group)
        if relative is not None and (mount.folder / relative / marker).exists():
            folder = mount.folder / relative
            steps = len(Path(relative).parts)
            return [folder, *list(folder.parents)[:steps]]
    # In a container the path may be the host's while the mount shows the container's own group.
    return [mount.folder for mount in mounts[:1]]


def _below(path: str, top: str) -> str | None:
    if ".." in path.split("/"):
        return None
    if top == "/":
        return path.lstrip("/")
    if path == top or path.startswith(top + "/"):
        return path[len(top) :].lstrip("/")
    return None


def _v1(folder: Path) -> HostMemory | None:
    usage = _number(folder / "memory.usage_in_bytes")
    own = _number(folder / "memory.limit_in_bytes")
    if usage is None or own is None:
        return None
    stat = _stat(folder / "memory.stat")
    # Of a group whose parents are hidden from a container, this is the only trace of theirs.
    limit = min(own, stat.get("hierarchical_memory_limit", own))
    reclaimable = stat.get("total_inactive_file", 0) + stat.get("total_active_file", 0)
    name = "memory.limit_in_bytes" if limit == own else "memory.stat"
    return _left(limit, usage, reclaimable, folder / name)


def _v2(folder: Path) -> list[HostMemory]:
    usage = _number(folder / "memory.current")
    if usage is None:
        return []
    stat = _stat(folder / "memory.stat")
    reclaimable = sum(
        stat.get(name, 0) for name in ("inactive_file", "active_file", "slab_reclaimable")
    )
    limits = ((name, _number(folder / name)) for name in ("memory.max", "memory.high"))
    return [
        _left(limit, usage, reclaimable, folder / name)
        for name, limit in limits
        if limit is not None
    ]


def _left(limit: int, usage: int, reclaimable: int, source: Path) -> HostMemory:
    fixed = max(0, usage - reclaimable)
    return HostMemory(max(0, limit - fixed), limit, str(source))


def _text(path: Path) -> str:
    """The content, or nothing where the kernel or a sandbox does not show the file."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    """The number in the file; None where there is no file or no limit ("max")."""
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _stat(path: Path) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"^(\w+) (\d+)$", _text(path), re.M)}


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
