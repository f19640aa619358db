"""What fxload declares of device runtimes by hand is what the vendors' own headers declare."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support import device_headers
from tests.support.device_headers import FetchError
from tests.support.native_build import CHECKOUT
from tests.support.needs import cannot, need_program

pytestmark = pytest.mark.platforms

ABI = Path(__file__).parent / "abi"
PLATFORMS = CHECKOUT / "platforms"

# Every declaration of the tests that C++ cannot express as a bare name.
OVERLOADS = re.compile(r"\*abi_test::overload<\w+>\((\w+)\)")
COMPARED_FUNCTION = re.compile(r"SAME_FUNCTION\(\s*abi::(\w+),\s*(\w+)\)")


def compile_unit(source: str, *include: Path, flags: tuple[str, ...] = ()) -> str:
    """Compile one file of static_asserts; the compiler's words, "" if they all hold."""
    compiler = need_program("c++", "g++")
    folders = [f"-I{folder}" for folder in (*include, CHECKOUT / "native", CHECKOUT, ABI)]
    done = subprocess.run(
        [compiler, "-std=c++20", "-fsyntax-only", *flags, *folders, str(ABI / source)],
        capture_output=True,
        text=True,
    )
    return done.stderr if done.returncode else ""


@pytest.fixture(scope="module")
def acl_include() -> Path:
    try:
        return device_headers.acl_include()
    except FetchError as error:
        cannot(str(error))


def test_acl_is_as_torch_npu_has_it(acl_include: Path) -> None:
    assert compile_unit("ascend.cpp", acl_include) == ""


def test_hip_is_as_debian_has_it() -> None:
    if device_headers.hip_include() is None:
        cannot("there are no headers of HIP (Debian package libamdhip64-dev)")
    assert compile_unit("rocm.cpp", flags=("-D__HIP_PLATFORM_AMD__", "-w")) == ""


def test_hip_is_as_the_bindings_of_hip_7_have_it(tmp_path: Path) -> None:
    try:
        declarations = device_headers.hip_declarations()
    except FetchError as error:
        cannot(str(error))
    wanted = {symbol for _, symbol in compared("rocm")}
    (tmp_path / "hip_declarations.h").write_text(c_header(declarations.read_text(), wanted))
    assert compile_unit("rocm_bindings.cpp", tmp_path) == ""


def test_cuda_is_as_the_toolkit_has_it() -> None:
    folder = device_headers.cuda_include()
    if folder is None:
        # Not `cannot`: no package brings it, and the other platforms are tested without.
        pytest.skip("there is no CUDA toolkit on this machine")
    assert compile_unit("cuda.cpp", folder) == ""


@pytest.mark.parametrize("change", ["wider", "other value"])
def test_a_difference_is_found(acl_include: Path, tmp_path: Path, change: str) -> None:
    header = (PLATFORMS / "ascend" / "abi.h").read_text()
    if change == "wider":
        changed = header.replace("SetDevice = Status(int32_t", "SetDevice = Status(int64_t")
    else:
        changed = header.replace("kEventComplete = 1", "kEventComplete = 0")
    assert changed != header
    (tmp_path / "platforms" / "ascend").mkdir(parents=True)
    (tmp_path / "platforms" / "ascend" / "abi.h").write_text(changed)
    assert "static assertion failed" in compile_unit("ascend.cpp", tmp_path, acl_include)


@pytest.mark.parametrize("platform", ["ascend", "rocm", "cuda"])
def test_every_declaration_is_compared(platform: str) -> None:
    header = (PLATFORMS / platform / "abi.h").read_text()
    functions = set(re.findall(r"^using (\w+) = [^;(]*\(", header, re.MULTILINE))
    constants = set(re.findall(r"^constexpr \w+ (k\w+) =", header, re.MULTILINE))
    assert functions
    assert constants
    assert functions == {declared for declared, _ in compared(platform)}
    text = (ABI / f"{platform}.cpp").read_text()
    assert {name for name in constants if f"abi::{name}" not in text} == set()


@pytest.mark.parametrize("platform", ["ascend", "rocm", "cuda"])
def test_what_is_bound_has_the_type_that_was_compared(platform: str) -> None:
    assert bound(platform) == compared(platform)


def compared(platform: str) -> set[tuple[str, str]]:
    """Pairs of a declaration of abi.h and the vendor's function that it is compared with."""
    name = "rocm_functions.h" if platform == "rocm" else f"{platform}.cpp"
    text = OVERLOADS.sub(r"\1", (ABI / name).read_text())
    return set(COMPARED_FUNCTION.findall(text))


def bound(platform: str) -> set[tuple[str, str]]:
    """Pairs of a declaration of abi.h and the symbol that is looked up for it."""
    text = (PLATFORMS / platform / "platform.cpp").read_text()
    if platform != "ascend":
        pattern = r'<abi::(\w+)\*?>\([^"]*"(\w+)"\)'
        return set(re.findall(pattern, text))
    table = (PLATFORMS / platform / "runtime.h").read_text()
    types = {field: kind for kind, field in re.findall(r"abi::(\w+)\* (\w+) = nullptr;", table)}
    pattern = r'bind\.(?:required|optional)\(\s*&table\.(\w+),\s*"(\w+)"\)'
    return {(types[field], symbol) for field, symbol in re.findall(pattern, text)}


def c_header(declarations: str, wanted: set[str]) -> str:
    """A header of these functions, and of the types that they name, from Cython's declarations."""
    lines = ["#include <cstddef>", "#include <cstdint>"]
    enumerations = re.findall(r"^    cdef enum (\w+):", declarations, re.MULTILINE)
    lines += [f"enum {name} {{ {name}_any }};" for name in enumerations]
    structures = re.findall(r"^    cdef struct (\w+):", declarations, re.MULTILINE)
    lines += [f"struct {name};" for name in structures]
    # Handles: numbers, and pointers to structures.
    pattern = r"^    ctypedef (int|ihip\w+) (\*? ?)(\w+)$"
    for aliased, pointer, name in re.findall(pattern, declarations, re.MULTILINE):
        lines.append(f"typedef {aliased} {pointer}{name};")
    pattern = r"^cdef ([^(]*?)(\w+)\(([^)]*)\) (?:except|noexcept)"
    for returned, name, parameters in re.findall(pattern, declarations, re.MULTILINE):
        if name in wanted:
            lines.append(f"{returned}{name}({parameters});")
            wanted = wanted - {name}
    assert wanted == set(), "HIP 7 lacks these"
    return "\n".join(lines) + "\n"
