"""What the doctor found: one line each, with the reason and what to do about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum

__all__ = ["Finding", "Level", "Section"]


class Level(str, Enum):
    """How a finding reads: fine, only to know, costs speed, or makes loading impossible."""

    OK = "ok"
    INFO = "info"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One fact. ``reason`` says why it is so, ``hint`` what would change it."""

    level: Level
    name: str
    value: str
    reason: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Section:
    """Findings that belong together, and the same facts as data for programs."""

    title: str
    findings: tuple[Finding, ...]
    data: dict[str, object] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """A JSON object: title, findings, data."""
        findings = [asdict(finding) | {"level": finding.level.value} for finding in self.findings]
        return {"title": self.title, "findings": findings, "data": self.data}
