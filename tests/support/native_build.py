"""Builds the core's own tests: `python -m tests.support.native_build` prints the program's path."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
PROGRAM = "fxload_native_tests"


def build(
    folder: Path = CHECKOUT / "build" / "native-tests",
    *,
    flags: str = "",
    build_type: str = "RelWithDebInfo",
) -> Path:
    """Build the native tests in `folder`, anew only where sources have changed.

    Args:
        folder: the build folder.
        flags: what the C++ compiler is told beyond what the project tells it.
        build_type: CMake's build type.

    Returns the program. What CMake and the compiler print goes to standard error.
    """
    configure = [
        "cmake",
        "-S",
        str(CHECKOUT),
        "-B",
        str(folder),
        "-G",
        "Ninja",
        f"-DCMAKE_BUILD_TYPE={build_type}",
        f"-DCMAKE_CXX_FLAGS={flags}",
        f"-DPython_EXECUTABLE={sys.executable}",
        "-DFXLOAD_BUILD_TESTS=ON",
    ]
    # cmake and ninja come from the environment that this interpreter belongs to.
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    for command in (configure, ["cmake", "--build", str(folder)]):
        subprocess.run(command, check=True, stdout=2, env={**os.environ, "PATH": path})
    return next(found for found in folder.rglob(PROGRAM) if os.access(found, os.X_OK))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=CHECKOUT / "build" / "native-tests")
    parser.add_argument("--flags", default="")
    parser.add_argument("--type", default="RelWithDebInfo")
    arguments = parser.parse_args()
    print(build(arguments.folder.resolve(), flags=arguments.flags, build_type=arguments.type))


if __name__ == "__main__":
    main()
