from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fxload.config import Config
from tests.support.checkpoints import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Model:
    """A source that no test may change."""

    path: Path
    size_bytes: int


@pytest.fixture(scope="session")
def models(session_folder: Path) -> dict[str, Model]:
    """Three models of three shards and what lies beside weights: "a", "b" and "c"."""
    made = {}
    for seed, name in enumerate(("a", "b", "c")):
        folder = session_folder / "warm-sources" / name
        checkpoint = write_checkpoint(folder, shards=3, tensor_bytes=64 << 10, seed=seed)
        (folder / "config.json").write_text('{"model_type": "random"}')
        (folder / "tokenizer.json").write_text("{}")
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text("{}")
        (folder / "pytorch_model.bin").write_bytes(b"other weights")
        (folder / ".cache").write_bytes(b"hidden")
        (folder / "empty.txt").touch()
        made[name] = Model(folder, checkpoint.size_bytes)
    return made


@pytest.fixture
def model(models: dict[str, Model]) -> Path:
    return models["a"].path


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Config]:
    """Stores of the test's own."""
    ram = Path("/dev/shm") / f"fxload-tests-{tmp_path.name}-{id(tmp_path):x}"
    yield Config(state_dir=tmp_path / "state", warm_ram_dir=ram)
    shutil.rmtree(ram, ignore_errors=True)
