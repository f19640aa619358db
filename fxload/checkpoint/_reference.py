"""The verdict of the reference implementation on a header, whatever the source of the file.

The reference wants a file. A header is put in front of a hole in a file that lives in memory and
takes no more of it than the header; a temporary sparse file stands in where that is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import tempfile
from typing import TYPE_CHECKING

from fxload._errors import OutOfMemoryError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["reference_objection"]


_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


def reference_objection(raw: bytes, file_size: int, path: str) -> str | None:
    """What the reference says against a file of this size that begins with ``raw``.

    Returns None if it accepts the file, else its message without the prefix. Raises StorageError
    if this host lets it see neither a file in memory nor a temporary one.
    """
    try:
        from safetensors import SafetensorError

        with _sparse_file(raw, file_size) as name:
            try:
                _open(name)
            except SafetensorError as error:
                return str(error).removeprefix("Error while deserializing header: ")
    except MemoryError as error:
        raise OutOfMemoryError(
            "no memory or address space to judge the header",
            path=path,
            hint=f"the file has {file_size} bytes; raise the limit on address space (ulimit -v)",
        ) from error
    except OSError as error:
        if error.errno in _NO_DESCRIPTORS:
            raise StorageError(
                f"cannot judge the header: {error.strerror}",
                path=path,
                os_errno=error.errno,
                hint="raise the limit on open files (ulimit -n)",
            ) from error
        raise StorageError(
            f"cannot judge the header: {error.strerror or error}",
            path=path,
            os_errno=error.errno,
            hint="the limits on file size or address space (ulimit -f, ulimit -v) are below the"
            f" {file_size} bytes of this file, or the temporary folder is full",
        ) from error
    return None


def _open(name: str) -> None:
    from safetensors import safe_open

    # Whatever the framework, the same code judges the header; torch is slow to import.
    if "torch" not in sys.modules:
        with contextlib.suppress(ImportError), safe_open(name, "numpy", backend="pread"):
            return
    with safe_open(name, "pt", backend="pread"):
        return


@contextlib.contextmanager
def _sparse_file(raw: bytes, file_size: int) -> Iterator[str]:
    """The name of a file of this size that begins with ``raw`` and holds nothing else."""
    try:
        fd = os.memfd_create("fxload-header", os.MFD_CLOEXEC)
    except OSError as error:
        if error.errno in _NO_DESCRIPTORS:
            raise
        # Kernels before 3.17, or a seccomp filter.
        yield from _temporary_file(raw, file_size)
        return
    with os.fdopen(fd, "wb") as file:
        name = f"/proc/self/fd/{fd}"
        if not os.access(name, os.R_OK):
            yield from _temporary_file(raw, file_size)
            return
        _fill(file.fileno(), raw, file_size)
        yield name


def _temporary_file(raw: bytes, file_size: int) -> Iterator[str]:
    with tempfile.NamedTemporaryFile(prefix="fxload-header-") as file:
        _fill(file.fileno(), raw, file_size)
        yield file.name


def _fill(fd: int, raw: bytes, file_size: int) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(fd, view) :]
    os.ftruncate(fd, file_size)
