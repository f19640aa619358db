"""Plans carried out by the core on real files: what was planned is what arrives."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from fxload import _native
from fxload.checkpoint import FileShape, TensorInfo, plan_tensors, plan_whole_files

if TYPE_CHECKING:
    from pathlib import Path

    from fxload.checkpoint import ReadPlan

PAGE = 4096


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    paths = []
    for number, size in enumerate((3_000_001, 70_000, 1_048_576)):
        path = tmp_path / f"{number}.safetensors"
        path.write_bytes(random.Random(number).randbytes(size))
        paths.append(path)
    return paths


def check(plan: ReadPlan, paths: list[Path], tensors: list[list[TensorInfo]], engine: str) -> None:
    files = _native.FileSet([str(path) for path in paths])
    load = _native.Load(
        files, plan.packed(), plan.space_bytes, pool=_native.MemoryPool(), engine=engine
    )
    try:
        load.wait_past(plan.space_bytes, 30.0)
        for number, group in enumerate(tensors):
            content = paths[number].read_bytes()
            for tensor, where in zip(group, plan.placements(number, group), strict=True):
                assert (
                    load.read_bytes(where, tensor.size_bytes)
                    == (content[tensor.begin : tensor.end])
                )
    finally:
        load.close()
        files.close()


def shapes(paths: list[Path], align: int) -> list[FileShape]:
    return [FileShape(path.stat().st_size, align) for path in paths]


@pytest.mark.parametrize("engine", ["auto", "pread"])
@pytest.mark.parametrize("align", [1, 512, PAGE, 64 << 10])
@pytest.mark.parametrize("size", [4, 3584, 200_000])
def test_chosen_tensors_arrive(paths: list[Path], engine: str, align: int, size: int) -> None:
    tensors = [
        [
            TensorInfo(str(begin), "U8", (size,), begin, begin + size)
            for begin in range(104, file.size_bytes - size, size + 13 * size % 9000)
        ][:300]
        for file in shapes(paths, align)
    ]
    tensors[0].append(TensorInfo("last", "U8", (101,), 2_999_900, 3_000_001))
    plan = plan_tensors(shapes(paths, align), tensors)
    check(plan, paths, tensors, engine)


@pytest.mark.parametrize("engine", ["auto", "pread"])
@pytest.mark.parametrize("align", [1, 512, PAGE, 64 << 10])
def test_whole_files_arrive(paths: list[Path], engine: str, align: int) -> None:
    files = shapes(paths, align)
    tensors = [[TensorInfo("all", "U8", (), 0, file.size_bytes)] for file in files]
    check(plan_whole_files(files), paths, tensors, engine)
