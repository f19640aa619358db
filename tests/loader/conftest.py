"""A checkpoint in a folder of the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.checkpoints import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.checkpoints import Checkpoint

    CheckpointFactory = Callable[..., Checkpoint]


@pytest.fixture
def make_checkpoint(tmp_path: Path) -> CheckpointFactory:
    """Writes one with the given keywords of write_checkpoint."""

    def make(**options: Any) -> Checkpoint:
        return write_checkpoint(tmp_path / "model", **options)

    return make
