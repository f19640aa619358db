"""The warm store: models copied ahead of their use to memory or a local disk.

``FORMAT.md`` in this folder specifies what lies on the disk.
"""

from __future__ import annotations

from fxload.warm.cache import (
    Removal,
    SweepReport,
    Verdict,
    list_entries,
    remove,
    sweep,
    verify,
)
from fxload.warm.entry import Entry
from fxload.warm.lookup import find_staged
from fxload.warm.staged import EntryHold, StagedModel
from fxload.warm.staging import stage

__all__ = [
    "Entry",
    "EntryHold",
    "Removal",
    "StagedModel",
    "SweepReport",
    "Verdict",
    "find_staged",
    "list_entries",
    "remove",
    "stage",
    "sweep",
    "verify",
]
