"""Examines a host and a path: what loading can use here, what was refused, and why."""

from __future__ import annotations

from fxload.doctor.examine import examine
from fxload.doctor.findings import Finding, Level, Section

__all__ = ["Finding", "Level", "Section", "examine"]
