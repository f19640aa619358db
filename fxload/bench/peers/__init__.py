"""The loaders that ``bench load`` compares. Each peer's package is imported in one module here.

A loader module has::

    def check(job: Job) -> None                          raises UnsupportedError where it cannot run
    def load(job: Job) -> Iterator[tuple[str, Tensor]]   tensors stay valid while they are kept

and optionally ``prepare(job)``, run before the clock starts, and ``details(job)``, run after it.
"""

from __future__ import annotations

import importlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

from fxload._errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["LOADERS", "Job", "LoaderSpec", "import_package", "loader_named"]


class LoaderSpec(NamedTuple):
    """A way to load: ``owned`` says that each tensor stays valid when it is kept."""

    name: str
    module: str
    owned: bool
    about: str


_SPECS = (
    LoaderSpec("fxload", "own", True, "fxload.open_checkpoint, every tensor kept"),
    LoaderSpec("safetensors", "reference", True, "safe_open (mmap), each tensor cloned"),
    LoaderSpec("safetensors-pread", "reference", True, "safe_open with backend='pread'"),
    LoaderSpec("runai", "runai", True, "SafetensorsStreamer with its own owned tensors"),
    LoaderSpec("runai-clone", "runai", True, "SafetensorsStreamer views, each cloned"),
    LoaderSpec("runai-view", "runai", False, "SafetensorsStreamer views that do not last"),
    LoaderSpec("fastsafetensors", "fastsafe", True, "views that keep the file's buffer alive"),
    LoaderSpec("fastsafetensors-clone", "fastsafe", True, "each tensor cloned"),
    LoaderSpec("instanttensor", "instant", True, "safe_open to a CUDA device, each tensor cloned"),
    LoaderSpec("instanttensor-view", "instant", False, "views of its ring that do not last"),
)
LOADERS = {spec.name: spec for spec in _SPECS}


@dataclass(frozen=True)
class Job:
    """What a worker is asked to do.

    ``paths`` are the shards in load order. ``raw``: into memory of the device's runtime, without
    torch. ``ring_bytes``: fxload's pinned ring; None for its default.
    """

    loader: str
    model: str
    paths: tuple[str, ...]
    payload_bytes: int
    engine: str = "auto"
    digest: bool = False
    prefault: bool = False
    verify: bool = False
    device: str = "cpu"
    raw: bool = False
    ring_bytes: int | None = None

    def as_json(self) -> dict[str, object]:
        """All fields."""
        return asdict(self)


def loader_named(name: str) -> LoaderSpec:
    """The loader of that name, or a UsageError that lists them."""
    if name not in LOADERS:
        raise UsageError(f"no loader is called {name!r}", hint=f"choose from {', '.join(LOADERS)}")
    return LOADERS[name]


def import_package(module: str, install: str) -> ModuleType:
    """Import a peer's package, or say in one line what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]:
            raise UnsupportedError(
                f"{install} is not installed", hint=f"pip install {install}", rule="missing"
            ) from error
        raise UnsupportedError(f"{install} cannot be imported: {error}") from error
