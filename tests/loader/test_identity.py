"""The digest of a load: every byte of it, and no cheaper sign is taken for it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from fxload._native import digest_bytes
from fxload.checkpoint.identity import model_digest
from fxload.loader import load_checkpoint, open_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from tests.loader.conftest import CheckpointFactory


def age(paths: list[Path]) -> None:
    """Wait until the files' times are no longer so recent that a second change could hide."""
    newest = max(path.stat().st_ctime for path in paths)
    time.sleep(max(0.0, newest + 2.1 - time.time()))


def digest_of(path: Path, *, compute: bool) -> str | None:
    with open_checkpoint(path, digest=compute) as opened:
        dict(opened)
        return opened.report().digest


def test_computed_as_the_bytes_stream_by(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint(shards=2, tensors=5, tensor_bytes=4 << 20)
    expected = model_digest(
        (file.name, file.stat().st_size, digest_bytes(file.read_bytes()))
        for file in checkpoint.files
    )
    assert digest_of(checkpoint.path, compute=True) == expected
    checkpoint.assert_equal(load_checkpoint(checkpoint.path, digest=True))


def test_remembered_until_anything_changes(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint()
    age(checkpoint.files)
    assert digest_of(checkpoint.path, compute=False) is None
    digest = digest_of(checkpoint.path, compute=True)
    assert digest is not None
    assert digest_of(checkpoint.path, compute=False) == digest
    before = checkpoint.files[1].stat()
    with checkpoint.files[1].open("r+b") as file:
        file.seek(-5, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-5, os.SEEK_END)
        file.write(bytes([byte ^ 1]))
    os.utime(checkpoint.files[1], ns=(before.st_atime_ns, before.st_mtime_ns))
    assert checkpoint.files[1].stat().st_mtime_ns == before.st_mtime_ns
    assert digest_of(checkpoint.path, compute=False) is None
    assert digest_of(checkpoint.path, compute=True) != digest


def test_what_changed_just_before_is_not_remembered(make_checkpoint: CheckpointFactory) -> None:
    checkpoint = make_checkpoint()
    assert digest_of(checkpoint.path, compute=True) is not None
    assert digest_of(checkpoint.path, compute=False) is None
