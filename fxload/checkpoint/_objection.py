"""Turns what the reference says against a header into the rule, the place and the culprit."""

from __future__ import annotations

import json
import re
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from fxload._errors import CheckpointError
from fxload.checkpoint.dtypes import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["explain"]

_AGAIN = "copy or download the file again"
_REWRITE = "write the checkpoint again; its writer broke the format"
_POSITION = re.compile(r" at line (\d+) column (\d+)$")
_SCHEMA_RULES = {
    "unknown variant": "unknown-dtype",
    "missing field": "missing-field",
    "duplicate field": "duplicate-field",
    "invalid type": "wrong-type",
    "invalid value": "wrong-type",
    "invalid length": "wrong-type",
}


class _Entry(NamedTuple):
    name: str
    dtype: str
    shape: list[int]
    begin: int
    end: int


def explain(objection: str, raw: bytes, file_size: int, path: str) -> CheckpointError:
    """The error for a header that the reference rejects.

    Args:
        objection: the reference's own words.
        raw: the header, its 8 bytes of length included.
        file_size: bytes of the whole file.
        path: what the error names.
    """
    if objection.startswith("invalid UTF-8"):
        return _not_utf8(objection, raw, path)
    if objection.startswith("invalid JSON in header: "):
        return _not_json(objection.partition(": ")[2], raw, path)
    if objection.startswith("invalid offset"):
        return _misplaced(objection, raw, path)
    if objection.startswith("overflow"):
        return _bad_size("overflow", objection, raw, path)
    if "subbytes" in objection:
        return _bad_size("sub-byte", "the elements do not fill whole bytes", raw, path)
    if objection.startswith("invalid shape, data type"):
        return _bad_size("size-mismatch", objection, raw, path)
    if objection.startswith("incomplete metadata"):
        return _uncovered(raw, file_size, path)
    return CheckpointError(objection, path=path, rule="rejected")


def _not_utf8(objection: str, raw: bytes, path: str) -> CheckpointError:
    offset = 8
    try:
        raw[8:].decode("utf-8")
    except UnicodeDecodeError as error:
        offset += error.start
    return CheckpointError(
        f"the header is not UTF-8: {objection.partition(': ')[2]}",
        path=path,
        offset=offset,
        rule="not-utf8",
        hint=_AGAIN,
    )


def _not_json(detail: str, raw: bytes, path: str) -> CheckpointError:
    place = _POSITION.search(detail)
    reason = detail[: place.start()] if place else detail
    offset = 8
    if place:
        lines = raw[8:].split(b"\n")[: int(place[1]) - 1]
        offset += sum(len(line) + 1 for line in lines) + max(int(place[2]) - 1, 0)
    rule = next((r for words, r in _SCHEMA_RULES.items() if reason.startswith(words)), "not-json")
    if rule == "not-json":
        return CheckpointError(
            f"the header is not JSON: {reason}", path=path, offset=offset, rule=rule, hint=_AGAIN
        )
    culprit = _first_malformed(raw)
    if culprit is not None:
        offset = _locate(raw, culprit) or offset
        reason += f" (in the entry {culprit!r})"
    return CheckpointError(reason, path=path, offset=offset, rule=rule, hint=_REWRITE)


def _misplaced(objection: str, raw: bytes, path: str) -> CheckpointError:
    expected = 0
    for entry in _entries(raw):
        if entry.end < entry.begin:
            rule, at = "end-before-begin", entry.begin
            reason = f"tensor {entry.name!r} ends at {entry.end}, before it begins at {entry.begin}"
        elif entry.begin != expected:
            rule, at = ("hole", expected) if entry.begin > expected else ("overlap", entry.begin)
            reason = (
                f"tensor {entry.name!r} begins at {entry.begin}, but the data before it ends at"
                f" {expected}"
            )
        else:
            expected = entry.end
            continue
        return CheckpointError(
            f"{reason} (counted from the end of the header)",
            path=path,
            offset=len(raw) + at,
            rule=rule,
            hint=_REWRITE,
        )
    return CheckpointError(objection, path=path, rule="rejected", hint=_REWRITE)


def _bad_size(rule: str, reason: str, raw: bytes, path: str) -> CheckpointError:
    for entry in _entries(raw):
        bits = prod(entry.shape) * DTYPES[entry.dtype].bits
        what = f"tensor {entry.name!r} of dtype {entry.dtype} and shape {entry.shape}"
        if rule == "overflow" and _overflows(entry):
            reason = f"{what} has more than 2**64 bits"
        elif rule == "sub-byte" and bits % 8:
            reason = f"{what} has {bits} bits, which fill no whole number of bytes"
        elif rule == "size-mismatch" and bits != 8 * (entry.end - entry.begin):
            reason = f"{what} needs {bits // 8} bytes, its offsets span {entry.end - entry.begin}"
        else:
            continue
        offset = len(raw) + entry.begin
        return CheckpointError(reason, path=path, offset=offset, rule=rule, hint=_REWRITE)
    return CheckpointError(reason, path=path, rule=rule, hint=_REWRITE)


def _overflows(entry: _Entry) -> bool:
    """Whether a product on the way leaves 64 bits; a later 0 does not heal it."""
    product = 1
    for factor in (*entry.shape, DTYPES[entry.dtype].bits):
        product *= factor
        if product >= 1 << 64:
            return True
    return False


def _uncovered(raw: bytes, file_size: int, path: str) -> CheckpointError:
    end = len(raw) + max((entry.end for entry in _entries(raw)), default=0)
    if end > file_size:
        return CheckpointError(
            f"the tensors end at byte {end}, the file at byte {file_size}:"
            f" {end - file_size} bytes are missing",
            path=path,
            offset=file_size,
            rule="truncated",
            hint=_AGAIN,
        )
    return CheckpointError(
        f"the tensors end at byte {end}, the file at byte {file_size}:"
        f" {file_size - end} bytes belong to no tensor",
        path=path,
        offset=end,
        rule="trailing-bytes",
        hint=_AGAIN,
    )


def _entries(raw: bytes) -> Iterator[_Entry]:
    """The tensors of a header that has passed the rules of JSON and types, by position."""
    found = []
    for name, entry in json.loads(raw[8:].decode("utf-8")).items():
        if name == "__metadata__":
            continue
        fields = entry
        if isinstance(entry, dict):
            fields = (entry["dtype"], entry["shape"], entry["data_offsets"])
        dtype, shape, (begin, end) = fields
        if not isinstance(dtype, str):
            (dtype,) = dtype
        found.append(_Entry(name, dtype, shape, begin, end))
    return iter(sorted(found, key=lambda entry: (entry.begin, entry.end)))


def _first_malformed(raw: bytes) -> str | None:
    """The first top-level name whose value has a wrong type, lacks a field or repeats one."""
    culprits: list[str] = []

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # Called for inner objects first, for the whole header last.
        known = [name for name, _ in pairs if name in _FIELDS]
        entry = dict(pairs)
        if len(known) != len(set(known)):
            entry[""] = _REPEATED
        culprits[:] = [name for name, value in pairs if _malformed(name, value)]
        return entry

    try:
        json.loads(raw[8:].decode("utf-8"), object_pairs_hook=collect)
    except (ValueError, RecursionError):
        # Python's JSON is stricter than the reference's in nothing that is known; without a
        # culprit the error still names rule and place.
        return None
    return culprits[0] if culprits else None


_FIELDS = ("dtype", "shape", "data_offsets")
_REPEATED = object()


def _malformed(name: str, value: object) -> bool:
    if name == "__metadata__":
        return value is not None and not (
            isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
        )
    if isinstance(value, dict):
        if value.get("") is _REPEATED or any(key not in value for key in _FIELDS):
            return True
        value = [value[key] for key in _FIELDS]
    if not isinstance(value, list) or len(value) != 3:
        return True
    dtype, shape, offsets = value
    if isinstance(dtype, dict) and list(dtype.values()) == [None]:
        (dtype,) = dtype
    return (
        not isinstance(dtype, str)
        or dtype not in DTYPES
        or not _counts(shape)
        or not _counts(offsets)
        or len(offsets) != 2
    )


def _counts(value: object) -> bool:
    return isinstance(value, list) and all(
        type(number) is int and 0 <= number < 1 << 64 for number in value
    )


def _locate(raw: bytes, name: str) -> int | None:
    """Where a top-level name stands in the header, as far as it is written plainly."""
    for ascii_only in (False, True):
        written = json.dumps(name, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
        found = re.search(re.escape(written) + rb"[ \t\r\n]*:", raw)
        if found:
            return found.start()
    return None
