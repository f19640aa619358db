from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from fxload._errors import UsageError
from fxload.checkpoint import DigestMemory, model_digest

if TYPE_CHECKING:
    from pathlib import Path

ONE = "0123456789abcdef0123456789abcdef"
TWO = "fedcba9876543210fedcba9876543210"


@dataclass
class Info:
    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    opened_ns: int


def info_of(path: Path) -> Info:
    """As seen by somebody who opens it a minute from now."""
    status = path.stat()
    return Info(
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        time.time_ns() + 60_000_000_000,
    )


@pytest.fixture
def memory(tmp_path: Path) -> DigestMemory:
    return DigestMemory(tmp_path / "state")


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(bytes(range(200)))
    return path


def entry_of(tmp_path: Path) -> Path:
    (entry,) = (tmp_path / "state" / "digests").iterdir()
    return entry


def test_a_digest_is_remembered(memory: DigestMemory, shard: Path, tmp_path: Path) -> None:
    assert memory.lookup(info_of(shard)) is None
    assert memory.remember(info_of(shard), ONE)
    assert memory.lookup(info_of(shard)) == ONE
    assert DigestMemory(tmp_path / "state").lookup(info_of(shard)) == ONE
    assert memory.remember(info_of(shard), TWO)
    assert memory.lookup(info_of(shard)) == TWO
    assert entry_of(tmp_path).is_file()


def test_a_flipped_byte_is_seen_though_mtime_is_restored(memory: DigestMemory, shard: Path) -> None:
    before = shard.stat()
    assert memory.remember(info_of(shard), ONE)
    time.sleep(0.05)  # longer than the tick of the kernel's clock for files
    with shard.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff")
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = shard.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert memory.lookup(info_of(shard)) is None


@pytest.mark.parametrize("field", ["device", "inode", "size_bytes", "mtime_ns", "ctime_ns"])
def test_every_part_of_the_identity_counts(memory: DigestMemory, shard: Path, field: str) -> None:
    info = info_of(shard)
    assert memory.remember(info, ONE)
    other = replace(info, **{field: getattr(info, field) + 1})
    assert memory.lookup(other) is None


@pytest.mark.parametrize("field", ["mtime_ns", "ctime_ns"])
@pytest.mark.parametrize("age_ns", [-5_000_000_000, 0, 1_999_999_999])
def test_a_file_that_has_just_changed_is_not_remembered(
    tmp_path: Path, field: str, age_ns: int
) -> None:
    memory = DigestMemory(tmp_path / "state")
    old = Info(1, 2, 3, 10**12, 10**12, opened_ns=10**13)
    assert memory.remember(old, ONE)
    young = replace(old, inode=5, **{field: 10**13 - age_ns})
    assert not memory.remember(young, ONE)
    assert memory.lookup(young) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 200,
        b"{",
        b"[]",
        b"null",
        b"{}",
        b"\xff\xfe",
        b"[" * 4096,
        b"1" * 10_000,
    ],
)
def test_a_damaged_entry_is_ignored_and_replaced(
    memory: DigestMemory, shard: Path, tmp_path: Path, content: bytes
) -> None:
    assert memory.remember(info_of(shard), ONE)
    entry_of(tmp_path).write_bytes(content)
    assert memory.lookup(info_of(shard)) is None
    assert memory.remember(info_of(shard), TWO)
    assert memory.lookup(info_of(shard)) == TWO


def test_no_damaged_byte_of_an_entry_is_believed(
    memory: DigestMemory, shard: Path, tmp_path: Path
) -> None:
    info = info_of(shard)
    assert memory.remember(info, ONE)
    entry = entry_of(tmp_path)
    good = entry.read_bytes()
    for position in range(len(good)):
        damaged = bytearray(good)
        damaged[position] ^= 1
        entry.write_bytes(damaged)
        assert memory.lookup(info) in (None, ONE)
        entry.write_bytes(good[:position])
        # Without its final newline the entry is whole.
        assert memory.lookup(info) == (ONE if position == len(good) - 1 else None)


def test_an_entry_moved_to_another_file_is_not_believed(
    memory: DigestMemory, shard: Path, tmp_path: Path
) -> None:
    info = info_of(shard)
    assert memory.remember(info, ONE)
    entry = entry_of(tmp_path)
    entry.rename(entry.with_name(f"{info.device:x}-{info.inode + 1:x}"))
    assert memory.lookup(replace(info, inode=info.inode + 1)) is None


def test_a_state_folder_that_cannot_be_written_is_no_error(tmp_path: Path, shard: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    memory = DigestMemory(tmp_path / "file" / "state")
    assert not memory.remember(info_of(shard), ONE)
    assert memory.lookup(info_of(shard)) is None


def test_a_failed_replacement_leaves_nothing_behind(
    memory: DigestMemory, shard: Path, tmp_path: Path
) -> None:
    info = info_of(shard)
    blocked = tmp_path / "state" / "digests" / f"{info.device:x}-{info.inode:x}"
    (blocked / "in the way").mkdir(parents=True)
    assert not memory.remember(info, ONE)
    assert list(blocked.parent.iterdir()) == [blocked]


@pytest.mark.parametrize("digest", ["", "g" * 32, ONE.upper(), ONE + "0", ONE + "\n"])
def test_only_digests_are_taken(memory: DigestMemory, shard: Path, digest: str) -> None:
    with pytest.raises(UsageError):
        memory.remember(info_of(shard), digest)
    with pytest.raises(UsageError):
        model_digest([("a", 1, digest)])


def test_the_digest_of_a_model_depends_on_names_sizes_and_contents_alone() -> None:
    files = [("b/2.safetensors", 5, TWO), ("a.safetensors", 7, ONE)]
    digest = model_digest(files)
    assert digest.startswith("fx1-")
    assert len(digest) == 36
    assert model_digest(reversed(files)) == digest
    assert model_digest(files) == "fx1-" + digest[4:]
    others = [
        [("b/3.safetensors", 5, TWO), files[1]],
        [("b/2.safetensors", 6, TWO), files[1]],
        [("b/2.safetensors", 5, ONE), files[1]],
        files[:1],
        [],
    ]
    assert len({digest, *map(model_digest, others)}) == 6


def test_the_digest_of_a_model_never_changes_between_versions() -> None:
    files = [("a.safetensors", 7, ONE), ("b.safetensors", 5, TWO)]
    assert model_digest(files) == "fx1-4b4127c7771428f24e2ecb03231a3efa"


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="twice"):
        model_digest([("a", 1, ONE), ("a", 1, ONE)])
