"""A checkpoint on storage that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from tests.conftest import CheckpointFactory, SlowFsFactory
    from tests.support.checkpoints import Checkpoint
    from tests.support.slowfs import SlowFs

ENGINES = ("io_uring", "pread")


class Storage(NamedTuple):
    """`model` as it is read, through slowfs; `checkpoint` as it was written, behind it."""

    fs: SlowFs
    model: str
    checkpoint: Checkpoint


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def storage(slowfs: SlowFsFactory, make_checkpoint: CheckpointFactory) -> Storage:
    """Three shards of 8 MiB. The kernel keeps no pages and believes no attributes."""
    fs = slowfs(attr_s=0, keep_cache=False)
    checkpoint = make_checkpoint(fs.root / "model", tensor_bytes=2 << 20)
    return Storage(fs, str(fs.mount / "model"), checkpoint)
