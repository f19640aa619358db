"""Stand-in device runtimes: builds them, and runs Python against them.

tests/simulators/README.md describes the stand-ins. They are compiled into `build/simulators`, and
again only when their sources have changed; torch_npu is unpacked into `build/torch-npu`, where no
other test's `import torch` meets it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.device_headers import FetchError, torch_npu_wheel
from tests.support.native_build import CHECKOUT
from tests.support.needs import cannot, need_program
from tests.support.simulator_controls import Controls

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SOURCES = Path(__file__).parents[1] / "simulators"
FOLDER = CHECKOUT / "build" / "simulators"
TORCH_NPU = CHECKOUT / "build" / "torch-npu"
LIBRARIES = {
    "hip": "libamdhip64.so.7",
    "cuda": "libcudart.so.13",
    "acl": "libascendcl.so",
}

_ENGINE = [
    "controls",
    "controls_api",
    "engine",
    "engine_copies",
    "engine_streams",
    "ledger",
    "memory",
]
_LAYERS = {"hip": ["hip"], "cuda": ["cuda"], "acl": ["acl", "acl_torch"]}
_FLAGS = ["-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]
# What torch_npu links against beside libascendcl.
_COMPANIONS = ["hccl", "ge_runner", "graph", "acl_op_compiler", "acl_tdt_channel"]


@cache
def _known_controls() -> frozenset[str]:
    names = re.findall(r'\{"(\w+)", &Controls::', (SOURCES / "controls.cpp").read_text())
    return frozenset((*names, "fail"))


@dataclass(frozen=True)
class Run:
    """A process that has ended.

    Attributes:
        report: what the stand-in counted in it; empty if the process never called it.
    """

    returncode: int
    stdout: str
    stderr: str
    report: Mapping[str, Any]


@dataclass(frozen=True)
class Simulator:
    """One stand-in runtime, built.

    Attributes:
        kind: "hip", "cuda" or "acl".
        folder: the folder of its libraries; for the loader, or for `find_platform`.
        library: the runtime.
    """

    kind: str
    folder: Path
    library: Path

    def controls(self) -> Controls:
        """Its controls in this process, which loads it and keeps it."""
        return Controls(str(self.library))

    def environment(
        self, *, torch_npu: bool = False, report: Path | None = None, **controls: int | str
    ) -> dict[str, str]:
        """The environment of a process that finds this runtime, and no other.

        Args:
            torch_npu: whether `import torch` brings the real torch_npu, too (ACL only).
            report: where the stand-in leaves its counters when the process ends.
            controls: initial ones, and ``fail="hipMalloc:1:2,copy:3:700"``.

        Raises KeyError for a control that no stand-in has: it would be left out without a word.
        """
        for name in controls:
            if name not in _known_controls():
                raise KeyError(f"no stand-in has a control named {name!r}")
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("FXSIM_", "ROCM_", "HIP_", "CUDA_", "ASCEND_"))
        }
        paths = [str(CHECKOUT)]
        if torch_npu:
            paths.insert(0, str(_torch_npu(self)))
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        environment["LD_LIBRARY_PATH"] = str(self.folder)
        for name, value in controls.items():
            environment[f"FXSIM_{name.upper()}"] = str(value)
        if report is not None:
            environment["FXSIM_REPORT"] = str(report)
        return environment

    def python(
        self,
        code: str,
        *arguments: str | os.PathLike[str],
        torch_npu: bool = False,
        timeout_s: float = 120.0,
        check: bool = True,
        **controls: int | str,
    ) -> Run:
        """Run a Python snippet in a process that finds this runtime; `check` fails with its words.

        In the snippet, `arguments` are sys.argv[1:], and `runtime` is the stand-in's Controls.
        """
        with tempfile.TemporaryDirectory(prefix="fxload-tests-") as folder:
            report = Path(folder, "report.json")
            opening = (
                "from tests.support.simulator_controls import Controls\n"
                f"runtime = Controls({str(self.library)!r})\n"
            )
            done = subprocess.run(
                [sys.executable, "-c", opening + code, *(os.fspath(each) for each in arguments)],
                env=self.environment(torch_npu=torch_npu, report=report, **controls),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout_s,
            )
            counted = json.loads(report.read_text()) if report.exists() else {}
        if check and done.returncode:
            raise AssertionError(f"exited {done.returncode}\n{done.stdout}\n{done.stderr}")
        return Run(done.returncode, done.stdout, done.stderr, counted)


def simulator(kind: str) -> Simulator:
    """The stand-in runtime of a kind, built if it is not."""
    folder = FOLDER / kind
    library = folder / LIBRARIES[kind]
    with _lock(FOLDER):
        objects = _objects(_ENGINE + _LAYERS[kind])
        made_of = "".join(_stamp(each).read_text() for each in objects)
        if not _is_made_of(library, made_of):
            folder.mkdir(exist_ok=True)
            shared = [need_program("g++", "g++"), "-shared", "-Wl,--no-undefined"]
            soname = f"-Wl,-soname,{library.name}"
            fresh = f"{library}.new"
            subprocess.run([*shared, soname, *map(str, objects), "-o", fresh], check=True)
            Path(fresh).replace(library)  # whoever has loaded the former keeps it
            _stamp(library).write_text(made_of)
    return Simulator(kind, folder, library)


def _torch_npu(acl: Simulator) -> Path:
    """The folder of the real torch_npu, with its other libraries beside the stand-in of ACL."""
    try:
        wheel = torch_npu_wheel()
    except FetchError as error:
        cannot(str(error))
    for module, package in (("yaml", "pyyaml"), ("numpy", "numpy")):
        if find_spec(module) is None:
            cannot(f"torch_npu needs the Python package {package}")
    with _lock(FOLDER):
        if not _is_made_of(TORCH_NPU, wheel.name):
            shutil.rmtree(TORCH_NPU, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=FOLDER) as fresh:
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(Path(fresh, "content"))
                Path(fresh, "content").rename(TORCH_NPU)
            _stamp(TORCH_NPU).write_text(wheel.name)
        stamp = f"{wheel.stem}\n{acl.library.stat().st_mtime_ns}"
        first = acl.folder / f"lib{_COMPANIONS[0]}.so"
        if _is_made_of(first, stamp):
            return TORCH_NPU
        code = "".join(
            f"int {name}(void) {{ return 0; }}\n" for name in _missing_functions(TORCH_NPU, acl)
        )
        for each in _COMPANIONS:
            _link_c(code, acl, acl.folder / f"lib{each}.so")
            code = ""  # one of them is enough
        _stamp(first).write_text(stamp)
    return TORCH_NPU


def _missing_functions(content: Path, acl: Simulator) -> list[str]:
    """What torch_npu's libraries want from CANN, and neither torch nor the stand-in has."""
    libraries = [*content.glob("torch_npu/lib/lib*.so"), *content.glob("torch_npu/_C.*.so")]
    # It belongs to an optional package of kernels, and nothing loads it here.
    libraries = [each for each in libraries if each.name != "libop_plugin_atb.so"]
    torch = find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    present = [*libraries, *Path(torch.origin).parent.glob("lib/*.so"), acl.library]
    missing = _symbols("--undefined-only", libraries) - _symbols("--defined-only", present)
    this_process = ctypes.CDLL(None)  # Python's own, and the C library's
    return sorted(
        name
        for name in missing
        if re.fullmatch(r"[A-Za-z]\w*", name) and not hasattr(this_process, name)
    )


def _symbols(which: str, libraries: Sequence[Path]) -> set[str]:
    """Names in the dynamic symbol tables, without those that carry a version."""
    nm = need_program("nm", "binutils")
    listed = subprocess.run(
        [nm, "-D", which, *map(str, libraries)], check=True, capture_output=True, text=True
    )
    fields = [line.split() for line in listed.stdout.splitlines()]
    weak = ("w", "v")
    return {
        each[-1]
        for each in fields
        if len(each) >= 2 and each[-2] not in weak and "@" not in each[-1]
    }


def _objects(names: Sequence[str]) -> list[Path]:
    """Object files of these sources, compiled if they or a header have changed."""
    compiler = need_program("g++", "g++")
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True).stdout
    common = hashlib.sha256(" ".join(_FLAGS).encode() + version)
    for header in sorted(SOURCES.glob("*.h")):
        common.update(header.name.encode() + header.read_bytes())
    folder = FOLDER / "objects"
    folder.mkdir(exist_ok=True)
    objects = [folder / f"{name}.o" for name in names]
    waiting: list[tuple[Path, Path, str]] = []
    for name, made in zip(names, objects, strict=True):
        source = SOURCES / f"{name}.cpp"
        digest = common.copy()
        digest.update(source.read_bytes())
        if not _is_made_of(made, digest.hexdigest()):
            waiting.append((source, made, digest.hexdigest()))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = pool.map(lambda each: _compile(compiler, *each), waiting)
        for _ in done:  # raises what a compilation raised
            pass
    return objects


def _compile(compiler: str, source: Path, output: Path, made_of: str) -> None:
    subprocess.run([compiler, *_FLAGS, "-c", str(source), "-o", str(output)], check=True)
    _stamp(output).write_text(made_of)


def _link_c(code: str, acl: Simulator, output: Path) -> None:
    """A library of this C code, which brings libascendcl with it: functions are looked up there."""
    compiler = need_program("cc", "gcc")
    subprocess.run(
        [
            *(compiler, "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-Wl,--no-as-needed"),
            *(str(acl.library), f"-Wl,-soname,{output.name}", "-Wl,-rpath,$ORIGIN"),
            *("-o", f"{output}.new"),
        ],
        input=code,
        text=True,
        check=True,
    )
    Path(f"{output}.new").replace(output)


def _is_made_of(output: Path, made_of: str) -> bool:
    stamp = _stamp(output)
    return output.exists() and stamp.exists() and stamp.read_text() == made_of


def _stamp(output: Path) -> Path:
    return output.with_name(f".{output.name}.made-of")


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Keeps another process from building the same at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
