from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fxload.bench.physical import (
    Counters,
    evict,
    prove_cold,
    read_counters,
    read_into_cache,
    resident,
)

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


def test_counters_of_a_mount_are_read_from_its_top(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    file = tmp_path / "models" / "a.safetensors"
    file.write_bytes(b"x")
    (tmp_path / ".slowfs").write_text(json.dumps({"reads": 3, "read_bytes": 4096}))
    real = Path.stat

    def stat(self: Path, **options: bool) -> os.stat_result:
        answer = real(self, **options)
        inside = self.is_relative_to(tmp_path)
        fields = list(answer[:10])
        fields[2] = 77 if inside else 78
        return os.stat_result(fields)

    monkeypatch.setattr(Path, "stat", stat)
    assert read_counters([str(file), str(file)]).mount_bytes == 4096


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
