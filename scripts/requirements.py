"""Prints what pyproject.toml asks for, to build and to run the package, one requirement a line."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib


def main() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    for requirement in project["build-system"]["requires"] + project["project"]["dependencies"]:
        print(requirement)


if __name__ == "__main__":
    main()
