"""What users install: the sdist builds the wheel, and the wheel alone loads a model."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.isolation import CHECKOUT

if TYPE_CHECKING:
    from tests.conftest import CheckpointFactory

TORCH = "torch==2.13.0"

# Builds, and installs torch: minutes on a machine that is new to both.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

LOAD = """
import sys, fxload
assert "torch" not in sys.modules
loaded = fxload.load_checkpoint(sys.argv[1])
print(fxload.__file__)
print(*(f"{name}:{tensor.float().sum().item()}" for name, tensor in sorted(loaded.items())))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    # Without isolation, what is installed here builds it: nothing is downloaded again.
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(CHECKOUT)],
        check=True,
        env={**os.environ, "PATH": path},
    )
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


def test_the_sdist_holds_the_sources_and_no_builds(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml"} <= names
    assert any(name.startswith("native/") for name in names)
    assert not any(name.startswith((".venv", "build/", ".demo")) for name in names)
    assert not any(name.endswith((".so", ".pyc", ".o")) for name in names)


def test_the_wheel_holds_the_package_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"fxload"}
    assert any(name.startswith("fxload/_native") and name.endswith(".so") for name in names)
    assert "fxload/py.typed" in names
    assert "fxload/_native.pyi" in names


def test_the_wheel_alone_loads_a_model(
    wheel: Path, tmp_path: Path, make_checkpoint: CheckpointFactory
) -> None:
    written = make_checkpoint(tmp_path / "model")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, TORCH, str(wheel)], check=True)
    # Another working folder: the checkout's sources must not be what is imported.
    done = subprocess.run(
        [str(python), "-W", "ignore", "-c", LOAD, str(written.path)],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    imported, sums = done.stdout.splitlines()
    assert Path(imported).is_relative_to(tmp_path / "venv")
    expected = (
        f"{name}:{tensor.float().sum().item()}" for name, tensor in sorted(written.tensors.items())
    )
    assert sums == " ".join(expected)
    command = subprocess.run(
        [str(python.with_name("fxload")), "inspect", str(written.path)],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert command.stdout
