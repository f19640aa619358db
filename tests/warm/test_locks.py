from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

import fxload
from fxload.warm.locks import FileLock

if TYPE_CHECKING:
    from pathlib import Path


def taken(path: Path, *, shared: bool = False) -> FileLock:
    lock = FileLock.try_take(path, shared=shared, create=True)
    assert lock is not None
    return lock


def test_exclusive_and_shared(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with taken(path):
        assert FileLock.try_take(path) is None
        assert FileLock.try_take(path, shared=True) is None
    with taken(path, shared=True), taken(path, shared=True):
        assert FileLock.try_take(path) is None
    taken(path).close()


def test_missing_file_is_not_locked(tmp_path: Path) -> None:
    assert FileLock.try_take(tmp_path / "none") is None
    assert not (tmp_path / "none").exists()


def test_removed_lock_file_is_not_taken(tmp_path: Path) -> None:
    # Who waits on a lock file that its holder deletes must not think that it has the lock.
    path = tmp_path / "lock"
    first = taken(path)
    late = os.open(path, os.O_RDWR)
    first.remove()
    second = taken(path)
    assert second.path.stat().st_ino != os.fstat(late).st_ino
    os.close(late)
    second.close()


def test_one_at_a_time_while_everybody_removes_the_file(tmp_path: Path) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(400):
            while (lock := FileLock.try_take(tmp_path / "lock", create=True)) is None:
                time.sleep(0)
            inside.append(1)
            most.append(len(inside))
            time.sleep(0)
            inside.pop()
            lock.remove()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 1600
    assert max(most) == 1


def test_wait_ends_at_the_deadline(tmp_path: Path) -> None:
    with (
        taken(tmp_path / "lock"),
        pytest.raises(fxload.DeadlineError) as caught,
    ):
        FileLock.take(tmp_path / "lock", timeout_s=0.05)
    assert caught.value.path == str(tmp_path / "lock")


def test_progress_of_the_holder_extends_the_wait(tmp_path: Path) -> None:
    holder = taken(tmp_path / "lock")
    calls = 0

    def waiting() -> float:
        nonlocal calls
        calls += 1
        if calls == 20:
            holder.close()
        return time.monotonic()

    FileLock.take(tmp_path / "lock", timeout_s=0.1, waiting=waiting).close()
    assert calls >= 20


def test_death_releases(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from fxload.warm.locks import FileLock\n"
        "lock = FileLock.try_take(Path(sys.argv[1]), create=True); print('held', flush=True)\n"
        "sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    assert FileLock.try_take(tmp_path / "lock") is None
    child.kill()
    child.communicate()
    taken(tmp_path / "lock").close()


def test_link_is_not_a_lock_file(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    (tmp_path / "lock").symlink_to("real")
    with pytest.raises(fxload.StorageError):
        FileLock.try_take(tmp_path / "lock", create=True)
