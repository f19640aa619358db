"""``fxload inspect MODEL``."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from fxload.cli.output import JsonOption, Output  # noqa: TC001 - typer reads it

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from fxload.checkpoint.header import TensorInfo
    from fxload.checkpoint.identity import DigestMemory
    from fxload.cli.console import Screen
    from fxload.cli.model import OpenModel

__all__ = ["inspect"]

_WAIT_S = 0.1


class SortKey(str, Enum):
    """Columns that the tensors can be sorted by."""

    FILE = "file"
    NAME = "name"
    DTYPE = "dtype"
    SIZE = "size"
    SHAPE = "shape"


def inspect(
    model: Annotated[str, typer.Argument(help="A folder, a file, fx://… or a cached name.")],
    digest: Annotated[
        bool, typer.Option("--digest", help="Read every byte and compute the fingerprint.")
    ] = False,
    sort: Annotated[SortKey, typer.Option(help="Order of the tensors.")] = SortKey.FILE,
    limit: Annotated[int, typer.Option(help="Tensors shown; 0 shows all.", min=0)] = 40,
    json_output: JsonOption = False,
) -> None:
    """Show a model's shards, tensors, dtypes, bytes and fingerprint."""
    from fxload.checkpoint.identity import DigestMemory
    from fxload.checkpoint.shards import find_shards
    from fxload.cli.model import open_model
    from fxload.config import load_config
    from fxload.sources import resolve_model

    output = Output(json_output)
    config = load_config()
    shards = find_shards(resolve_model(model, config))
    with open_model(shards) as opened:
        memory = DigestMemory(config.state_dir)
        digests = [memory.lookup(info) for info in opened.infos]
        if digest and not all(digests):
            digests = list(_compute(opened, memory, output))
        data = _describe(opened, digests)

    def draw(screen: Screen) -> None:
        _draw(screen, data, sort, limit)

    output.emit(data, draw)


def _compute(opened: OpenModel, memory: DigestMemory, output: Output) -> list[str]:
    """Stream every byte through the core's digest, and remember the result."""
    from fxload import _native

    total = sum(info.size_bytes for info in opened.infos)
    transfer = _native.Transfer(opened.files, digest=True)
    try:
        with output.screen.progress("digest") as update:
            while not transfer.wait(_WAIT_S):
                update(int(transfer.stats()["done_bytes"]), total)
            update(total, total)
        digests = transfer.digests()
    finally:
        transfer.close()
    opened.files.check_unchanged()
    for info, each in zip(opened.infos, digests, strict=True):
        memory.remember(info, each)
    return digests


def _describe(opened: OpenModel, digests: Sequence[str | None]) -> dict[str, Any]:
    from fxload.checkpoint.identity import model_digest

    shards, infos, handed_out = opened.shards, opened.infos, opened.tensors
    known = [
        (name, info.size_bytes, each)
        for name, info, each in zip(shards.files, infos, digests, strict=True)
        if each is not None
    ]
    tensors = [
        {
            "name": tensor.name,
            "file": name,
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "size_bytes": tensor.end - tensor.begin,
            "offset": tensor.begin,
        }
        for name, some in zip(shards.files, handed_out, strict=True)
        for tensor in some
    ]
    return {
        "path": str(shards.root),
        "index": shards.index,
        "ignored_files": list(shards.ignored),
        "fingerprint": model_digest(known) if len(known) == len(infos) else None,
        "size_bytes": sum(info.size_bytes for info in infos),
        "payload_bytes": opened.payload_bytes,
        "shards": [
            {
                "file": name,
                "size_bytes": info.size_bytes,
                "header_bytes": header.length_bytes,
                "tensors": len(some),
                "file_system": info.file_system,
                "digest": each,
                "metadata": dict(header.metadata),
            }
            for name, info, header, some, each in zip(
                shards.files, infos, opened.headers, handed_out, digests, strict=True
            )
        ],
        "dtypes": _by_dtype(handed_out),
        "tensors": tensors,
    }


def _by_dtype(handed_out: Sequence[Sequence[TensorInfo]]) -> list[dict[str, object]]:
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for some in handed_out:
        for tensor in some:
            counts[tensor.dtype] = counts.get(tensor.dtype, 0) + 1
            sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.end - tensor.begin
    return [
        {"dtype": dtype, "tensors": counts[dtype], "size_bytes": sizes[dtype]}
        for dtype in sorted(sizes, key=lambda each: (-sizes[each], each))
    ]


def _draw(screen: Screen, data: Mapping[str, Any], sort: SortKey, limit: int) -> None:
    from fxload.cli.console import Column
    from fxload.cli.units import format_bytes

    screen.line(f"model        {data['path']}")
    fingerprint = data["fingerprint"] or "not known yet: compute it with --digest"
    screen.line(f"fingerprint  {fingerprint}")
    tensors, shards = data["tensors"], data["shards"]
    screen.line(
        f"contents     {len(tensors)} tensors, {format_bytes(data['payload_bytes'])}, "
        f"in {len(shards)} files of {format_bytes(data['size_bytes'])}"
    )
    if data["ignored_files"]:
        screen.line(f"left out     {', '.join(data['ignored_files'])}")
    screen.line()
    screen.table(
        [Column("dtype"), Column("tensors", right=True), Column("bytes", right=True)],
        [
            [row["dtype"], str(row["tensors"]), format_bytes(row["size_bytes"])]
            for row in data["dtypes"]
        ],
    )
    screen.line()
    screen.table(
        [
            Column("shard"),
            Column("tensors", right=True),
            Column("bytes", right=True),
            Column("header", right=True),
            Column("on"),
            Column("digest"),
        ],
        [
            [
                row["file"],
                str(row["tensors"]),
                format_bytes(row["size_bytes"]),
                format_bytes(row["header_bytes"]),
                row["file_system"],
                row["digest"] or "-",
            ]
            for row in shards
        ],
    )
    screen.line()
    _draw_tensors(screen, tensors, sort, limit)


def _draw_tensors(
    screen: Screen, tensors: Sequence[Mapping[str, Any]], sort: SortKey, limit: int
) -> None:
    from fxload.cli.console import Column
    from fxload.cli.units import format_bytes

    ordered = list(tensors)
    if sort is SortKey.SIZE:
        ordered.sort(key=lambda tensor: (-tensor["size_bytes"], tensor["name"]))
    elif sort is not SortKey.FILE:
        ordered.sort(key=lambda tensor: (tensor[sort.value], tensor["name"]))
    shown = ordered[:limit] if limit else ordered
    screen.table(
        [
            Column("tensor"),
            Column("dtype"),
            Column("shape"),
            Column("bytes", right=True),
            Column("shard"),
        ],
        [
            [
                tensor["name"],
                tensor["dtype"],
                "x".join(map(str, tensor["shape"])) or "scalar",
                format_bytes(tensor["size_bytes"]),
                tensor["file"],
            ]
            for tensor in shown
        ],
    )
    if len(shown) < len(ordered):
        screen.line(f"… and {len(ordered) - len(shown)} more; --limit 0 shows all")
