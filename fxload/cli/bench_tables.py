"""The benchmarks' reports as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxload.cli.console import Column
from fxload.cli.units import format_bytes, format_request, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from fxload.cli.console import Screen

__all__ = ["draw_load", "draw_storage"]


def draw_load(screen: Screen, report: Mapping[str, Any]) -> None:
    """One row a loader: medians, spread of the speed, ratios to the first one."""
    _draw_machine(screen, report["machine"])
    model, options, limit = report["model"], report["options"], report["limit"]
    rounds = "1 round" if options["rounds"] == 1 else f"{options['rounds']} interleaved rounds"
    state = "cold" if options["cold"] else "in the page cache"
    screen.line(
        f"model    {format_bytes(model['payload_bytes'])} in {model['files']} files, {state}, "
        f"{rounds}: {model['path']}"
    )
    if options["device"] != "cpu":
        memory = "its runtime's own memory" if options["raw"] else "torch's memory"
        screen.line(f"device   {options['device']}, {memory}")
    if limit["gb_per_s"]:
        rate = limit["gb_per_s"]
        screen.line(
            f"limit    {rate['median']:.2f} GB/s ({rate['min']:.2f}-{rate['max']:.2f}): "
            f"{limit['what']}"
        )
    screen.line()
    first = report["compared_to"]
    columns = ("GB/s", "min-max", "of limit", "CPU s/GB", "peak + payload", "first tensor")
    screen.table(
        [
            Column("loader"),
            *(Column(title, right=True) for title in columns),
            Column(f"{first} is", right=True),
            Column("rounds", right=True),
            Column("read", right=True),
        ],
        [_load_row(loader, first) for loader in report["loaders"]],
    )
    screen.line()
    for note in _load_notes(report):
        screen.line(note)


def _load_row(loader: Mapping[str, Any], first: str) -> list[str]:
    name = loader["name"] if loader["owned"] else f"{loader['name']} (not owned)"
    rate = loader["gb_per_s"]
    if rate is None:
        return [name, loader["status"], *["-"] * 8]
    ratio = loader["speed_ratio_of_first"]
    return [
        name,
        f"{rate['median']:.2f}",
        f"{rate['min']:.2f}-{rate['max']:.2f}",
        _median(loader["share_of_limit"], lambda value: f"{value:.1%}"),
        _median(loader["cpu_s_per_gb"], lambda value: f"{value:.3f}"),
        _median(loader["peak_over_payload_bytes"], format_bytes),
        _median(loader["first_tensor_s"], format_seconds),
        "-" if name == first else _median(ratio, lambda value: f"{value:.2f} x"),
        str(rate["count"]),
        _median(loader["physical_bytes"], format_bytes),
    ]


def _median(figures: Mapping[str, float] | None, text: Callable[[float], str]) -> str:
    return "-" if figures is None else text(figures["median"])


def _load_notes(report: Mapping[str, Any]) -> list[str]:
    notes = []
    loaders = report["loaders"]
    if report["options"]["prefault"]:
        notes.append(
            "fxload's destination was touched beforehand (--prefault); "
            "the others have no such option and allocate fresh memory"
        )
    if report["options"]["cold"]:
        methods = sorted({method for loader in loaders for method in loader["cold_proof"]})
        notes.append(f"cold reads proven by: {', '.join(methods) or 'nothing'}")
    notes += [f"{loader['name']}: {loader['about']}" for loader in loaders if loader["gb_per_s"]]
    notes += [
        f"{loader['name']}: {_pipeline_note(loader['pipeline'])}"
        for loader in loaders
        if loader["pipeline"]
    ]
    for loader in loaders:
        if loader["reason"]:
            notes.append(f"{loader['name']}: {loader['status']}: {loader['reason']}")
        elif loader["discarded"]:
            last = loader["discarded"][-1]
            count = len(loader["discarded"])
            notes.append(
                f"{loader['name']}: {count} run{'s' if count > 1 else ''} discarded, "
                f"the last one {last['kind']}: {last['reason']}"
            )
    return notes


def _pipeline_note(pipeline: Mapping[str, Any]) -> str:
    pinned = "pinned" if pipeline["pinned"] else "not pinned"
    return (
        f"reads {_median(pipeline['read_s'], format_seconds)}, "
        f"copies {_median(pipeline['copy_s'], format_seconds)}, "
        f"both at once {_median(pipeline['overlap_s'], format_seconds)}; "
        f"{format_bytes(pipeline['realigned_bytes'])} realigned; "
        f"ring of {format_bytes(pipeline['ring_bytes'])}, {pinned}"
    )


def draw_storage(screen: Screen, report: Mapping[str, Any]) -> None:
    """GB/s, a row for each request size and a column for each depth, and the best."""
    _draw_machine(screen, report["machine"])
    screen.line(
        f"read     {format_bytes(report['size_bytes'])} in {report['files']} files, cold: "
        f"{report['path']}"
    )
    screen.line()
    cells = {(cell["request_bytes"], cell["depth"]): cell for cell in report["cells"]}
    requests = sorted({request for request, _ in cells})
    depths = sorted({depth for _, depth in cells})
    screen.table(
        [Column("GB/s"), *(Column(f"{depth} in flight", right=True) for depth in depths)],
        [
            [
                format_request(size),
                *(_rate(cells.get((size, depth))) for depth in depths),
            ]
            for size in requests
        ],
    )
    best = report["best"]
    if best is not None:
        methods = {sample["proof"]["method"] for sample in best["samples"]}
        screen.line()
        screen.line(
            f"best: {best['gb_per_s']:.2f} GB/s with {format_request(best['request_bytes'])} "
            f"x {best['depth']}, {best['cpu_s_per_gb']:.3f} CPU s/GB, "
            f"proven by {', '.join(sorted(methods))}"
        )
    for cell in report["cells"]:
        if cell["failures"]:
            last = cell["failures"][-1]
            screen.line(
                f"{format_request(cell['request_bytes'])} x {cell['depth']}: "
                f"{len(cell['failures'])} discarded: {last['reason']}"
            )


def _rate(cell: Mapping[str, Any] | None) -> str:
    return "-" if cell is None or not cell["samples"] else f"{cell['gb_per_s']:.2f}"


def _draw_machine(screen: Screen, machine: Mapping[str, Any]) -> None:
    screen.line(
        f"machine  {machine['cpu']}, {machine['cpus_usable']} processors, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, Linux {machine['kernel']}"
        f"{', virtual' if machine['virtual_machine'] else ''}, {machine['date']}"
    )
    for place in machine["storage"]:
        below = " > ".join(device.strip() for device in place["devices"])
        screen.line(
            f"storage  {place['file_system']} on {place['source']} at {place['mount_point']} "
            f"({below or place['no_devices_because']})"
        )
    versions = machine["versions"]
    screen.line("versions " + ", ".join(f"{name} {text}" for name, text in versions.items()))
