"""Random checkpoints, loaded to a device and compared with the reference, byte for byte.

Runs in this process on the host's platform, and in a child on a stand-in runtime.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fxload.checkpoint import Selection
from fxload.checkpoint.dtypes import DTYPES, storage_shape
from fxload.devices.resolve import raw_target, resolve_device
from fxload.load_options import LoadOptions
from fxload.loader import open_target
from tests.devices.loading import MIB, reference_bytes
from tests.loader.raw import write_raw
from tests.support.checkpoints import evict

if TYPE_CHECKING:
    from fxload.devices.resolve import Target

LOADABLE = [name for name, dtype in DTYPES.items() if dtype.torch_name]
_SHAPES = [[3, 8], [700, 1024], [], [0, 4], [2], [64, 64], [100, 250], [129, 1000]]

Shard = tuple[list[tuple[str, str, list[int]]], int]


@st.composite
def checkpoints(draw: st.DrawFn) -> list[Shard]:
    """Up to three shards of tensors of every type; each with a header padded or not."""
    made = []
    for shard in range(draw(st.integers(1, 3))):
        tensors = []
        for number in range(draw(st.sampled_from([3, 0, 1, 6, 12]))):
            dtype = draw(st.sampled_from(LOADABLE))
            shape = list(draw(st.sampled_from(_SHAPES)))
            if DTYPES[dtype].bits < 8:
                shape.append(2)
            tensors.append((f"{draw(st.sampled_from('abc'))}.{shard}.{number}", dtype, shape))
        made.append((tensors, draw(st.sampled_from([1, 8, 512]))))
    return made


def options() -> st.SearchStrategy[LoadOptions]:
    """Filters, depths from 1 to 512, both engines, budgets from none to far too little."""
    return st.builds(
        lambda chosen, depth, engine, budget, digest: LoadOptions(
            selection=chosen,
            depth=depth,
            engine=engine,
            device_memory_budget=budget,
            ring_bytes=1,
            digest=digest and chosen.everything,
        ),
        st.sampled_from(
            [
                Selection(),
                Selection(include=("a.*",)),
                Selection(exclude=("b.*", "c.1.*")),
                Selection(predicate=lambda name: name.endswith(("1", "3"))),
            ]
        ),
        st.sampled_from([1, 2, 3, 17, 64, 512]),
        st.sampled_from(["io_uring", "pread"]),
        st.sampled_from([None, 1 * MIB, 24 * MIB]),
        st.booleans(),
    )


def check_random_loads(device: str, *, raw: bool, examples: int, align: int) -> None:
    """Load random checkpoints; `align` is where every tensor must start on the device."""
    target = raw_target(device) if raw else resolve_device(device)
    assert target is not None

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(checkpoints(), options(), st.booleans())
    def loads(made: list[Shard], asked: LoadOptions, cold: bool) -> None:
        with tempfile.TemporaryDirectory() as folder:
            _check(Path(folder), made, target, asked, align, cold=cold)

    loads()


def _check(
    folder: Path, made: list[Shard], target: Target, asked: LoadOptions, align: int, *, cold: bool
) -> None:
    paths = []
    for number, (tensors, pad_to) in enumerate(made):
        paths.append(folder / f"part-{number}.safetensors")
        write_raw(paths[-1], tensors, pad_to=pad_to)
    if cold:
        evict(paths)
    with closing(open_target(folder, target, asked)) as opened:
        loaded: Any = dict(opened)
        report = opened.report()
    wanted = asked.selection.wants
    expected = {name: data for name, data in reference_bytes(paths).items() if wanted(name)}
    assert loaded.keys() == expected.keys()
    kinds = {name: (dtype, shape) for tensors, _ in made for name, dtype, shape in tensors}
    for name, tensor in loaded.items():
        dtype, shape = kinds[name]
        assert bytes_of(tensor) == expected[name], name
        assert tensor.dtype == getattr(torch, DTYPES[dtype].torch_name or "")
        assert tuple(tensor.shape) == storage_shape(dtype, shape)
        assert address_of(tensor) % align == 0
        assert tensor.nbytes == len(expected[name])
    assert report.wanted_bytes == sum(map(len, expected.values()))
    assert report.realigned_bytes == report.stats["moved_bytes"]


def bytes_of(tensor: Any) -> bytes:
    """The content of a raw tensor, or of one of torch's, on any device."""
    if not isinstance(tensor, torch.Tensor):
        content: bytes = tensor.to_bytes()
        return content
    here = tensor.cpu().reshape(-1).view(torch.uint8)
    return bytes(here.numpy())


def address_of(tensor: Any) -> int:
    """Where it begins on its device."""
    return int(tensor.data_ptr() if isinstance(tensor, torch.Tensor) else tensor.address)
