from __future__ import annotations

import subprocess
import sys

import pytest

import fxload.checkpoint
import fxload.sources


@pytest.mark.parametrize("package", [fxload.checkpoint, fxload.sources])
def test_the_public_names_are_sorted_and_exist(package: object) -> None:
    names = package.__all__  # type: ignore[attr-defined]
    assert names == sorted(names)
    assert all(hasattr(package, name) for name in names)


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_is_cheap_and_judging_needs_no_torch() -> None:
    pytest.importorskip("numpy")
    run("""
import sys, fxload.checkpoint as c, fxload.sources, fxload.config
slow = {"torch", "numpy", "safetensors", "asyncio", "concurrent.futures", "typer", "rich"}
assert not slow & set(sys.modules), slow & set(sys.modules)
c.parse_header((2).to_bytes(8, "little") + b"{}", 10, "model")
assert "torch" not in sys.modules
""")


def test_judging_needs_no_numpy() -> None:
    run("""
import sys, fxload.checkpoint as c
sys.modules["numpy"] = None
c.parse_header((2).to_bytes(8, "little") + b"{}", 10, "model")
for header, rule in ((b"[]", "wrong-type"), (b"{", "not-json")):
    try:
        c.parse_header(len(header).to_bytes(8, "little") + header, 8 + len(header), "model")
    except c.header.CheckpointError as error:
        assert error.rule == rule, error
    else:
        raise AssertionError(header)
""")
