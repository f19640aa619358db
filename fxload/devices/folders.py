"""Where the packages of this environment keep device runtimes."""

from __future__ import annotations

import importlib.util
from contextlib import suppress
from pathlib import Path

__all__ = ["runtime_folders"]

# torch's own, what its CUDA and ROCm builds depend on, and torch_npu.
_PLACES = (
    ("torch", "lib"),
    ("nvidia", "*/lib"),
    ("_rocm_sdk_core", "lib"),
    ("torch_npu", "lib"),
)


def runtime_folders() -> list[str]:
    """Folders of shared libraries that torch would load a runtime from; imports none of them."""
    folders: list[Path] = []
    for package, inside in _PLACES:
        spec = None
        with suppress(ValueError):  # a module that somebody has put together by hand
            spec = importlib.util.find_spec(package)
        for place in (spec and spec.submodule_search_locations) or ():
            folders += sorted(Path(place).glob(inside))
    return [str(folder) for folder in folders if folder.is_dir()]
