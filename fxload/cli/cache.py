"""``fxload cache ls|rm|verify``: what is staged."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fxload.cli.options import checked_folder
from fxload.cli.output import JsonOption, Output  # noqa: TC001 - typer reads it

if TYPE_CHECKING:
    from pathlib import Path

    from fxload.cli.console import Screen
    from fxload.warm.cache import Verdict
    from fxload.warm.entry import Entry

__all__ = ["app"]

app = typer.Typer(help="List, remove and verify staged models.", rich_markup_mode=None)

ToOption = Annotated[
    str | None,
    typer.Option(
        "--to", help="Only the store in this folder.", metavar="DIR", callback=checked_folder
    ),
]


@app.callback(invoke_without_command=True)
def _cache(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


@app.command("ls")
def list_staged(to: ToOption = None, json_output: JsonOption = False) -> None:
    """List what is staged, most recently used first."""
    from fxload.cli.console import Column
    from fxload.cli.units import format_bytes, format_seconds
    from fxload.warm import list_entries

    output = Output(json_output)
    listing = list_entries(to=_folder(to))
    now_s = time.time()

    def draw(screen: Screen) -> None:
        if not listing.entries:
            screen.line("nothing is staged; stage a model with: fxload warm MODEL")
            return
        columns = ("name", "state", "in use", "store", "source")
        screen.table(
            [*map(Column, columns), Column("bytes", right=True), Column("used", right=True)],
            [
                [
                    entry.name,
                    entry.state,
                    "yes" if entry.in_use else "no",
                    f"{entry.kind} {entry.store}",
                    entry.source,
                    format_bytes(entry.size_bytes),
                    f"{format_seconds(max(0.0, now_s - entry.last_used_unix_s))} ago",
                ]
                for entry in listing.entries
            ],
        )

    for reason in listing.unusable:
        output.screen.message(f"left aside: {reason}")
    data: dict[str, object] = {
        "entries": [_entry(entry) for entry in listing.entries],
        "size_bytes": sum(entry.size_bytes for entry in listing.entries),
        "unusable_stores": list(listing.unusable),
    }
    output.emit(data, draw)


@app.command("rm")
def remove_staged(
    names: Annotated[list[str] | None, typer.Argument(help="Names, paths or sources.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove every entry.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also what is being read.")] = False,
    to: ToOption = None,
    json_output: JsonOption = False,
) -> None:
    """Remove staged models."""
    from fxload._errors import StorageError
    from fxload.cli.units import format_bytes
    from fxload.warm import remove

    output = Output(json_output)
    results = remove(names or [], everything=everything, force=force, to=_folder(to))
    data: dict[str, object] = {
        "removed": [_entry(each.entry) for each in results if each.removed],
        "kept": [
            {**_entry(each.entry), "reason": each.reason} for each in results if not each.removed
        ],
    }

    def draw(screen: Screen) -> None:
        for each in results:
            size = format_bytes(each.entry.size_bytes)
            what = f"removed {size}" if each.removed else "kept"
            screen.line(f"{each.entry.name}  {what}  {each.reason}".rstrip())

    kept = [each for each in results if not each.removed]
    if kept:
        error = StorageError(
            f"not removed: {kept[0].reason}",
            path=str(kept[0].entry.folder),
            hint="--force removes what is being read" if not force else None,
        )
        output.emit_failed(data, draw, error)
    output.emit(data, draw)


@app.command("verify")
def verify_staged(
    names: Annotated[list[str] | None, typer.Argument(help="Names, paths or sources.")] = None,
    to: ToOption = None,
    json_output: JsonOption = False,
) -> None:
    """Read every staged byte again and compare it with its digest."""
    from fxload._errors import CheckpointError
    from fxload.warm import verify

    output = Output(json_output)
    with output.screen.progress("verify") as update:
        verdicts = verify(
            names or [],
            to=_folder(to),
            progress=lambda now: update(now.done_bytes, now.total_bytes),
        )
    data: dict[str, object] = {
        "ok": all(verdict.good for verdict in verdicts),
        "entries": [_verdict(verdict) for verdict in verdicts],
    }

    def draw(screen: Screen) -> None:
        if not verdicts:
            screen.line("nothing is staged")
        for verdict in verdicts:
            screen.line(f"{verdict.entry.name}  {'good' if verdict.good else 'BAD'}")
            for fault in verdict.faults:
                screen.line(
                    f"  {fault.name}: {fault.problem}: "
                    f"expected {fault.expected}, found {fault.found or 'nothing'}"
                )
            if verdict.reason:
                screen.line(f"  {verdict.reason}")

    bad = next((verdict for verdict in verdicts if not verdict.good), None)
    if bad is not None:
        names_of_faults = ", ".join(fault.name for fault in bad.faults)
        error = CheckpointError(
            bad.reason or f"its content is damaged: {names_of_faults}",
            path=str(bad.entry.folder),
            rule="digest",
            hint=f"remove it with: fxload cache rm {bad.entry.name}",
        )
        output.emit_failed(data, draw, error)
    output.emit(data, draw)


def _folder(to: str | None) -> Path | None:
    from pathlib import Path

    return None if to is None else Path(to)


def _entry(entry: Entry) -> dict[str, object]:
    return {**asdict(entry), "store": str(entry.store), "path": str(entry.path)}


def _verdict(verdict: Verdict) -> dict[str, object]:
    return {
        **_entry(verdict.entry),
        "good": verdict.good,
        "checked_bytes": verdict.checked_bytes,
        "faults": [asdict(fault) for fault in verdict.faults],
        "reason": verdict.reason,
    }
