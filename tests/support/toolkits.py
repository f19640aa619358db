"""Stand-in runtimes where a vendor's toolkit would be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxload.devices.folders import runtime_folders
from tests.support.simulators import LIBRARIES

if TYPE_CHECKING:
    from tests.support.simulators import Simulator

# Hide the accelerators of this machine from their own runtimes.
_HIDING = {
    "hip": {"HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""},
    "cuda": {"CUDA_VISIBLE_DEVICES": ""},
    "acl": {"ASCEND_RT_VISIBLE_DEVICES": ""},
}
NO_DEVICES = {name: value for each in _HIDING.values() for name, value in each.items()}
_VARIABLES = {"hip": "ROCM_PATH", "cuda": "CUDA_HOME", "acl": "ASCEND_TOOLKIT_HOME"}


def torch_brings(kind: str) -> bool:
    """Whether this environment's torch has a runtime of that kind itself, which is found first."""
    stem = LIBRARIES[kind].partition(".")[0]
    return any(any(Path(folder).glob(f"{stem}*")) for folder in runtime_folders())


def as_toolkit(runtime: Simulator, folder: Path, **options: Any) -> dict[str, str]:
    """The environment of a process that finds the stand-in as its vendor's toolkit, and no other.

    A toolkit that this machine has comes before what only the system's loader knows, which is how
    `Simulator.environment` alone lets it be found. `options` are those of that function; `folder`
    is there, and becomes the toolkit's.
    """
    (folder / "lib64").symlink_to(runtime.folder)
    hidden = {
        name: value for name, value in NO_DEVICES.items() if name not in _HIDING[runtime.kind]
    }
    return {**runtime.environment(**options), **hidden, _VARIABLES[runtime.kind]: str(folder)}
