"""The warm store: models copied ahead of their use to memory or a local disk.

``FORMAT.md`` in this folder specifies what lies on the disk.
"""

from __future__ import annotations

from fxload.warm.cache import (
    FileFault,
    Listing,
    Removal,
    SweepReport,
    Verdict,
    list_entries,
    remove,
    sweep,
    verify,
)
from fxload.warm.copying import CopyOptions
from fxload.warm.entry import Entry
from fxload.warm.lookup import find_staged
from fxload.warm.staged import EntryHold, StagedModel, hold_path
from fxload.warm.staging import stage

__all__ = [
    "CopyOptions",
    "Entry",
    "EntryHold",
    "FileFault",
    "Listing",
    "Removal",
    "StagedModel",
    "SweepReport",
    "Verdict",
    "find_staged",
    "hold_path",
    "list_entries",
    "remove",
    "stage",
    "sweep",
    "verify",
]
