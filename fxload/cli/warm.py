"""``fxload warm MODEL``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from fxload.cli.options import checked_engine, checked_folder
from fxload.cli.output import JsonOption, Output  # noqa: TC001 - typer reads it

if TYPE_CHECKING:
    from fxload.cli.console import Screen

__all__ = ["warm"]


def warm(
    model: Annotated[str, typer.Argument(help="A folder, a file, fx://… or a cached name.")],
    to: Annotated[
        str | None,
        typer.Option("--to", help="The store's folder.", metavar="DIR", callback=checked_folder),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Fail rather than evict other models.")
    ] = False,
    limit: Annotated[
        str | None, typer.Option(help="Most that the store may hold.", metavar="SIZE")
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option(help="Most to read in a second.", metavar="SIZE")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="auto, io_uring or pread.", callback=checked_engine)
    ] = "auto",
    json_output: JsonOption = False,
) -> None:
    """Stage a model in memory or on a local disk."""
    from fxload.cli.units import format_bytes, format_seconds, parse_size
    from fxload.warm import stage
    from fxload.warm.copying import CopyOptions

    output = Output(json_output)
    limit_bytes = None if limit is None else parse_size(limit, "--limit")
    rate = 0 if bandwidth is None else parse_size(bandwidth, "--bandwidth")
    start_s = time.monotonic()
    with output.screen.progress("warm") as update:
        staged = stage(
            model,
            to=to,
            evict=not keep,
            limit_bytes=limit_bytes,
            options=CopyOptions(engine=engine, limit_bytes_per_s=rate),
            progress=lambda now: update(now.done_bytes, now.total_bytes),
        )
    elapsed_s = time.monotonic() - start_s
    data: dict[str, object] = {
        "model": model,
        "path": str(staged.path),
        "fingerprint": staged.digest,
        "size_bytes": staged.size_bytes,
        "store": str(staged.store),
        "kind": staged.kind,
        "reused": staged.reused,
        "reason": staged.reason,
        "elapsed_s": elapsed_s,
    }

    def draw(screen: Screen) -> None:
        how = "already staged" if staged.reused else "staged"
        screen.line(
            f"{how}  {format_bytes(staged.size_bytes)} in {format_seconds(elapsed_s)} "
            f"({staged.kind}: {staged.reason})"
        )
        screen.line(f"fingerprint  {staged.digest}")
        screen.line(f"path  {staged.path}")

    output.emit(data, draw)
