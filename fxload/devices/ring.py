"""How large the pinned ring of a load is: its share of the node's memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fxload._errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SLOT_BYTES", "local_ranks", "ring_size"]

# Below 2 MiB copies waste the link; digest leaves and the reads' grid are 8 MiB.
SLOT_BYTES = 8 << 20
# Fewer would let the storage, or the link, wait for the other.
_LEAST_SLOTS = 4
# AMD advises against registering very large ranges, and Ascend refuses them at some size.
_MOST_BYTES = 1 << 30
_MEMORY_PERCENT = 5
# Set for each process by torchrun, Open MPI, MPICH and Intel MPI, MVAPICH2.
_LOCAL_SIZES = (
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_LOCAL_SIZE",
)


def local_ranks(environment: Mapping[str, str] | None = None) -> int:
    """Processes of this job on this node, as whoever started them says; 1 where nobody does."""
    environment = os.environ if environment is None else environment
    for name in _LOCAL_SIZES:
        text = environment.get(name, "").strip()
        if text.isascii() and text.isdigit() and int(text) > 0:
            return int(text)
    return 1


def ring_size(
    payload_bytes: int,
    *,
    memory_limit_bytes: int,
    ranks: int = 1,
    asked_bytes: int | None = None,
    slot_bytes: int = SLOT_BYTES,
) -> int:
    """Bytes of the ring: whole slots, at least four.

    Args:
        payload_bytes: what will go through it; a larger ring would serve nobody.
        memory_limit_bytes: the node's memory, or the control group's limit.
        ranks: processes of the node that share that memory.
        asked_bytes: what the caller wants instead of the default: the smaller of 1 GiB, the
            payload, and 5 % of the limit over the ranks.

    Raises UsageError for an ``asked_bytes`` that is no size.
    """
    least = _LEAST_SLOTS * slot_bytes
    if asked_bytes is not None:
        if isinstance(asked_bytes, bool) or not isinstance(asked_bytes, int) or asked_bytes <= 0:
            raise UsageError(
                f"ring_bytes is {asked_bytes!r}, not a number of bytes",
                hint="leave it out for a share of the memory",
            )
        return max(least, asked_bytes // slot_bytes * slot_bytes)
    payload = -(-payload_bytes // slot_bytes) * slot_bytes
    share = memory_limit_bytes * _MEMORY_PERCENT // 100 // max(1, ranks)
    return max(least, min(_MOST_BYTES, payload, share // slot_bytes * slot_bytes))
