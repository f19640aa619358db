"""Loading to accelerators: which device, in which of its memory, through which ring.

Nothing here imports torch_npu, or touches a device, before a load to one is asked for.
"""

from __future__ import annotations

from fxload.devices.folders import runtime_folders

__all__ = ["runtime_folders"]
