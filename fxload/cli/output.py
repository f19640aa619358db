"""Where a command's result goes: one JSON object, or text for people."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fxload.cli.errors import describe, exit_code, named_stdout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import NoReturn

    from fxload._errors import FxloadError
    from fxload.cli.console import Screen

__all__ = ["JsonOption", "Output"]

JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


class Output:
    """Emits a command's result once, as JSON or drawn on a Screen."""

    def __init__(self, as_json: bool, json_file: Path | None = None) -> None:
        from fxload.cli.console import Screen

        self._as_json = as_json
        self._json_file = json_file
        self.screen: Screen = Screen()

    def emit(self, data: Mapping[str, object], draw: Callable[[Screen], None]) -> None:
        """Write ``data`` to stdout under ``--json``, else draw it; and to the JSON file, if any."""
        if self._json_file is not None:
            self._json_file.write_text(json.dumps(data, indent=2) + "\n")
            self.screen.message(f"wrote {self._json_file}")
        if self._as_json:
            with named_stdout():
                sys.stdout.write(json.dumps(data) + "\n")
        else:
            draw(self.screen)

    def emit_failed(
        self, data: Mapping[str, object], draw: Callable[[Screen], None], error: FxloadError
    ) -> NoReturn:
        """Emit a result that names what failed, add the error to it, and exit."""
        code = exit_code(error)
        self.emit({**data, "error": describe(error) | {"exit_code": code}}, draw)
        sys.stderr.write(f"fxload: {error}\n")
        raise typer.Exit(code)
