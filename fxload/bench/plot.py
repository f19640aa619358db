"""Pictures of results, from their JSON; the only importer of matplotlib.

The figures are drawn without pyplot: no state is shared and no display is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxload._errors import StorageError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["check_plot", "plot_load", "plot_storage"]

_FORMATS = (".svg", ".png", ".pdf")
_OWN, _PEER, _LIMIT = "#1f6f8b", "#b8b8b8", "#c0392b"


def check_plot(file: Path) -> None:
    """Refuse before hours of measuring what would fail after them.

    Raises UnsupportedError without matplotlib, UsageError for a name that says no format.
    """
    if file.suffix.lower() not in _FORMATS:
        raise UsageError(f"--plot {file.name} has no known format", hint="end it in .svg or .png")
    if not file.absolute().parent.is_dir():
        raise UsageError("no such folder for the picture", path=str(file.absolute().parent))
    _figure((1, 1))


def _figure(size: tuple[float, float]) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnsupportedError(
            "pictures need matplotlib, which is not installed",
            hint="pip install 'fxload[bench]', or leave --plot out",
        ) from error
    return Figure(figsize=size, layout="constrained")


def _save(figure: Any, file: Path) -> None:
    try:
        figure.savefig(file, dpi=150)
    except OSError as error:
        raise StorageError(
            f"cannot write the picture: {error.strerror}", path=str(file), os_errno=error.errno
        ) from error


def plot_load(report: Mapping[str, Any], file: Path) -> None:
    """Bars for each loader: speed with its limit, CPU time, memory beyond the payload."""
    loaders = [loader for loader in report["loaders"] if loader["gb_per_s"]]
    figure = _figure((11, 1.9 + 0.5 * max(len(loaders), 1)))
    speed, cpu, memory = figure.subplots(1, 3, sharey=True, width_ratios=(2, 1, 1))
    names = [_label(loader) for loader in loaders]
    colours = [_OWN if loader["name"] == "fxload" else _PEER for loader in loaders]
    panels = (
        (speed, "gb_per_s", 1.0, "GB/s"),
        (cpu, "cpu_s_per_gb", 1.0, "CPU seconds a GB"),
        (memory, "peak_over_payload_bytes", 1e-6, "MB above payload"),
    )
    for axes, key, scale, title in panels:
        figures = [loader[key] or {"median": 0, "min": 0, "max": 0} for loader in loaders]
        middle = [value["median"] * scale for value in figures]
        low = [(value["median"] - value["min"]) * scale for value in figures]
        high = [(value["max"] - value["median"]) * scale for value in figures]
        rows = range(len(loaders))
        axes.barh(rows, middle, color=colours, xerr=(low, high), ecolor="#444444", capsize=3)
        axes.set_xlabel(title)
        axes.set_yticks(rows, names)
        axes.spines[["top", "right"]].set_visible(False)
    for row, loader in enumerate(loaders):
        for sample in loader["samples"]:
            speed.plot(sample["gb_per_s"], row, ".", color="#222222", markersize=3)
    limit = report["limit"]["gb_per_s"]
    if limit:
        speed.axvline(limit["median"], color=_LIMIT, linestyle="--", linewidth=1.2)
        speed.set_title(f"limit {limit['median']:.2f} GB/s", color=_LIMIT, fontsize=9, loc="right")
    speed.invert_yaxis()
    model, options = report["model"], report["options"]
    state = "cold" if options["cold"] else "cached"
    figure.suptitle(
        f"{model['payload_bytes'] / 1e9:.2f} GB in {model['files']} files, {state}, "
        f"median, least and greatest of {options['rounds']} rounds",
        fontsize=10,
    )
    _save(figure, file)


def _label(loader: Mapping[str, Any]) -> str:
    name = str(loader["name"])
    if loader["destination"] != "fresh memory":
        name += " (prefault)"
    return name if loader["owned"] else f"{name} (not owned)"


def _size(size: int) -> str:
    return f"{size >> 10} KiB" if size % (1 << 20) else f"{size >> 20} MiB"


def plot_storage(report: Mapping[str, Any], file: Path) -> None:
    """Bandwidth as a heat map and as lines over the depth, one for each request size."""
    cells = [cell for cell in report["cells"] if cell["gb_per_s"]]
    requests = sorted({cell["request_bytes"] for cell in cells})
    depths = sorted({cell["depth"] for cell in cells})
    rates = {(cell["request_bytes"], cell["depth"]): cell["gb_per_s"] for cell in cells}
    figure = _figure((11, 4.2))
    heat, lines = figure.subplots(1, 2)
    missing = float("nan")
    values = [[rates.get((size, depth), missing) for depth in depths] for size in requests]
    if cells:
        image = heat.imshow(values, aspect="auto", origin="lower", cmap="viridis", vmin=0)
        figure.colorbar(image, ax=heat, label="GB/s")
    top = max(rates.values(), default=0.0)
    for row, size in enumerate(requests):
        for column, depth in enumerate(depths):
            rate = rates.get((size, depth))
            if rate is not None:
                shade = "black" if rate > 0.6 * top else "white"
                heat.text(column, row, f"{rate:.2f}", ha="center", va="center", color=shade)
    heat.set_xticks(range(len(depths)), [str(depth) for depth in depths])
    heat.set_yticks(range(len(requests)), [_size(size) for size in requests])
    heat.set_xlabel("requests in flight")
    heat.set_ylabel("request size")
    for size in requests:
        known = [(depth, rates[size, depth]) for depth in depths if (size, depth) in rates]
        lines.plot(*zip(*known, strict=True), marker="o", label=_size(size))
    lines.set_xscale("log", base=2)
    lines.set_xticks(depths, [str(depth) for depth in depths])
    lines.set_ylim(bottom=0)
    lines.set_xlabel("requests in flight")
    lines.set_ylabel("GB/s")
    lines.spines[["top", "right"]].set_visible(False)
    if requests:
        lines.legend(title="request size", fontsize=8)
    figure.suptitle(f"{report['size_bytes'] / 1e9:.2f} GB in {report['files']} files", fontsize=10)
    _save(figure, file)
