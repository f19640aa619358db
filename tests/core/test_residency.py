"""What is in the page cache, by every way of asking, and what no answer proves."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from fxload._native import residency

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.isolation import Isolation

SIZE = 1 << 20

ASK = """
import json, sys
from fxload._native import residency
print(json.dumps(residency(sys.argv[1])))
"""


@pytest.fixture
def file(public_folder: Path) -> Path:
    path = public_folder / "file"
    path.write_bytes(os.urandom(SIZE))
    with path.open("rb") as opened:
        os.fsync(opened.fileno())
    return path


def drop(path: Path) -> None:
    with path.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def ask(how: Isolation, path: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(how.python(ASK, path).stdout)
    return answer


@pytest.mark.parametrize(("refuse", "method"), [((), "cachestat"), (("cachestat",), "mincore")])
def test_pages_are_counted(
    isolation: Isolation, file: Path, refuse: tuple[str, ...], method: str
) -> None:
    how = isolation.but(refuse=refuse)
    file.read_bytes()
    assert ask(how, file) == {"bytes": SIZE, "provable": True, "method": method, "reason": ""}
    drop(file)
    assert ask(how, file) == {"bytes": 0, "provable": True, "method": method, "reason": ""}


def test_a_range_is_counted_alone(file: Path) -> None:
    drop(file)
    with file.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(opened.fileno(), 4096, 512 << 10)
    assert residency(str(file), 0, 256 << 10)["bytes"] == 0
    assert residency(str(file), 512 << 10, 4096)["bytes"] == 4096


@pytest.mark.parametrize("refuse", [(), ("cachestat",)])
def test_a_file_of_another_user_proves_nothing(
    unprivileged: Isolation, file: Path, refuse: tuple[str, ...]
) -> None:
    file.read_bytes()
    file.chmod(0o644)
    answer = ask(unprivileged.but(refuse=refuse), file)
    assert not answer["provable"]
    assert answer["bytes"] == 0
    assert "another user" in answer["reason"]


def test_what_lies_in_memory_is_resident(memory_folder: Path) -> None:
    path = memory_folder / "file"
    path.write_bytes(b"x" * SIZE)
    assert residency(str(path))["bytes"] == SIZE
    assert residency(str(path))["method"] == "tmpfs"
