"""``fxload bench load`` and ``fxload bench storage``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fxload.cli.options import checked_engine
from fxload.cli.output import JsonOption, Output  # noqa: TC001 - typer reads it

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from fxload.bench.load import LoadPlan
    from fxload.bench.storage import Cell, CellResult

__all__ = ["app"]

app = typer.Typer(
    help="Measure loaders and storage, with every cold read proven.", rich_markup_mode=None
)

PlotOption = Annotated[
    str | None, typer.Option("--plot", help="Draw a picture: .svg or .png.", metavar="FILE")
]
JsonFileOption = Annotated[
    str | None,
    typer.Option(
        "--json-file",
        help="Write the report to FILE; --json FILE.json does the same.",
        metavar="FILE",
    ),
]
_DEFAULT_PEERS = "safetensors,runai,fastsafetensors"
_REQUESTS = "512KiB,1MiB,2MiB,4MiB,8MiB"
_DEPTHS = "1,4,16,32,64,128"


@app.callback(invoke_without_command=True)
def _bench(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


@app.command("load")
def bench_load(
    model: Annotated[str, typer.Argument(help="A folder, a file, fx://… or a cached name.")],
    vs: Annotated[str, typer.Option(help="Loaders to compare with.")] = _DEFAULT_PEERS,
    rounds: Annotated[int, typer.Option(help="Interleaved rounds.", min=1)] = 5,
    cold: Annotated[bool, typer.Option(help="From storage, or from the page cache.")] = True,
    prefault: Annotated[
        bool, typer.Option("--prefault", help="Touch fxload's destination beforehand.")
    ] = False,
    digest: Annotated[bool, typer.Option("--digest", help="Let fxload digest every byte.")] = False,
    engine: Annotated[
        str, typer.Option(help="fxload's: auto, io_uring or pread.", callback=checked_engine)
    ] = "auto",
    device: Annotated[str, typer.Option(help="Where to load to: cpu, cuda:N, npu:N.")] = "cpu",
    raw: Annotated[
        bool, typer.Option("--raw", help="Into the device runtime's own memory, without torch.")
    ] = False,
    ring: Annotated[
        str | None, typer.Option(help="Size of fxload's pinned ring.", metavar="SIZE")
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", help="Seconds for one load.", min=1)
    ] = 1800.0,
    plot: PlotOption = None,
    json_output: JsonOption = False,
    json_file: JsonFileOption = None,
) -> None:
    """Compare loaders, each in a fresh process.

    Told are GB/s, CPU time, memory and the time to the first tensor; of loads to a device also
    the time of the reads, of the copies and of both at once.
    """
    from pathlib import Path

    from fxload._errors import StorageError
    from fxload.bench.load import compare_loaders
    from fxload.bench.machine import describe_machine
    from fxload.bench.report import load_report
    from fxload.cli.bench_tables import draw_load
    from fxload.cli.units import parse_size

    output = Output(json_output, _checked(json_file))
    picture = _checked_plot(plot)
    loaders = tuple(dict.fromkeys(["fxload", *_names(vs)]))
    plan = _plan(
        model,
        loaders=loaders,
        rounds=rounds,
        cold=cold,
        prefault=prefault,
        digest=digest,
        engine=engine,
        timeout_s=timeout_s,
        device=_checked_device(device, raw=raw, ring=ring, prefault=prefault),
        raw=raw,
        ring_bytes=None if ring is None else parse_size(ring, "--ring"),
    )
    with output.screen.steps("bench load") as step:
        comparison = compare_loaders(plan, step)
    report = load_report(comparison, describe_machine(plan.paths))
    if picture is not None:
        from fxload.bench.plot import plot_load

        plot_load(report, picture)
        output.screen.message(f"drew {picture}")
    own: Any = comparison.entries[0]
    if not own.samples:
        reason = own.failures[-1].reason if own.failures else "no round was run"
        error = StorageError(f"fxload gave no figure: {reason}", path=str(Path(plan.model)))
        output.emit_failed(report, lambda screen: draw_load(screen, report), error)
    output.emit(report, lambda screen: draw_load(screen, report))


def _plan(
    model: str,
    *,
    loaders: tuple[str, ...],
    rounds: int,
    cold: bool,
    prefault: bool,
    digest: bool,
    engine: str,
    timeout_s: float,
    device: str,
    raw: bool,
    ring_bytes: int | None,
) -> LoadPlan:
    """Read the headers once: every loader has to deliver exactly these bytes."""
    from fxload.bench.load import LoadPlan
    from fxload.checkpoint.shards import find_shards
    from fxload.cli.model import open_model
    from fxload.config import load_config
    from fxload.host_memory import read_host_memory
    from fxload.sources import resolve_model

    path = resolve_model(model, load_config())
    with open_model(find_shards(path)) as opened:
        payload_bytes = opened.payload_bytes
        paths = tuple(str(each) for each in opened.shards.paths)
    return LoadPlan(
        model=str(path),
        paths=paths,
        payload_bytes=payload_bytes,
        loaders=loaders,
        rounds=rounds,
        cold=cold,
        prefault=prefault,
        engine=engine,
        digest=digest,
        timeout_s=timeout_s,
        memory_bytes=read_host_memory().available_bytes,
        device=device,
        raw=raw,
        ring_bytes=ring_bytes,
    )


def _checked_device(device: str, *, raw: bool, ring: str | None, prefault: bool) -> str:
    """The device's full name; nothing of it is opened in this process."""
    from fxload._errors import UsageError
    from fxload.devices.resolve import device_name

    on_host = device == "cpu"
    name = device if on_host else device_name(device, raw=raw)
    if on_host:
        for option, given in (("--raw", raw), ("--ring", ring is not None)):
            if given:
                raise UsageError(f"{option} is about loads to a device", hint="add --device")
    elif prefault:
        raise UsageError("--prefault touches host memory; a load to a device has no such step")
    return name


@app.command("storage")
def bench_storage(
    path: Annotated[str, typer.Argument(help="A model, a file, or a folder to write to.")],
    make: Annotated[
        str | None, typer.Option(help="Write random files of this size first.", metavar="SIZE")
    ] = None,
    requests: Annotated[str, typer.Option(help="Request sizes.")] = _REQUESTS,
    depths: Annotated[str, typer.Option(help="Requests in flight.")] = _DEPTHS,
    rounds: Annotated[int, typer.Option(help="Interleaved rounds.", min=1)] = 3,
    cell_s: Annotated[
        float, typer.Option("--cell-seconds", help="Longest read of one cell.", min=0.1)
    ] = 3.0,
    engine: Annotated[
        str, typer.Option(help="auto, io_uring or pread.", callback=checked_engine)
    ] = "auto",
    plot: PlotOption = None,
    json_output: JsonOption = False,
    json_file: JsonFileOption = None,
) -> None:
    """Measure bandwidth by request size and depth: the roofline."""
    from pathlib import Path

    from fxload._errors import StorageError
    from fxload.bench.machine import describe_machine
    from fxload.bench.report import storage_report
    from fxload.bench.storage import grid
    from fxload.cli.bench_tables import draw_storage
    from fxload.cli.units import parse_size
    from fxload.host_memory import read_host_memory

    output = Output(json_output, _checked(json_file))
    picture = _checked_plot(plot)
    sizes = [parse_size(text, "--requests") for text in _names(requests)]
    memory_bytes = read_host_memory().available_bytes
    cells = grid(sizes, _numbers(depths, "--depths"), memory_bytes)
    options: dict[str, object] = {
        "rounds": rounds,
        "cell_seconds": cell_s,
        "engine": engine,
        "made_bytes": None if make is None else parse_size(make, "--make"),
        "left_out_for_memory": [
            [size, depth]
            for size in sizes
            for depth in _numbers(depths, "--depths")
            if size * depth > memory_bytes // 4
        ],
    }
    with _files(Path(path), make) as paths:
        results = _sweep(output, paths, cells, rounds, engine, cell_s)
        size_bytes = sum(Path(each).stat().st_size for each in paths)
        machine = describe_machine(paths)
    report: Any = storage_report(path, paths, size_bytes, results, machine, options)
    if picture is not None:
        from fxload.bench.plot import plot_storage

        plot_storage(report, picture)
        output.screen.message(f"drew {picture}")
    if report["best"] is None:
        failures = [failure for result in results for failure in result.failures]
        reason = failures[-1].reason if failures else "nothing was read"
        error = StorageError(f"no cell gave a figure: {reason}", path=path)
        output.emit_failed(report, lambda screen: draw_storage(screen, report), error)
    output.emit(report, lambda screen: draw_storage(screen, report))


def _files(path: Path, make: str | None) -> Any:
    from contextlib import nullcontext

    from fxload.bench.files import made_files, readable_files
    from fxload.cli.units import parse_size

    if make is not None:
        return made_files(path, parse_size(make, "--make"))
    return nullcontext(readable_files(path))


def _sweep(
    output: Output, paths: list[str], cells: list[Cell], rounds: int, engine: str, cell_s: float
) -> list[CellResult]:
    from fxload.bench.storage import sweep

    with output.screen.steps("bench storage") as step:
        return sweep(
            paths,
            cells,
            rounds=rounds,
            engine=engine,
            limit_s=cell_s,
            progress=lambda cell, done, total: step(cell.label, done, total),
        )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str, option: str) -> list[int]:
    from fxload._errors import UsageError

    try:
        return [int(name) for name in _names(text)]
    except ValueError as error:
        raise UsageError(f"{option} got {text!r}", hint="write numbers: 1,16,64") from error


def _checked(json_file: str | None) -> Path | None:
    """Refuse a file that cannot be written before anything is measured."""
    from pathlib import Path

    from fxload._errors import UsageError

    if json_file is None:
        return None
    file = Path(json_file)
    if not file.absolute().parent.is_dir():
        raise UsageError("no such folder for the JSON file", path=str(file.absolute().parent))
    return file


def _checked_plot(plot: str | None) -> Path | None:
    from pathlib import Path

    if plot is None:
        return None
    from fxload.bench.plot import check_plot

    check_plot(Path(plot))
    return Path(plot)
