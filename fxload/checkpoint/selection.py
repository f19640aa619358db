"""Which tensors of a checkpoint are wanted."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fxload._errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fxload.checkpoint.header import TensorInfo

__all__ = ["Selection"]


@dataclass(frozen=True)
class Selection:
    """A filter of tensor names.

    A name is wanted if it matches a glob of ``include`` (or there is none), matches no glob of
    ``exclude``, and ``predicate`` (if any) returns true for it. Globs know ``*``, ``?`` and
    ``[…]``, match whole names and heed case; ``*`` crosses dots.
    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    predicate: Callable[[str], bool] | None = None

    def __post_init__(self) -> None:
        for option in ("include", "exclude"):
            globs = getattr(self, option)
            if isinstance(globs, str) or not all(isinstance(glob, str) for glob in globs):
                raise UsageError(
                    f"{option} is {globs!r}, not a sequence of globs",
                    hint=f'write {option}=("*.weight",)',
                )
            object.__setattr__(self, option, tuple(globs))
        if self.predicate is not None and not callable(self.predicate):
            raise UsageError(f"select is {self.predicate!r}, not a function of a tensor's name")

    @property
    def everything(self) -> bool:
        """Whether no name can be refused."""
        return not (self.include or self.exclude or self.predicate)

    def wants(self, name: str) -> bool:
        """Whether the tensor of this name is wanted."""
        return self._matcher()(name)

    def pick(self, tensors: Iterable[TensorInfo]) -> list[TensorInfo]:
        """The wanted ones, in the given order."""
        if self.everything:
            return list(tensors)
        wants = self._matcher()
        return [tensor for tensor in tensors if wants(tensor.name)]

    def _matcher(self) -> Callable[[str], bool]:
        tests: list[Callable[[str], object]] = []
        if self.include:
            tests.append(_any_of(self.include))
        if self.exclude:
            refused = _any_of(self.exclude)
            tests.append(lambda name: not refused(name))
        if self.predicate:
            tests.append(self.predicate)
        if len(tests) == 1:
            (test,) = tests
            return lambda name: bool(test(name))
        return lambda name: all(test(name) for test in tests)


def _any_of(globs: Sequence[str]) -> Callable[[str], object]:
    # re keeps what it has compiled, so one name at a time costs no compilation either.
    return re.compile("|".join(fnmatch.translate(glob) for glob in globs)).match
