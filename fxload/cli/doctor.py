"""``fxload doctor [PATH]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fxload.cli.output import JsonOption, Output  # noqa: TC001 - typer reads it

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fxload.cli.console import Screen
    from fxload.doctor.findings import Section

__all__ = ["doctor"]


def doctor(
    path: Annotated[str | None, typer.Argument(help="A model, a folder or a mount.")] = None,
    json_output: JsonOption = False,
) -> None:
    """Show what loading can use here, what was refused, and why."""
    from pathlib import Path

    from fxload._errors import StorageError
    from fxload.config import load_config
    from fxload.doctor import Level, examine
    from fxload.sources import resolve_model

    output = Output(json_output)
    # Every load reads it, so a broken one is a finding even where nothing here needs it.
    config = load_config()
    place = None
    if path is not None:
        place = Path(path) if Path(path).exists() else resolve_model(path, config)
    sections = examine(place)
    failed = [
        finding
        for section in sections
        for finding in section.findings
        if finding.level is Level.FAIL
    ]
    counts = {
        level.value: sum(
            finding.level is level for section in sections for finding in section.findings
        )
        for level in Level
    }
    data: dict[str, object] = {
        "path": path,
        "ok": not failed,
        "counts": counts,
        "sections": [section.as_json() for section in sections],
    }

    def draw(screen: Screen) -> None:
        _draw(screen, sections)

    if failed:
        reason = failed[0].reason or failed[0].value
        output.emit_failed(data, draw, StorageError(f"{failed[0].name} failed: {reason}"))
    output.emit(data, draw)


def _draw(screen: Screen, sections: Sequence[Section]) -> None:
    for number, section in enumerate(sections):
        if number:
            screen.line()
        screen.heading(section.title)
        for finding in section.findings:
            screen.finding(
                finding.level.value, finding.name, finding.value, finding.reason, finding.hint
            )
