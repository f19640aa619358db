"""A checkpoint in a folder of the test's own, as the loader's tests have it."""

from __future__ import annotations

from tests.loader.conftest import make_checkpoint

__all__ = ["make_checkpoint"]
