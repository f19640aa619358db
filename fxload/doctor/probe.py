"""What reading the files of a path really does: direct reads, alignment, residency, tuning."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any

from fxload._errors import FxloadError, ModelNotFoundError, StorageError
from fxload.doctor.findings import Finding, Level, Section

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fxload._native import FileInfo, FileSet

__all__ = ["check_reading", "files_to_probe"]

_MAX_PROBED = 64
_PROBE_BYTES = 1 << 20
_TIMEOUT_S = 30.0


def files_to_probe(path: Path) -> list[str]:
    """Shards of the folder, else its largest regular file; the file itself if it is one.

    Raises ModelNotFoundError, or StorageError for a folder that cannot be listed.
    """
    if path.is_file():
        return [str(path)]
    if not path.exists():
        raise ModelNotFoundError("no such file or folder", path=str(path), hint="check the name")
    try:
        files = [entry for entry in path.iterdir() if entry.is_file()]
    except OSError as error:
        raise StorageError(
            f"cannot be listed: {error.strerror}",
            path=str(path),
            hint="run as a user who may read it",
            os_errno=error.errno,
        ) from error
    shards = sorted(str(entry) for entry in files if entry.suffix == ".safetensors")
    if shards:
        return shards[:_MAX_PROBED]
    largest = max(files, key=lambda entry: entry.stat().st_size, default=None)
    return [] if largest is None or largest.stat().st_size == 0 else [str(largest)]


def check_reading(paths: Sequence[str], engine: str = "auto") -> Section:
    """Open, probe and read the files as a load would; says what was chosen and why.

    A file that cannot be read is a finding of level fail, not an exception.
    """
    from fxload import _native

    if not paths:
        missing = Finding(
            Level.WARN,
            "reading",
            "not tried",
            "the folder holds no file to read",
            "give the path of a model",
        )
        return Section("reading", (missing,), {"files": []})
    try:
        files = _native.FileSet(list(paths))
    except FxloadError as error:
        failed = Finding(Level.FAIL, "reading", "failed", str(error))
        return Section("reading", (failed,), {"files": [], "error": str(error)})
    try:
        infos = files.infos
        findings = _direct(infos)
        findings.append(_residency(infos))
        stats, tuned = _tuning(files, infos, engine)
        findings += tuned
    finally:
        files.close()
    data: dict[str, object] = {"files": [_as_json(info) for info in infos], "chosen": stats}
    return Section("reading", tuple(findings), data)


def _as_json(info: FileInfo) -> dict[str, object]:
    return {
        "path": info.path,
        "size_bytes": info.size_bytes,
        "file_system": info.file_system,
        "direct": info.direct,
        "direct_reason": info.direct_reason,
        "memory_align": info.memory_align,
        "offset_align": info.offset_align,
        "align_source": info.align_source,
    }


def _direct(infos: Sequence[FileInfo]) -> list[Finding]:
    """One finding for each distinct answer: shards may lie on different mounts."""
    answers: dict[tuple[object, ...], list[FileInfo]] = {}
    for info in infos:
        shape = (info.direct, info.direct_reason, info.offset_align, info.memory_align)
        answers.setdefault(shape, []).append(info)
    findings = []
    for same in answers.values():
        first = same[0]
        where = f"{len(same)} file{'s' if len(same) > 1 else ''} on {first.file_system}"
        if first.direct:
            value = f"works ({where})"
            align = f"offsets to {first.offset_align}, memory to {first.memory_align} bytes"
            source = "from statx" if first.align_source == "statx" else "assumed"
            reason = f"proven by a real read; alignment: {align}, {source}"
            findings.append(Finding(Level.OK, "direct reads", value, reason))
            continue
        in_memory = first.file_system in ("tmpfs", "ramfs")
        level = Level.INFO if in_memory else Level.WARN
        value = f"not used ({where})"
        reason = f"{first.direct_reason}; reads go through the page cache".lstrip("; ")
        findings.append(Finding(level, "direct reads", value, reason))
    return findings


def _residency(infos: Sequence[FileInfo]) -> Finding:
    from fxload import _native

    total = sum(info.size_bytes for info in infos)
    cached, unknown = 0, ""
    method = ""
    for info in infos:
        answer = _native.residency(info.path)
        cached += answer["bytes"]
        method = answer["method"]
        if not answer["provable"]:
            unknown = answer["reason"]
    if unknown:
        return Finding(
            Level.INFO, "page cache", "unknown, taken as cold", f"not provable: {unknown}"
        )
    share = cached / total if total else 0.0
    value = f"{share:.0%} of {total / 1e9:.2f} GB resident"
    return Finding(Level.OK, "page cache", value, f"from {method}; what is resident is copied")


def _tuning(
    files: FileSet, infos: Sequence[FileInfo], engine: str
) -> tuple[dict[str, object], list[Finding]]:
    """What the core chose for each kind of file, and by reading a little, which engine serves."""
    index = max(range(len(infos)), key=lambda each: infos[each].size_bytes)
    if infos[index].size_bytes == 0:
        return {}, []
    try:
        stats = _read_start(files, index, infos[index].size_bytes, engine)
    except FxloadError as error:
        return {}, [Finding(Level.FAIL, "reading", "failed", str(error))]
    tunings = {
        (tuning["request_bytes"], tuning["depth"], tuning["reason"])
        for tuning in map(files.tuning, range(len(infos)))
    }
    findings = [Finding(Level.OK, "reader", str(stats["engine"]), str(stats["engine_reason"]))]
    for request_bytes, depth, reason in sorted(tunings):
        value = f"requests of {request_bytes >> 10} KiB, up to {depth} in flight"
        findings.append(Finding(Level.OK, "chosen", value, reason))
    chosen = files.tuning(index)
    return {
        "engine": stats["engine"],
        "engine_reason": stats["engine_reason"],
        "request_bytes": chosen["request_bytes"],
        "depth": chosen["depth"],
        "reason": chosen["reason"],
    }, findings


def _read_start(files: FileSet, index: int, size: int, engine: str) -> dict[str, Any]:
    """Load the first bytes of a file as a load would, past the page cache."""
    from fxload import _native

    length = min(_PROBE_BYTES, size)
    page = os.sysconf("SC_PAGE_SIZE")
    load = _native.Load(
        files,
        struct.pack("=4Q", index, 0, length, 0),
        -(-length // page) * page,
        pool=_native.MemoryPool(),
        engine=engine,
        use_page_cache=False,
    )
    try:
        load.wait_past(length, _TIMEOUT_S)
        return load.stats()
    finally:
        load.close()
