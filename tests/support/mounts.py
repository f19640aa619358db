"""File systems of several kinds to read from. All but tmpfs's fallback need root."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.needs import need_device, need_program, need_root

if TYPE_CHECKING:
    from collections.abc import Iterator

_IMAGE_BYTES = 512 << 20  # sparse; mkfs.xfs refuses less than 300 MB
_MAKERS = {
    "ext4": ("mkfs.ext4", "e2fsprogs", ["-q", "-F", "-E", "lazy_itable_init=1,nodiscard"]),
    "xfs": ("mkfs.xfs", "xfsprogs", ["-q", "-f", "-K"]),
}


@contextlib.contextmanager
def image_mount(kind: str, folder: Path) -> Iterator[Path]:
    """A fresh ext4 or XFS on a loop device over a sparse file in `folder`."""
    need_root(f"mounting {kind}")
    need_device("/dev/loop-control")
    name, package, options = _MAKERS[kind]
    maker = need_program(name, package)
    image = folder / f"{kind}.img"
    with image.open("wb") as file:
        file.truncate(_IMAGE_BYTES)
    subprocess.run([maker, *options, str(image)], check=True, stdout=subprocess.DEVNULL)
    with _mounted(folder / kind, "-o", "loop", str(image)) as mount:
        yield mount
    image.unlink()


@contextlib.contextmanager
def tmpfs_mount(folder: Path) -> Iterator[Path]:
    need_root("mounting tmpfs")
    with _mounted(folder / "tmpfs", "-t", "tmpfs", "-o", "size=1g,mode=755", "tmpfs") as mount:
        yield mount


@contextlib.contextmanager
def overlay_mount(name: str, lower: Path, upper_parent: Path, folder: Path) -> Iterator[Path]:
    """An overlay: `lower` below, new folders in `upper_parent` above; mounted at folder/name."""
    need_root("mounting overlay")
    upper, work = upper_parent / f"{name}-upper", upper_parent / f"{name}-work"
    upper.mkdir()
    work.mkdir()
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    with _mounted(folder / name, "-t", "overlay", "-o", options, "overlay") as mount:
        yield mount


@contextlib.contextmanager
def squashfs_overlay_mount(content: Path, upper_parent: Path, folder: Path) -> Iterator[Path]:
    """The files of `content` in a squashfs below an overlay, as container images are seen."""
    need_root("mounting squashfs")
    need_device("/dev/loop-control")
    maker = need_program("mksquashfs", "squashfs-tools")
    image = folder / "content.squashfs"
    subprocess.run(
        [maker, str(content), str(image), "-quiet", "-no-progress", "-noD"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    with (
        _mounted(folder / "squashfs", "-t", "squashfs", "-o", "loop", str(image)) as lower,
        overlay_mount("on-squashfs", lower, upper_parent, folder) as mount,
    ):
        yield mount
    image.unlink()


@contextlib.contextmanager
def _mounted(mount: Path, *arguments: str) -> Iterator[Path]:
    mount.mkdir()
    subprocess.run(["mount", *arguments, str(mount)], check=True)
    try:
        yield mount
    finally:
        _unmount(mount)


def _unmount(mount: Path) -> None:
    for _ in range(50):
        if subprocess.run(["umount", str(mount)], capture_output=True).returncode == 0:
            return
        # A request that was abandoned may still hold a file for a moment.
        time.sleep(0.02)
    subprocess.run(["umount", "--lazy", str(mount)], check=True)
    raise RuntimeError(f"{mount} was still in use at its unmounting: a file was left open")


def file_system_of(path: Path) -> str:
    """The type of the file system that `path` lies on, as /proc/self/mountinfo names it."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, after = line.split(" - ")
        if before.split()[2] == wanted:
            return after.split()[0]
    raise LookupError(f"{path} is on no mount that is listed")
