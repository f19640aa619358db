"""The small files under /proc and /sys, below a root that tests can replace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["HostFiles"]


@dataclass(frozen=True)
class HostFiles:
    """Reads one-value files of a host whose file tree starts at ``root``."""

    root: Path = Path("/")

    def at(self, path: str) -> Path:
        """The absolute ``path`` of the host, below the root."""
        return self.root / path.lstrip("/")

    def text(self, path: str | Path) -> str | None:
        """The stripped content, or None where the kernel has no such file or refuses it.

        Absence is an answer here: which files exist differs between kernels and drivers.
        """
        place = self.at(path) if isinstance(path, str) else path
        try:
            return place.read_text(errors="replace").strip()
        except OSError:
            return None

    def integer(self, path: str | Path) -> int | None:
        """The content as a decimal number, or None where it is not one."""
        text = self.text(path)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            return None

    def fields(self, path: str, separator: str = ":") -> dict[str, str]:
        """A file of ``key<separator>value`` lines (the first of equal keys wins)."""
        result: dict[str, str] = {}
        for line in (self.text(path) or "").splitlines():
            key, found, value = line.partition(separator)
            if found:
                result.setdefault(key.strip(), value.strip())
        return result

    def names(self, path: Path) -> list[str]:
        """Sorted names in a folder; empty where there is no such folder."""
        try:
            return sorted(entry.name for entry in path.iterdir())
        except OSError:
            return []
