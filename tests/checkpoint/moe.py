"""Headers of a large FP8 block-scaled mixture-of-experts checkpoint, without its data.

``python -m tests.checkpoint.moe`` reports what parsing and planning cost a tensor.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple

from fxload.checkpoint import FileShape, Selection, parse_header, plan_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fxload.checkpoint import Header, ReadPlan

BLOCK = 128


class HeaderOnly(NamedTuple):
    """The start of a file and the size of the whole."""

    raw: bytes
    size_bytes: int

    @property
    def shape(self) -> FileShape:
        return FileShape(self.size_bytes, 4096)

    def parse(self) -> Header:
        return parse_header(self.raw, self.size_bytes, "moe.safetensors")


def moe_headers(
    *,
    tensors: int = 100_000,
    shards: int = 16,
    experts: int = 256,
    order: Literal["name", "dtype"] = "name",
    hidden: int = 7168,
    intermediate: int = 2048,
) -> list[HeaderOnly]:
    """Shards of equally many tensors: F8_E4M3 weights, each with an F32 scale a block.

    Within a shard the data lie in the order of the names, or, as ``save_file`` writes them, of
    dtype and name: all scales first.
    """
    named = islice(_tensors(experts, hidden, intermediate), tensors)
    all_of_them = list(named)
    step = -(-tensors // shards)
    return [
        header_only(sorted(all_of_them[start : start + step], key=_KEYS[order]))
        for start in range(0, tensors, step)
    ]


def header_only(tensors: list[tuple[str, str, list[int]]]) -> HeaderOnly:
    """The file that holds these (name, dtype of 1 or 4 bytes, shape), one after the other."""
    table: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, dtype, shape in tensors:
        begin = end
        size = 4 if dtype == "F32" else 1
        for extent in shape:
            size *= extent
        end += size
        table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return HeaderOnly(len(text).to_bytes(8, "little") + text, 8 + len(text) + end)


def plan_of(files: list[HeaderOnly], selection: Selection) -> ReadPlan:
    """From headers to what is read."""
    wanted = [selection.pick(file.parse().tensors) for file in files]
    return plan_tensors([file.shape for file in files], wanted)


def _tensors(experts: int, hidden: int, intermediate: int) -> Iterator[tuple[str, str, list[int]]]:
    layer = 0
    while True:
        for expert in range(experts):
            for name in ("down_proj", "gate_proj", "up_proj"):
                rows, columns = intermediate, hidden
                if name == "down_proj":
                    rows, columns = columns, rows
                weight = f"model.layers.{layer}.mlp.experts.{expert}.{name}.weight"
                yield weight, "F8_E4M3", [rows, columns]
                yield weight + "_scale_inv", "F32", [-(-rows // BLOCK), -(-columns // BLOCK)]
        layer += 1


_KEYS = {
    "name": lambda tensor: tensor[0],
    "dtype": lambda tensor: (tensor[1] != "F32", tensor[0]),
}


def main() -> None:
    for order in ("name", "dtype"):
        for shards in (1, 16, 160):
            files = moe_headers(shards=shards, order=order)
            for label, selection in (
                ("everything", Selection()),
                ("1 expert in 8", Selection(include=("*.experts.[0-9]*[08].*",))),
            ):
                start = time.perf_counter()
                plan = plan_of(files, selection)
                plan.packed()
                elapsed = time.perf_counter() - start
                sys.stdout.write(
                    f"{order}-sorted, {shards} shards, {label}: {elapsed * 10:.2f} us a tensor,"
                    f" {plan!r}\n"
                )


if __name__ == "__main__":
    main()
