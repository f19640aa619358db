from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from fxload.bench.physical import (
    Counters,
    evict,
    prove_cold,
    read_counters,
    read_into_cache,
    resident,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import SlowFsFactory

GB = 10**9


@pytest.mark.parametrize(
    ("spent", "cached", "cold", "method"),
    [
        (Counters(GB, None), 0, True, "proc_io"),
        (Counters(GB, None), None, True, "proc_io"),
        (Counters(995_000_000, None), 0, True, "proc_io"),
        (Counters(900_000_000, None), GB // 10, False, "proc_io"),
        (Counters(0, GB), 0, True, "slowfs"),
        (Counters(0, GB // 2), 0, False, "slowfs"),
        (Counters(GB, 0), 0, False, "slowfs"),
        (Counters(0, None), 0, True, "residency"),
        (Counters(None, None), 0, True, "residency"),
        (Counters(0, None), GB, False, "proc_io"),
        (Counters(None, None), None, True, "assumed"),
        (Counters(0, None), None, True, "assumed"),
    ],
)
def test_a_read_is_judged_by_what_storage_delivered(
    spent: Counters, cached: int | None, cold: bool, method: str
) -> None:
    proof = prove_cold(spent, cached, GB)
    assert (proof.cold, proof.method) == (cold, method)
    assert bool(proof.reason) == (not cold or method == "assumed")


def test_the_mount_counts_are_preferred_where_it_serves_them(tmp_path: Path) -> None:
    # Not a mount of its own, so the counters' file is looked for at the top of this one.
    file = tmp_path / "model.bin"
    file.write_bytes(b"x")
    assert read_counters([str(file)]).mount_bytes is None
    before, after = Counters(5, 100), Counters(9, 350)
    assert after.since(before) == Counters(4, 250)
    assert after.since(Counters(None, None)) == Counters(None, None)


def test_counters_of_a_mount_are_read_from_its_top(slowfs: SlowFsFactory) -> None:
    mounted = slowfs()
    (mounted.root / "models").mkdir()
    (mounted.root / "models" / "a.safetensors").write_bytes(bytes(1 << 20))
    paths = [str(mounted.mount / "models" / "a.safetensors")]
    before = read_counters(paths * 2)
    assert before.mount_bytes == mounted.counters()["read_bytes"]
    read_into_cache(paths)
    assert read_counters(paths).since(before).mount_bytes == 1 << 20


def test_evicting_makes_the_next_read_physical(tmp_path: Path) -> None:
    file = tmp_path / "data.bin"
    file.write_bytes(os.urandom(4 << 20))
    read_into_cache([str(file)])
    cached = resident([str(file)])
    if cached is None:
        pytest.skip("this kernel does not tell what it caches")
    assert cached == 4 << 20
    evict([str(file)])
    left = resident([str(file)])
    if left:
        pytest.skip("this file system keeps its files in memory")
    before = read_counters([str(file)])
    read_into_cache([str(file)])
    spent = read_counters([str(file)]).since(before)
    proof = prove_cold(spent, left, 4 << 20)
    assert proof.cold
    warm = prove_cold(Counters(0, None), resident([str(file)]), 4 << 20)
    assert not warm.cold
