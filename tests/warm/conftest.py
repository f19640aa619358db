from __future__ import annotations

import shutil
import tempfile
import time
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


@pytest.fixture(scope="session")
def large_model(session_folder: Path) -> Path:
    """Three shards that take many requests each."""
    folder = session_folder / "warm-sources" / "large"
    return write_checkpoint(folder, shards=3, tensors=2, tensor_bytes=2 << 20, seed=9).path


class Copies:
    """Private copies of the models, on tmpfs, for tests that change or mount their source.

    They are made at once and early, for a file that was just written is not remembered.
    """

    def __init__(self, folder: Path, sources: dict[str, Path], count: int) -> None:
        self._folder = folder
        self._left = {name: list(range(count)) for name in sources}
        for name, source in sources.items():
            for number in self._left[name]:
                shutil.copytree(source, folder / f"{name}-{number}/m")
        self._made_s = time.monotonic()

    def take(self, name: str) -> Path:
        """A folder that nobody else gets, alone in the folder above it."""
        time.sleep(max(0.0, self._made_s + 2.05 - time.monotonic()))
        return self._folder / f"{name}-{self._left[name].pop()}/m"


@pytest.fixture(scope="session")
def copies(models: dict[str, Model], large_model: Path) -> Iterator[Copies]:
    folder = Path(tempfile.mkdtemp(prefix="fxload-tests-", dir="/dev/shm"))
    sources = {name: model.path for name, model in models.items()} | {"large": large_model}
    yield Copies(folder, sources, count=16)
    shutil.rmtree(folder)


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Config]:
    """Stores of the test's own."""
    ram = Path("/dev/shm") / f"fxload-tests-{tmp_path.name}-{id(tmp_path):x}"
    yield Config(state_dir=tmp_path / "state", warm_ram_dir=ram)
    shutil.rmtree(ram, ignore_errors=True)
