"""Builds the core and its own tests with CMake, without pip.

`python -m tests.support.native_build` prints the path of the test program.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
FOLDER = CHECKOUT / "build" / "native-tests"
PROGRAM = "fxload_native_tests"


def cmake(folder: Path, definitions: list[str]) -> None:
    """Configure and build in `folder`; only what has changed is built anew.

    What CMake and the compiler print goes to standard error. Raises CalledProcessError.
    """
    # cmake and ninja come from the environment that this interpreter belongs to.
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    defined = [f"-D{each}" for each in definitions]
    for command in (
        ["cmake", "-S", str(CHECKOUT), "-B", str(folder), "-G", "Ninja", *defined],
        ["cmake", "--build", str(folder)],
    ):
        subprocess.run(command, check=True, stdout=2, env={**os.environ, "PATH": path})


def build(folder: Path = FOLDER, definitions: list[str] | None = None) -> Path:
    """Build the native tests in `folder` and return the program."""
    cmake(
        folder,
        ["CMAKE_BUILD_TYPE=RelWithDebInfo", *(definitions or []), "FXLOAD_BUILD_TESTS=ON"],
    )
    return next(found for found in folder.rglob(PROGRAM) if os.access(found, os.X_OK))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--module", action="store_true", help="build the Python module instead")
    parser.add_argument("definitions", nargs="*", metavar="NAME=VALUE", help="for CMake")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if arguments.module:
        cmake(folder, [f"Python_EXECUTABLE={sys.executable}", *arguments.definitions])
    else:
        print(build(folder, arguments.definitions))


if __name__ == "__main__":
    main()
