"""A folder on an array across a network: slowfs over memory."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.compiling import compile_c
from tests.support.slowfs import mount_slowfs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SLOWFS = Path(__file__).parents[1] / "slowfs"


@contextmanager
def folder_on_array(
    fill: Callable[[Path], None], *, latency_us: int, mb_per_s: float
) -> Iterator[Path]:
    """A folder that `fill` has written, as it is read through the array; metadata takes 500 us.

    It lies in /dev/shm, or the disk below would be measured as well.
    """
    root = Path(tempfile.mkdtemp(prefix="fxload-array-", dir="/dev/shm"))
    try:
        fill(root / "folder")
        with tempfile.TemporaryDirectory(prefix="fxload-array-") as scratch:
            program = compile_c(
                sorted(SLOWFS.glob("*.c")), Path(scratch, "slowfs"), library="fuse3"
            )
            mounted = mount_slowfs(
                program,
                Path(scratch),
                root,
                latency_us=latency_us,
                mb_per_s=mb_per_s,
                meta_us=500,
            )
            try:
                yield mounted.mount / "folder"
            finally:
                mounted.unmount()
    finally:
        shutil.rmtree(root)
