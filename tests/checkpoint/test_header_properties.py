"""The verdict on generated and damaged headers is the reference's, on a real file."""

from __future__ import annotations

import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize, safe_open

from fxload._errors import CheckpointError
from fxload.checkpoint import DTYPES, Header, bits_of, header_size, parse_header
from fxload.checkpoint.header import MAX_HEADER_BYTES

RULES = {
    "too-short",
    "header-too-large",
    "header-truncated",
    "not-utf8",
    "not-json",
    "wrong-type",
    "unknown-dtype",
    "missing-field",
    "duplicate-field",
    "end-before-begin",
    "hole",
    "overlap",
    "overflow",
    "sub-byte",
    "size-mismatch",
    "truncated",
    "trailing-bytes",
}

dtypes = st.sampled_from(sorted(DTYPES))
dimensions = st.one_of(st.integers(0, 6), st.sampled_from([0, 1, 8, 16]))
names = st.one_of(
    st.sampled_from(["", "a", "model.layers.0.weight", "dtype", "__metadata", "ä", '"', "\\"]),
    st.text(st.characters(codec="utf-8"), max_size=6),
)
spaces = st.text(" \n\t\r", max_size=3)
junk = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.just(1.5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@st.composite
def entries(draw: st.DrawFn) -> list[tuple[str, dict[str, Any]]]:
    """Tensors that lie one after the other, with and without whole bytes; mixed order of names."""
    result = []
    end = 0
    for _ in range(draw(st.integers(0, 5))):
        dtype = draw(dtypes)
        shape = draw(st.lists(dimensions, max_size=3))
        bits = bits_of(dtype)
        for extent in shape:
            bits *= extent
        begin, end = end, end + bits // 8
        entry: dict[str, Any] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        if draw(st.integers(0, 9)) == 0:
            entry[draw(st.text(max_size=3))] = draw(junk)
        result.append((draw(names), entry))
    return draw(st.permutations(result))


@st.composite
def damaged_entry(draw: st.DrawFn, entry: dict[str, Any]) -> Any:
    entry = dict(entry)
    kind = draw(st.integers(0, 7))
    if kind == 0:
        begin, end = entry["data_offsets"]
        entry["data_offsets"] = [
            begin + draw(st.integers(-2, 2)),
            end + draw(st.integers(-2, 2)),
        ]
    elif kind == 1:
        entry["shape"] = draw(
            st.lists(st.sampled_from([0, 1, 2, 3, 2**31, 2**32, 2**61, 2**63, 2**64]), max_size=3)
        )
    elif kind == 2:
        entry["dtype"] = draw(dtypes)
    elif kind == 3:
        entry.pop(draw(st.sampled_from(sorted(entry))))
    elif kind == 4:
        entry[draw(st.sampled_from(["dtype", "shape", "data_offsets"]))] = draw(junk)
    elif kind == 5:
        return [entry.get(field) for field in ("dtype", "shape", "data_offsets")]
    elif kind == 6:
        entry["dtype"] = {entry["dtype"]: draw(st.sampled_from([None, {}, [], 1]))}
    else:
        return draw(junk)
    return entry


@st.composite
def files(draw: st.DrawFn) -> tuple[bytes, int]:
    """The start of a file and its size: good, or damaged in one or two ways."""
    pairs: list[tuple[str, Any]] = list(draw(entries()))
    data_bytes = sum(entry["data_offsets"][1] - entry["data_offsets"][0] for _, entry in pairs)
    damage = draw(st.sets(st.sampled_from(_DAMAGE), max_size=2))
    if "entry" in damage and pairs:
        position = draw(st.integers(0, len(pairs) - 1))
        pairs[position] = (pairs[position][0], draw(damaged_entry(pairs[position][1])))
    if "duplicate" in damage and pairs:
        pairs.insert(draw(st.integers(0, len(pairs))), draw(st.sampled_from(pairs)))
    if draw(st.booleans()):
        metadata = draw(st.one_of(st.dictionaries(names, names, max_size=2), junk))
        pairs.insert(draw(st.integers(0, len(pairs))), ("__metadata__", metadata))
    items = [f"{json.dumps(name)}{draw(spaces)}:{json.dumps(entry)}" for name, entry in pairs]
    text = draw(spaces) + "{" + ",".join(items) + "}" + draw(spaces)
    header = text.encode()
    if "byte" in damage and header:
        position = draw(st.integers(0, len(header) - 1))
        new = draw(st.sampled_from([*b'\0\xff\xc3\x80"{}[],:0-9.eE\\ x']))
        header = header[:position] + bytes([new]) + header[position + 1 :]
    if "insert" in damage:
        position = draw(st.integers(0, len(header)))
        header = header[:position] + draw(st.binary(max_size=2)) + header[position:]
    length = len(header)
    if "length" in damage:
        length = draw(
            st.sampled_from([0, max(0, length - 1), length + 1, MAX_HEADER_BYTES + 1, 2**64 - 1])
        )
    raw = length.to_bytes(8, "little") + header
    size = len(raw) + data_bytes
    if "size" in damage:
        size = max(0, size + draw(st.sampled_from([-9, -1, 1, 4096])))
    return raw, size


_DAMAGE = ["entry", "duplicate", "byte", "insert", "length", "size"]


def our_verdict(content: bytes, size: int) -> Header | CheckpointError:
    try:
        end = header_size(content[:8], size, "model")
        return parse_header(content[:end], size, "model")
    except CheckpointError as error:
        return error


def contents_by_reference(path: Path) -> list[tuple[str, dict[str, Any]]] | None:
    try:
        with safe_open(path, "pt"):
            return list(deserialize(path.read_bytes()))  # type: ignore[no-untyped-call]
    except SafetensorError:
        return None
    except (OSError, ValueError):
        assert path.stat().st_size == 0  # it cannot map an empty file
        return None


def check(raw: bytes, size: int) -> Header | CheckpointError:
    data = random.Random(size).randbytes(max(0, size - len(raw)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        path.write_bytes((raw + data)[:size])
        os.truncate(path, size)
        expected = contents_by_reference(path)
        content = path.read_bytes()
    verdict = our_verdict(content, size)
    if isinstance(verdict, CheckpointError):
        assert expected is None, f"the reference accepts, fxload says: {verdict}"
        assert verdict.rule in RULES
        assert verdict.path == "model"
        assert verdict.offset is not None
        assert 0 <= verdict.offset <= max(size, 2**64)
        assert "\n" not in str(verdict)
        return verdict
    assert expected is not None, "the reference rejects what fxload accepts"
    theirs = {name: (e["dtype"], tuple(e["shape"]), bytes(e["data"])) for name, e in expected}
    ours = {
        tensor.name: (tensor.dtype, tensor.shape, content[tensor.begin : tensor.end])
        for tensor in verdict.tensors
    }
    assert ours == theirs
    begins = [(tensor.begin, tensor.end) for tensor in verdict.tensors]
    assert begins == sorted(begins)
    return verdict


@settings(max_examples=300, deadline=None)
@given(files())
def test_generated_and_damaged_headers(file: tuple[bytes, int]) -> None:
    check(*file)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40), st.integers(0, 8))
def test_arbitrary_bytes(header: bytes, data_bytes: int) -> None:
    raw = len(header).to_bytes(8, "little") + header
    check(raw, len(raw) + data_bytes)


def test_the_generator_makes_both_good_and_bad_files() -> None:
    seen = set()

    @settings(max_examples=200, deadline=None, database=None, derandomize=True)
    @given(files())
    def look(file: tuple[bytes, int]) -> None:
        raw, size = file
        verdict = our_verdict(raw.ljust(size, b"\0")[:size], size)
        if isinstance(verdict, Header):
            seen.add(f"{min(len(verdict.tensors), 2)} tensors")
        else:
            seen.add(str(verdict.rule))

    look()
    assert {"0 tensors", "1 tensors", "2 tensors"} < seen
    assert len(seen & RULES) > 8, seen
