"""From what a user calls a model to the folder or file that holds it."""

from __future__ import annotations

from fxload.sources.hub import find_in_hub_cache, hub_cache_dir
from fxload.sources.resolve import resolve_model

__all__ = ["find_in_hub_cache", "hub_cache_dir", "resolve_model"]
