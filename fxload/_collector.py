"""Python's cyclic garbage collector, and where it is in the way."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["paused_collector"]


@contextmanager
def paused_collector() -> Iterator[None]:
    """Keep the collector from running while very many objects are made that all stay.

    It would walk every object of the process again and again, five times the cost of parsing a
    header of 100,000 tensors. What is released by counting references is released as ever.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
