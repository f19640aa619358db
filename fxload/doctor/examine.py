"""All of the doctor's checks, in order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fxload.doctor.accelerators import check_accelerators
from fxload.doctor.engines import check_engines
from fxload.doctor.host import check_host
from fxload.doctor.host_files import HostFiles
from fxload.doctor.location import locate
from fxload.doctor.probe import check_reading, files_to_probe
from fxload.doctor.storage_path import check_storage_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fxload.doctor.findings import Section
    from fxload.doctor.location import Location

__all__ = ["examine"]


def examine(path: Path | None = None, host: HostFiles | None = None) -> list[Section]:
    """The host's section, engines' and accelerators', and with a path its storage's and reading's.

    Shards may be links to other mounts: each mount gets a storage section.

    Raises:
        ModelNotFoundError: there is no such path.
        StorageError: the path cannot be listed.
    """
    from fxload import _native

    host = host or HostFiles()
    probed = [] if path is None else files_to_probe(path)
    places: dict[int, Location] = {}
    for each in [] if path is None else [path, *map(Path, probed)]:
        place = locate(each, host)
        if place is not None:
            places.setdefault(place.mount.mount_id, place)
    sections = [
        check_host(host),
        check_engines(host, _native.capabilities()),
        check_accelerators(host, [*places.values()], _largest(probed)),
        *map(check_storage_path, places.values()),
    ]
    if path is not None:
        sections.append(check_reading(probed))
    return sections


def _largest(paths: Sequence[str]) -> str:
    return max(paths, key=lambda each: Path(each).stat().st_size, default="")
