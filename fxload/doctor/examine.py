"""All of the doctor's checks, in order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fxload.doctor.devices import check_devices
from fxload.doctor.engines import check_engines
from fxload.doctor.host import check_host
from fxload.doctor.host_files import HostFiles
from fxload.doctor.location import locate
from fxload.doctor.probe import check_reading, files_to_probe

if TYPE_CHECKING:
    from fxload.doctor.findings import Section

__all__ = ["examine"]


def examine(path: Path | None = None, host: HostFiles | None = None) -> list[Section]:
    """The host's section, the I/O engines', and with a path its storage's and reading's.

    Shards may be links to other mounts: each mount gets a storage section.

    Raises:
        ModelNotFoundError: there is no such path.
        StorageError: the path cannot be listed.
    """
    from fxload import _native

    host = host or HostFiles()
    sections = [check_host(host), check_engines(host, _native.capabilities())]
    if path is None:
        return sections
    probed = files_to_probe(path)
    mounts: set[int] = set()
    for each in [path, *map(Path, probed)]:
        place = locate(each, host)
        if place is not None and place.mount.mount_id not in mounts:
            mounts.add(place.mount.mount_id)
            sections.append(check_devices(place))
    sections.append(check_reading(probed))
    return sections
