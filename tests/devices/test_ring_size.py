from __future__ import annotations

import pytest

from fxload._errors import UsageError
from fxload.devices.ring import SLOT_BYTES, local_ranks, ring_size

MIB = 1 << 20
GIB = 1 << 30


@pytest.mark.parametrize(
    ("payload", "limit", "ranks", "expected"),
    [
        (100 * GIB, 2000 * GIB, 1, GIB),
        (100 * GIB, 2000 * GIB, 8, GIB),
        (100 * GIB, 8 * GIB, 1, 408 * MIB),  # 409.6, in whole slots
        (100 * GIB, 8 * GIB, 8, 48 * MIB),  # 51.2
        (100 * GIB, 8 * GIB, 64, 32 * MIB),  # four slots, whatever the share
        (100 * MIB, 2000 * GIB, 1, 104 * MIB),
        (1, 2000 * GIB, 1, 32 * MIB),
        (0, 0, 1, 32 * MIB),
    ],
)
def test_the_smallest_of_a_gibibyte_the_payload_and_a_share_of_memory(
    payload: int, limit: int, ranks: int, expected: int
) -> None:
    assert ring_size(payload, memory_limit_bytes=limit, ranks=ranks) == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [(1, 4 * SLOT_BYTES), (64 * MIB, 64 * MIB), (100 * MIB, 96 * MIB), (4 * GIB, 4 * GIB)],
)
def test_what_is_asked_for_wins(asked: int, expected: int) -> None:
    assert ring_size(GIB, memory_limit_bytes=GIB, ranks=8, asked_bytes=asked) == expected


@pytest.mark.parametrize("asked", [0, -1, 1.5, "1GiB", True])
def test_what_is_no_size_is_refused(asked: object) -> None:
    with pytest.raises(UsageError, match="ring_bytes"):
        ring_size(GIB, memory_limit_bytes=GIB, asked_bytes=asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("environment", "ranks"),
    [
        ({}, 1),
        ({"LOCAL_WORLD_SIZE": "8"}, 8),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, 4),
        ({"MPI_LOCALNRANKS": "2"}, 2),
        ({"LOCAL_WORLD_SIZE": "", "MV2_COMM_WORLD_LOCAL_SIZE": " 3 "}, 3),
        ({"LOCAL_WORLD_SIZE": "0"}, 1),
        ({"LOCAL_WORLD_SIZE": "-2"}, 1),
        ({"LOCAL_WORLD_SIZE": "many"}, 1),
        ({"LOCAL_WORLD_SIZE": "٣"}, 1),
    ],
)
def test_ranks_are_what_their_starter_says(environment: dict[str, str], ranks: int) -> None:
    assert local_ranks(environment) == ranks
