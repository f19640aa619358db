"""A mounted slowfs: storage with the latency, the bandwidth and the faults that a test asks for."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = [Path(__file__).parents[1] / "slowfs" / name for name in ("slowfs.c", "faults.c")]
_READING = {"read", "direct-read", "open", "direct-open", "getattr", "readdir"}
_WRITING = {"write", "create", "fsync", "mkdir", "rename", "unlink", "truncate"}


class Counters(TypedDict):
    """What has crossed a mount since it was made; `hanging` is of this moment."""

    reads: int
    direct_reads: int
    read_bytes: int
    writes: int
    written_bytes: int
    opens: int
    metadata: int
    faults: int
    hanging: int


class Faults:
    """The fault file of one mount; tests/slowfs/slowfs.c describes a line of it.

    Use `set` for faults that stay, or `during` for faults that end with a `with` block.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clear()

    def set(self, *lines: str) -> None:
        """Replace all faults, at once, by these lines: ``"read EIO 7 *.safetensors"``."""
        for line in lines:
            operation, _what, every, *glob = line.split()
            if operation not in _READING | _WRITING or int(every) <= 0 or len(glob) > 1:
                raise ValueError(f"no such fault: {line!r}")
        # slowfs must never see half of a line.
        fresh = self.path.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.replace(self.path)

    def clear(self) -> None:
        """No faults from now on; what hangs goes on."""
        self.set()

    @contextlib.contextmanager
    def during(self, *lines: str) -> Iterator[None]:
        self.set(*lines)
        try:
            yield
        finally:
            self.clear()


@dataclass(frozen=True)
class SlowFs:
    """A mount of slowfs.

    Attributes:
        mount: where readers look.
        root: the folder behind it, on tmpfs: prepare files, and change them, here.
        faults: what goes wrong.
    """

    mount: Path
    root: Path
    faults: Faults
    process: subprocess.Popen[bytes]

    def counters(self) -> Counters:
        return cast("Counters", json.loads((self.mount / ".slowfs").read_bytes()))

    def wait_until_hanging(self, count: int = 1, timeout_s: float = 30.0) -> None:
        """Return once `count` requests hang; raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while self.counters()["hanging"] < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing hangs: {self.counters()}")
            time.sleep(0.01)

    def unmount(self) -> None:
        """Release what hangs, unmount, and wait until the process has ended. Idempotent."""
        self.faults.clear()
        if self.process.poll() is None:
            _detach(self.mount)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def mount_slowfs(
    program: Path,
    folder: Path,
    root: Path,
    *,
    latency_us: int = 0,
    mb_per_s: float = 0,
    meta_us: int = 0,
    attr_s: float = 1.0,
    keep_cache: bool = True,
) -> SlowFs:
    """Mount `root` below `folder`. The caller unmounts; raises RuntimeError with slowfs's words.

    Args:
        program: the slowfs binary.
        folder: an existing folder for the mount point, the fault file and the log.
        root: the folder to show; on tmpfs, or the disk below is measured as well.
        latency_us: what each read, write or fsync takes before its data moves.
        mb_per_s: bandwidth that all requests share; 0 is unlimited.
        meta_us: what a metadata request takes.
        attr_s: how long the kernel may believe sizes and times; 0 where the test changes them.
        keep_cache: whether the kernel may keep file pages between opens.
    """
    mount = folder / "mount"
    mount.mkdir()
    log = folder / "slowfs.log"
    faults = Faults(folder / "faults")
    settings = {
        "SLOWFS_ROOT": str(root),
        "SLOWFS_LATENCY_US": str(latency_us),
        "SLOWFS_MBPS": str(mb_per_s),
        "SLOWFS_META_US": str(meta_us),
        "SLOWFS_ATTR_S": str(attr_s),
        "SLOWFS_CACHE": str(int(keep_cache)),
        "SLOWFS_FAULT": str(faults.path),
        "SLOWFS_WITH_PARENT": "1",
    }
    options = ["-o", "default_permissions"]
    if os.geteuid() == 0:
        options += ["-o", "allow_other"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(program), "-f", *options, str(mount)],
            env={**os.environ, **settings},
            stdout=output,
            stderr=output,
        )
    deadline = time.monotonic() + 10
    while not os.path.ismount(mount):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise RuntimeError(f"slowfs did not mount: {log.read_text().strip()}")
        time.sleep(0.005)
    return SlowFs(mount=mount, root=root, faults=faults, process=process)


def _detach(mount: Path) -> None:
    """Unmount; where something still holds the mount, cut its connection and let go of it."""
    plain = subprocess.run(["fusermount3", "-u", str(mount)], capture_output=True)
    if plain.returncode == 0:
        return
    # A forced unmount fails while the mount is in use, but it does end every request in flight.
    if os.geteuid() == 0:
        subprocess.run(["umount", "--force", str(mount)], capture_output=True)
    subprocess.run(["fusermount3", "-u", "-z", str(mount)], capture_output=True)
    if f" {mount} " in Path("/proc/self/mountinfo").read_text():
        raise RuntimeError(f"{mount} does not unmount: {plain.stderr.decode().strip()}")
