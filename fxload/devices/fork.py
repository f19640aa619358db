"""Forked processes: no device runtime survives a fork, and none says so in words."""

from __future__ import annotations

import os

from fxload._errors import UsageError

__all__ = ["ForkGuard", "forked_error", "mark_used", "refuse_forked"]

_HINT = "start it with multiprocessing's spawn method, or fork before a device is used"

# What a runtime has opened belongs to a process, not to any object of ours, and a fork copies it:
# the process that used one first is remembered for its children.
_users: list[int] = []


def mark_used() -> None:
    """This process has a device runtime open from now on."""
    if not _users:
        _users.append(os.getpid())


def refuse_forked(device: str) -> None:
    """Raises UsageError in a process that was forked from one that had used a device."""
    if _users and _users[0] != os.getpid():
        raise forked_error(device)


def forked_error(device: str) -> UsageError:
    """What to raise in a process that was forked too late."""
    return UsageError(
        f"device {device!r}: this process was forked from one that had used a device,"
        " and no runtime survives that",
        hint=_HINT,
    )


class ForkGuard:
    """Remembers the process that something belongs to."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_owner(self) -> bool:
        """Whether the calling process is the one that made it."""
        return os.getpid() == self._pid

    def check(self, path: str) -> None:
        """Raises UsageError in any other process."""
        if not self.is_owner:
            raise UsageError(
                "a load to a device cannot go on in a forked process", path=path, hint=_HINT
            )
