"""Fixtures that every test may use: storage of several kinds, isolation, small checkpoints."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.support import slowfs as slowfs_support
from tests.support.checkpoints import write_checkpoint
from tests.support.compiling import compile_c
from tests.support.isolation import NOBODY, OLD_KERNEL, SOURCE, Isolation
from tests.support.mounts import image_mount, overlay_mount, tmpfs_mount
from tests.support.needs import need_device, need_program, need_root
from tests.support.slowfs import mount_slowfs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.checkpoints import Checkpoint
    from tests.support.slowfs import SlowFs

# Read when huggingface_hub is imported: no test may reach for the network.
os.environ["HF_HUB_OFFLINE"] = "1"

MOUNT_KINDS = ("ext4", "xfs", "tmpfs", "overlay", "fuse")


class SlowFsFactory(Protocol):
    def __call__(
        self,
        root: Path | None = None,
        *,
        latency_us: int = 0,
        mb_per_s: float = 0,
        meta_us: int = 0,
        attr_s: float = 1.0,
        keep_cache: bool = True,
    ) -> SlowFs: ...


class CheckpointFactory(Protocol):
    def __call__(
        self,
        folder: Path,
        *,
        shards: int = 3,
        tensors: int = 4,
        tensor_bytes: int = 256 << 10,
        seed: int = 0,
    ) -> Checkpoint: ...


class MountTable:
    """The file systems of a session, each made when a test first asks for it."""

    def __init__(self, folder: Path, slowfs_program: pytest.FixtureRequest) -> None:
        self._folder = folder
        self._request = slowfs_program
        self._made: dict[str, Path] = {}
        self._count = 0
        self._stack = contextlib.ExitStack()

    def fresh_folder(self, kind: str) -> Path:
        """A new, empty folder on the file system of that kind, open to every user."""
        self._count += 1
        folder = self._mount(kind) / f"test-{self._count}"
        folder.mkdir()
        folder.chmod(0o777)
        return folder

    def close(self) -> None:
        self._stack.close()

    def _mount(self, kind: str) -> Path:
        if kind not in self._made:
            self._made[kind] = self._make(kind)
        return self._made[kind]

    def _make(self, kind: str) -> Path:
        if kind in ("ext4", "xfs"):
            return self._stack.enter_context(image_mount(kind, self._folder))
        if kind == "tmpfs":
            return self._stack.enter_context(tmpfs_mount(self._folder))
        if kind == "overlay":
            lower = self.fresh_folder("ext4")
            upper = self.fresh_folder("ext4")
            return self._stack.enter_context(overlay_mount("overlay", lower, upper, self._folder))
        program: Path = self._request.getfixturevalue("slowfs_program")
        root = _shared_memory_folder()
        self._stack.callback(shutil.rmtree, root)
        home = self._folder / "fuse"
        home.mkdir()
        made = mount_slowfs(program, home, root)
        self._stack.callback(made.unmount)
        return made.mount


def _shared_memory_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fxload-tests-", dir="/dev/shm"))
    folder.chmod(0o755)
    return folder


@pytest.fixture(autouse=True, scope="session")
def interrupts() -> None:
    """Whoever starts this in the background may have left SIGINT ignored, for our children too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_state(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Configuration, staged models and remembered digests of the test's own, never the user's."""
    home = tmp_path_factory.mktemp("state")
    staged = Path("/dev/shm") / f"fxload-tests-{secrets.token_hex(8)}"
    config = home / "config" / "fxload" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'warm_ram_dir = "{staged}"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.delenv("FXLOAD_CONFIG", raising=False)
    yield
    if staged.exists():
        shutil.rmtree(staged)


@pytest.fixture(scope="session")
def session_folder() -> Iterator[Path]:
    """A folder on disk that every user may pass; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="fxload-tests-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def public_folder(session_folder: Path) -> Iterator[Path]:
    """A folder on disk that every user may read and write."""
    folder = Path(tempfile.mkdtemp(dir=session_folder))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    """A folder on tmpfs."""
    folder = _shared_memory_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def slowfs_program(session_folder: Path) -> Path:
    """The slowfs binary; skips where this machine cannot build or mount it."""
    need_device("/dev/fuse")
    need_program("fusermount3", "fuse3")
    return compile_c(slowfs_support.SOURCES, session_folder / "slowfs", library="fuse3")


@pytest.fixture
def slowfs(slowfs_program: Path, session_folder: Path) -> Iterator[SlowFsFactory]:
    """A factory of slowfs mounts; without `root`, the folder behind one is new, on tmpfs."""
    with contextlib.ExitStack() as stack:

        def make(root: Path | None = None, **settings: float) -> SlowFs:
            home = Path(tempfile.mkdtemp(dir=session_folder))
            home.chmod(0o755)
            stack.callback(shutil.rmtree, home)
            if root is None:
                root = _shared_memory_folder()
                stack.callback(shutil.rmtree, root)
            made = mount_slowfs(slowfs_program, home, root, **settings)  # type: ignore[arg-type]
            stack.callback(made.unmount)
            return made

        yield make


@pytest.fixture(scope="session")
def mount_table(session_folder: Path, request: pytest.FixtureRequest) -> Iterator[MountTable]:
    table = MountTable(session_folder, request)
    yield table
    table.close()


@pytest.fixture(params=MOUNT_KINDS)
def mount(request: pytest.FixtureRequest, mount_table: MountTable) -> Path:
    """A new folder on ext4, XFS, tmpfs, overlay and FUSE: the test runs once on each."""
    return mount_table.fresh_folder(request.param)


@pytest.fixture(scope="session")
def isolation(session_folder: Path) -> Isolation:
    """Runs processes; refuses and limits nothing until told so with `but`."""
    return Isolation(program=compile_c([SOURCE], session_folder / "isolate"))


@pytest.fixture
def refuse_syscalls(isolation: Isolation) -> Isolation:
    """Runs processes as under an old kernel; `but(refuse=...)` picks single system calls."""
    return isolation.but(refuse=OLD_KERNEL)


@pytest.fixture
def unprivileged(isolation: Isolation, public_folder: Path) -> Isolation:
    """Runs processes as nobody, who may lock no memory, with a home of their own."""
    need_root("running as another user")
    home = public_folder / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    return Isolation(program=isolation.program, limits={"memlock": 0}, uid=NOBODY, home=home)


@pytest.fixture
def make_checkpoint() -> CheckpointFactory:
    """Writes a small random checkpoint: `make_checkpoint(folder, shards=3)`."""
    return write_checkpoint
