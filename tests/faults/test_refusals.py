"""What the kernel, the limits and the permissions refuse."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.checkpoints import evict
from tests.support.isolation import NOBODY
from tests.support.mounts import squashfs_overlay_mount

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import CheckpointFactory, MountTable
    from tests.support.isolation import Isolation

# Loads sys.argv[2:] with the engine sys.argv[1], compares with safetensors, prints the reports.
LOAD = """
import json, pathlib, sys, torch, fxload
from safetensors.torch import load_file
for model in sys.argv[2:]:
    with fxload.open_checkpoint(model, engine=sys.argv[1]) as checkpoint:
        loaded = dict(checkpoint)
        report = checkpoint.report()
    expected = {}
    for file in pathlib.Path(model).glob("*.safetensors"):
        expected |= load_file(file)
    assert loaded.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(loaded[name].view(torch.uint8), tensor.view(torch.uint8)), name
    print(json.dumps({"engine": report.engine, "stats": report.stats}, default=str))
"""

# Prints the error that loading sys.argv[1] with the engine sys.argv[2] gives.
FAIL = """
import json, sys, fxload
try:
    fxload.load_checkpoint(sys.argv[1], engine=sys.argv[2])
except fxload.FxloadError as error:
    print(json.dumps({"type": type(error).__name__, "path": error.path, "text": str(error),
                      "errno": error.os_errno, "hint": error.hint}))
"""


@pytest.fixture
def model(public_folder: Path, make_checkpoint: CheckpointFactory) -> Path:
    """A model on disk of which the page cache holds nothing."""
    written = make_checkpoint(public_folder / "model", tensor_bytes=1 << 20)
    evict(written.files)
    return written.path


# With io_uring_enter refused alone a ring can be had, and only using it tells.
@pytest.mark.parametrize("refuse", ["io_uring", "io_uring_enosys", "io_uring_enter"])
def test_without_io_uring_pread_takes_over(isolation: Isolation, model: Path, refuse: str) -> None:
    report = json.loads(isolation.but(refuse=[refuse]).python(LOAD, "auto", model).stdout)
    assert report["engine"] == "pread"
    assert "io_uring" in report["stats"]["engine_reason"]


def test_with_nothing_newer_than_linux_4_19(
    refuse_syscalls: Isolation, mount_table: MountTable, make_checkpoint: CheckpointFactory
) -> None:
    folders = [
        mount_table.fresh_folder(kind) / "model" for kind in ("ext4", "tmpfs", "overlay", "fuse")
    ]
    for folder in folders:
        make_checkpoint(folder)
    printed = refuse_syscalls.python(LOAD, "auto", *folders).stdout.splitlines()
    assert [json.loads(line)["engine"] for line in printed] == ["pread"] * 4


def test_an_engine_that_was_asked_for_is_not_replaced(isolation: Isolation, model: Path) -> None:
    refused = isolation.but(refuse=["io_uring"])
    error = json.loads(refused.python(FAIL, model, "io_uring").stdout)
    assert error["type"] == "UnsupportedError"
    assert "io_uring" in error["text"]


def test_no_memory_may_be_locked(unprivileged: Isolation, model: Path) -> None:
    unprivileged.python(LOAD, "auto", model)


def test_an_unreadable_shard_is_named(unprivileged: Isolation, model: Path) -> None:
    shard = model / "model-00002-of-00003.safetensors"
    shard.chmod(0)
    error = json.loads(unprivileged.python(FAIL, model, "auto").stdout)
    assert error["type"] == "StorageError"
    assert error["path"] == str(shard)
    assert error["errno"] == 13
    assert error["hint"]
    assert "\n" not in error["text"]


def test_an_unreadable_folder_is_named(unprivileged: Isolation, model: Path) -> None:
    model.chmod(0o700)
    error = json.loads(unprivileged.python(FAIL, model, "auto").stdout)
    assert str(model) in error["text"]
    assert "ermission" in error["text"]


def test_a_file_of_another_user_loads(unprivileged: Isolation, model: Path) -> None:
    # Its residency cannot be known, so it is taken to be cold.
    assert model.stat().st_uid != NOBODY
    unprivileged.python(LOAD, "auto", model)


def test_overlay_on_squashfs_loads(
    tmp_path: Path,
    session_folder: Path,
    mount_table: MountTable,
    isolation: Isolation,
    make_checkpoint: CheckpointFactory,
) -> None:
    make_checkpoint(tmp_path / "content" / "model")
    upper = mount_table.fresh_folder("ext4")
    with squashfs_overlay_mount(tmp_path / "content", upper, tmp_path) as mount:
        isolation.python(LOAD, "auto", mount / "model")


@pytest.mark.parametrize("spare_mib", [1, 16, 64])
def test_too_little_address_space(isolation: Isolation, model: Path, spare_mib: int) -> None:
    """A load that cannot get its memory says so, and works once there is enough."""
    code = """
import pathlib, resource, sys, fxload, torch
model, spare = sys.argv[1], int(sys.argv[2]) << 20
fxload.load_checkpoint(model)  # imports and first allocations are not what is limited here
held = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + spare, resource.RLIM_INFINITY))
try:
    tensors = [fxload.load_checkpoint(model) for _ in range(16)]
except fxload.OutOfMemoryError as error:
    assert "\\n" not in str(error), error
    print("refused")
tensors = None
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(len(fxload.load_checkpoint(model)))
"""
    done = isolation.python(code, model, str(spare_mib))
    assert done.stdout.split() == ["refused", "15"]


@pytest.mark.parametrize(
    ("limit", "advice"), [("RLIMIT_NOFILE", "ulimit -n"), ("RLIMIT_FSIZE", "ulimit -f")]
)
def test_a_header_that_limits_leave_no_room_to_judge(
    isolation: Isolation, tmp_path: Path, limit: str, advice: str
) -> None:
    """What the reference needs to look at a header is refused: a limit, not a broken file."""
    code = """
import os, resource, sys
from fxload._errors import FxloadError
from fxload.checkpoint.header import parse_header
import safetensors, torch
header = b'{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
raw = len(header).to_bytes(8, "little") + header
which = getattr(resource, sys.argv[1])
if sys.argv[1] == "RLIMIT_NOFILE":
    taken = []
    resource.setrlimit(which, (64, resource.getrlimit(which)[1]))
    while True:
        try:
            taken.append(os.dup(0))
        except OSError:
            break
else:
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(which, (8, resource.getrlimit(which)[1]))
try:
    # Wrong by one byte, so that the reference is asked what is wrong.
    parse_header(raw, len(raw) + 2, "the-file")
except FxloadError as error:
    print(type(error).__name__, error)
"""
    told = isolation.python(code, limit).stdout
    assert told.startswith("StorageError the-file: cannot judge the header")
    assert advice in told
