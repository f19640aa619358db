"""What `import fxload` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fxload


def test_public_names_are_sorted_and_there() -> None:
    assert fxload.__all__ == sorted(fxload.__all__)
    for name in fxload.__all__:
        assert getattr(fxload, name) is not None
    assert set(fxload.__all__) <= set(dir(fxload))
    with pytest.raises(AttributeError, match="nothing"):
        fxload.nothing  # noqa: B018


@pytest.mark.parametrize("statement", ["import fxload", "from fxload import FxloadError"])
def test_importing_it_imports_nothing_slow(statement: str) -> None:
    slow = {"torch", "numpy", "typer", "rich", "asyncio", "sqlite3", "safetensors"}
    code = f"{statement}; import sys; print(*sorted({slow!r} & sys.modules.keys()))"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == ""


def test_errors_are_the_builtins_that_a_caller_expects_and_say_where() -> None:
    error = fxload.TruncatedError("it ends", path="/m/a", offset=5, length=7, hint="try again")
    assert isinstance(error, OSError)
    assert str(error) == "/m/a at byte 5 (7 bytes): it ends; try again"
    assert isinstance(fxload.CheckpointError("x"), ValueError)
    assert isinstance(fxload.DeadlineError("x"), TimeoutError)
    assert isinstance(fxload.OutOfMemoryError("x"), MemoryError)


def test_errors_survive_pickling() -> None:
    import pickle

    error = fxload.CheckpointError("bad", path="/a", rule="hole", offset=3)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.rule == "hole"
