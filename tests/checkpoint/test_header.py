from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from fxload._errors import CheckpointError, FxloadError, StorageError, UsageError
from fxload.checkpoint import TensorInfo, header_size, parse_header

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.isolation import Isolation

PATH = "some/model.safetensors"


def file_of(header: str | bytes, data_bytes: int) -> tuple[bytes, int]:
    """The start of a file with this header, and the size of the whole."""
    text = header.encode() if isinstance(header, str) else header
    raw = len(text).to_bytes(8, "little") + text
    return raw, len(raw) + data_bytes


def one(**changes: Any) -> str:
    """A header with one tensor, "a": F32 [2], and these fields changed (None: left out)."""
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}
    return json.dumps({"a": {key: value for key, value in entry.items() if value is not None}})


def two(first: list[int], second: list[int]) -> str:
    """A header with two U8 tensors at these offsets."""
    return json.dumps(
        {
            name: {"dtype": "U8", "shape": [max(0, end - begin)], "data_offsets": [begin, end]}
            for name, (begin, end) in (("a", first), ("b", second))
        }
    )


def reference_accepts(raw: bytes, size: int, folder: Path) -> bool:
    path = folder / "model.safetensors"
    path.write_bytes(raw[:size])
    os.truncate(path, size)
    try:
        with safe_open(path, "pt"):
            return True
    except SafetensorError:
        return False


ACCEPTED: dict[str, tuple[str, int]] = {
    "no tensor": ("{}", 0),
    "white space": ("\n\t {} \r\n", 0),
    "null metadata": ('{"__metadata__": null}', 0),
    "escaped metadata": ('{"\\u005f_metadata__": {"k": "v"}}', 0),
    "unknown field": (one(extra={"deep": [1, {"er": None}]}), 8),
    "empty name": ('{"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1),
    "scalar": (one(shape=[], data_offsets=[0, 4]), 4),
    "zero size": (one(shape=[0, 3], data_offsets=[0, 0]), 0),
    "zero size on a boundary": (
        '{"c":{"dtype":"U8","shape":[2],"data_offsets":[2,4]},'
        '"b":{"dtype":"I64","shape":[7,0],"data_offsets":[2,2]},'
        '"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}',
        4,
    ),
    "zero before a large factor": (one(shape=[0, 2**64 - 1, 3], data_offsets=[0, 0]), 0),
    "unpadded": ('{"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}} ', 8),
    "duplicate name": (one()[:-1] + "," + one(dtype="U8", data_offsets=[0, 2])[1:], 2),
    "entry as an array": ('{"a":["F32",[1],[0,4]]}', 4),
    "dtype as an object": (one(dtype={"F32": None}), 8),
    "not ASCII": ('{"Gewicht-ä-层":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1),
    "odd F4": (one(dtype="F4", shape=[2, 3], data_offsets=[0, 3]), 3),
    "F6": (one(dtype="F6_E2M3", shape=[4], data_offsets=[0, 3]), 3),
    "C64": (one(dtype="C64", shape=[1]), 8),
}

# What, header, data bytes, rule, offset counted from the start (None: of the data).
REJECTED: dict[str, tuple[str | bytes, int, str, int | None]] = {
    "empty header": ("", 0, "not-json", 8),
    "cut JSON": ('{"a"', 0, "not-json", 11),
    "text after": ("{}\n x", 0, "not-json", 12),
    "NUL padding": ("{}\0\0", 0, "not-json", 10),
    "NaN": ('{"a":NaN}', 0, "not-json", 13),
    "infinite": (one(extra="X").replace('"X"', "1e999"), 8, "not-json", None),
    "lone surrogate": ('{"\\ud800":1}', 0, "not-json", None),
    "too deep": (one(extra="X").replace('"X"', "[" * 200 + "]" * 200), 8, "not-json", None),
    "BOM": (b"\xef\xbb\xbf{}", 0, "not-json", 8),
    "not UTF-8": (b'{"\xff":1}', 0, "not-utf8", 10),
    "array": ("[]", 0, "wrong-type", 8),
    "null": ("null", 0, "wrong-type", None),
    "number for an entry": ('{"a":1}', 0, "wrong-type", 9),
    "short array for an entry": ('{"a":["F32",[1]]}', 4, "wrong-type", 9),
    "float in shape": (one(shape=[2.0]), 8, "wrong-type", 9),
    "minus zero": (one(data_offsets=[0, 0]).replace("[2]", "[-0]"), 0, "wrong-type", None),
    "negative": (one(shape=[-2]), 8, "wrong-type", 9),
    "more than 64 bits": (one(shape=[2**64]), 8, "wrong-type", 9),
    "three offsets": (one(data_offsets=[0, 8, 9]), 8, "wrong-type", 9),
    "one offset": (one(data_offsets=[0]), 8, "wrong-type", 9),
    "number as dtype": (one(dtype=11), 8, "wrong-type", 9),
    "dtype with a value": (one(dtype={"F32": {}}), 8, "wrong-type", 9),
    "metadata of numbers": ('{"__metadata__":{"a":1}}', 0, "wrong-type", 9),
    "unknown dtype": (one(dtype="F7"), 8, "unknown-dtype", 9),
    "dtype in lower case": (one(dtype="f32"), 8, "unknown-dtype", 9),
    "no dtype": (one(dtype=None), 8, "missing-field", 9),
    "no shape": (one(shape=None), 8, "missing-field", 9),
    "no offsets": (one(data_offsets=None), 8, "missing-field", 9),
    "dtype twice": (one().replace('"shape"', '"dtype":"F32","shape"'), 8, "duplicate-field", 9),
    "metadata twice": (
        '{"__metadata__":{},"__metadata__":{}}',
        0,
        "duplicate-field",
        None,
    ),
    "hole at the start": (two([1, 4], [4, 5]), 5, "hole", 0),
    "hole": (two([0, 4], [6, 8]), 8, "hole", 4),
    "overlap": (two([0, 4], [3, 8]), 8, "overlap", 3),
    "same place": (two([0, 4], [0, 4]), 4, "overlap", 0),
    "end before begin": (two([0, 4], [4, 3]), 4, "end-before-begin", 4),
    "overflow of the shape": (one(shape=[2**63, 2]), 8, "overflow", 0),
    "overflow of the bits": (one(dtype="U8", shape=[2**61]), 8, "overflow", 0),
    "overflow before a zero": (
        one(shape=[2**63, 2, 0], data_offsets=[0, 0]),
        0,
        "overflow",
        0,
    ),
    "half a byte": (one(dtype="F4", shape=[3], data_offsets=[0, 1]), 1, "sub-byte", 0),
    "three quarters": (one(dtype="F6_E3M2", shape=[3], data_offsets=[0, 2]), 2, "sub-byte", 0),
    "one too few": (one(shape=[3]), 8, "size-mismatch", 0),
    "one too many": (one(dtype="U8"), 8, "size-mismatch", 0),
    "file too short": (one(), 7, "truncated", 7),
    "file too long": (one(), 9, "trailing-bytes", 8),
    "data without tensors": ("{}", 1, "trailing-bytes", 0),
}
OF_THE_DATA = {"hole", "overlap", "end-before-begin", "overflow", "sub-byte", "size-mismatch"}
OF_THE_DATA |= {"truncated", "trailing-bytes"}


@pytest.mark.parametrize("what", ACCEPTED)
def test_what_the_reference_accepts_is_accepted(what: str, tmp_path: Path) -> None:
    raw, size = file_of(*ACCEPTED[what])
    assert reference_accepts(raw, size, tmp_path)
    header = parse_header(raw, size, PATH)
    assert header.length_bytes == len(raw)
    assert [tensor.begin for tensor in header.tensors[:1]] in ([], [len(raw)])
    assert sum(tensor.size_bytes for tensor in header.tensors) == size - len(raw)


@pytest.mark.parametrize("what", REJECTED)
def test_what_the_reference_rejects_is_rejected_with_rule_and_place(
    what: str, tmp_path: Path
) -> None:
    text, data_bytes, rule, offset = REJECTED[what]
    raw, size = file_of(text, data_bytes)
    assert not reference_accepts(raw, size, tmp_path)
    with pytest.raises(CheckpointError) as caught:
        parse_header(raw, size, PATH)
    error = caught.value
    assert (error.rule, error.path) == (rule, PATH)
    assert error.offset is not None
    if offset is not None:
        assert error.offset == offset + (len(raw) if rule in OF_THE_DATA else 0)
    assert f"[{rule}]" in str(error)
    assert "\n" not in str(error)


def test_the_culprit_is_named() -> None:
    tensors = {
        f"layer.{number}": {"dtype": "F32", "shape": [1], "data_offsets": [begin, begin + 4]}
        for number, begin in enumerate(range(0, 40, 4))
    }
    tensors["layer.7"]["dtype"] = "F7"
    raw, size = file_of(json.dumps(tensors), 40)
    with pytest.raises(CheckpointError, match=r"layer\.7") as caught:
        parse_header(raw, size, PATH)
    assert caught.value.offset == raw.index(b'"layer.7"')


def test_duplicate_names_last_wins() -> None:
    raw, size = file_of(*ACCEPTED["duplicate name"])
    (tensor,) = parse_header(raw, size, PATH).tensors
    assert tensor == TensorInfo("a", "U8", (2,), len(raw), len(raw) + 2)


def test_other_spellings_of_an_entry_mean_the_same() -> None:
    raw, size = file_of('{"a":["F32",[1],[0,4]],"b":[{"U8":null},[],[4,5]]}', 5)
    start = len(raw)
    assert parse_header(raw, size, PATH).tensors == [
        TensorInfo("a", "F32", (1,), start, start + 4),
        TensorInfo("b", "U8", (), start + 4, start + 5),
    ]


def test_metadata_is_kept() -> None:
    for without in ("{}", '{"__metadata__":null}', '{"__metadata__":{}}'):
        raw, size = file_of(without, 0)
        assert parse_header(raw, size, PATH).metadata == {}
    raw, size = file_of('{"__metadata__":{"format":"pt","note":"ä"}}', 0)
    assert parse_header(raw, size, PATH).metadata == {"format": "pt", "note": "ä"}


@pytest.mark.parametrize(
    ("first8", "size", "rule"),
    [
        (b"", 0, "too-short"),
        (b"\2\0\0\0\0\0\0", 7, "too-short"),
        ((100_000_001).to_bytes(8, "little"), 200_000_000, "header-too-large"),
        (b"\xff" * 8, 2**62, "header-too-large"),
        (b"\3\0\0\0\0\0\0\0", 10, "header-truncated"),
    ],
)
def test_the_length_is_judged_before_the_header_is_read(
    first8: bytes, size: int, rule: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError) as caught:
        header_size(first8, size, PATH)
    assert (caught.value.rule, caught.value.path) == (rule, PATH)
    assert caught.value.offset is not None
    if 0 < size < 2**40:
        assert not reference_accepts(first8, size, tmp_path)


def test_header_of_the_largest_size_passes_the_length_rule() -> None:
    assert header_size((100_000_000).to_bytes(8, "little"), 2**30, PATH) == 100_000_008


def test_fewer_bytes_than_the_header_is_a_mistake_of_the_caller() -> None:
    raw, size = file_of(one(), 8)
    with pytest.raises(UsageError):
        parse_header(raw[:-1], size, PATH)
    with pytest.raises(UsageError):
        header_size(raw[:7], size, PATH)


def test_more_bytes_than_the_header_do_not_matter() -> None:
    raw, size = file_of(one(), 8)
    assert parse_header(raw + b"12345678", size, PATH) == parse_header(raw, size, PATH)


def test_a_file_of_terabytes_is_judged_without_its_data() -> None:
    raw, size = file_of(one(dtype="U8", shape=[2**43], data_offsets=[0, 2**43]), 2**43)
    (tensor,) = parse_header(raw, size, PATH).tensors
    assert tensor.size_bytes == 2**43


def test_files_of_the_reference_are_read_back(tmp_path: Path) -> None:
    tensors = {
        "b.weight": torch.arange(12, dtype=torch.float32).reshape(3, 4),
        "a.bias": torch.arange(5, dtype=torch.int64),
        "c": torch.zeros(0, 3, dtype=torch.bfloat16),
        "d": torch.tensor(True),
    }
    path = tmp_path / "model.safetensors"
    save_file(tensors, path, {"format": "pt"})
    content = path.read_bytes()
    header = parse_header(
        content[: header_size(content[:8], len(content), PATH)], len(content), PATH
    )
    assert {tensor.name for tensor in header.tensors} == set(tensors)
    for tensor in header.tensors:
        expected = tensors[tensor.name]
        assert tensor.shape == tuple(expected.shape)
        bytes_of_it = expected.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        assert content[tensor.begin : tensor.end] == bytes_of_it


_JUDGE = """
import sys
from fxload._errors import FxloadError
from fxload.checkpoint import parse_header
for header, data in ((b'{"a":["F32",[1],[0,4]]}', 4), (b"{", 0)):
    raw = len(header).to_bytes(8, "little") + header
    try:
        print(parse_header(raw, len(raw) + data, "model").tensors[0].name)
    except FxloadError as error:
        print(error.rule or error)
"""


def test_a_host_that_refuses_files_in_memory_judges_as_well(isolation: Isolation) -> None:
    refused = isolation.but(refuse=("memfd",))
    result = refused.python(_JUDGE)
    assert result.stdout.split() == ["a", "not-json"], result.stderr


def test_a_limit_that_forbids_the_judgement_is_named() -> None:
    import resource

    raw, size = file_of(one(dtype="U8", shape=[1 << 30], data_offsets=[0, 1 << 30]), 1 << 30)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(StorageError, match="ulimit") as caught:
            parse_header(raw, size, PATH)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert isinstance(caught.value, FxloadError)
    assert caught.value.path == PATH


@pytest.mark.parametrize(
    "text",
    [
        b'{"__metadata__":{"a":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}}",
        b"[" * 1_000_000,
    ],
)
def test_deep_nesting_is_a_broken_rule(text: bytes) -> None:
    raw = len(text).to_bytes(8, "little") + text
    with pytest.raises(CheckpointError) as caught:
        parse_header(raw, len(raw), "file")
    assert caught.value.rule in ("wrong-type", "not-json")
