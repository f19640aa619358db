"""Which mount a path lies on, from /proc/self/mountinfo."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fxload.doctor.host_files import HostFiles

__all__ = ["Mount", "mount_id_of", "mount_of", "read_mounts"]

# File systems whose data crosses a network, by the type that mountinfo gives them.
_NETWORK_TYPES = frozenset(
    ["nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "9p", "virtiofs", "afs", "gfs2", "ocfs2"]
)
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo.

    Attributes:
        mount_id: the kernel's number of this mount.
        device: ``major:minor`` of the file system (major 0: no block device of its own).
        root: the folder of the file system that is shown (a subvolume or a bind mount's source).
        mount_point: where it is shown.
        options: the mount's and the file system's options, in this order.
        file_system: the type, as ``xfs``, ``nfs4`` or ``fuse.slowfs``.
        source: what was mounted, as ``/dev/md0`` or ``server:/export``.
    """

    mount_id: int
    device: str
    root: str
    mount_point: str
    options: tuple[str, ...]
    file_system: str
    source: str

    @property
    def is_network(self) -> bool:
        """Whether the type is one that is served by other machines."""
        return self.file_system in _NETWORK_TYPES

    @property
    def is_fuse(self) -> bool:
        """Whether a process of this or another machine serves it through FUSE."""
        return self.file_system == "fuse" or self.file_system.startswith("fuse.")

    def option(self, name: str) -> str | None:
        """The value of an option ("" for one without value), None if it is not set."""
        for option in self.options:
            key, _, value = option.partition("=")
            if key == name:
                return value
        return None


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def _parse(line: str) -> Mount | None:
    left, separator, right = line.partition(" - ")
    fields, tail = left.split(" "), right.split(" ")
    if not separator or len(fields) < 6 or len(tail) < 2:
        return None
    options = fields[5].split(",") + (tail[2].split(",") if len(tail) > 2 else [])
    return Mount(
        mount_id=int(fields[0]),
        device=fields[2],
        root=_unescape(fields[3]),
        mount_point=_unescape(fields[4]),
        options=tuple(dict.fromkeys(_unescape(option) for option in options if option)),
        file_system=_unescape(tail[0]),
        source=_unescape(tail[1]),
    )


def read_mounts(host: HostFiles) -> list[Mount]:
    """All mounts that this process sees, in the kernel's order."""
    lines = (host.text("/proc/self/mountinfo") or "").splitlines()
    return [mount for mount in map(_parse, lines) if mount is not None]


def mount_id_of(path: Path) -> int | None:
    """The kernel's own answer for an existing path, right even where mounts cover each other."""
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        for line in Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines():
            key, _, value = line.partition(":")
            if key == "mnt_id":
                return int(value)
    finally:
        os.close(descriptor)
    return None


def mount_of(path: Path, mounts: Sequence[Mount], mount_id: int | None = None) -> Mount | None:
    """The mount that shows ``path`` (absolute, links resolved).

    By the kernel's number where it is given, else the deepest mount point above the path,
    of several on one point the one mounted last.
    """
    found: Mount | None = None
    for mount in mounts:
        if mount_id is not None and mount.mount_id == mount_id:
            return mount
        if path.is_relative_to(mount.mount_point) and (
            found is None or len(mount.mount_point) >= len(found.mount_point)
        ):
            found = mount
    return found
