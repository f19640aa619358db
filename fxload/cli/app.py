"""The command line: parses, runs one command, turns any failure into one line and an exit code.

Only typer is imported before a command is known, so that ``--help`` answers at once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fxload.cli import bench, cache, doctor, inspect, warm
from fxload.cli.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    describe,
    exit_code,
    named_stdout,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

__all__ = ["app", "main"]

_TERMINATED = 128 + signal.SIGTERM

app = typer.Typer(
    name="fxload",
    help="Model weights from flash storage to tensors, at the storage's speed.",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("doctor")(doctor.doctor)
app.command("inspect")(inspect.inspect)
app.command("warm")(warm.warm)
app.add_typer(cache.app, name="cache")
app.add_typer(bench.app, name="bench")


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed_version

        typer.echo(f"fxload {installed_version('fxload')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(EXIT_USAGE)


class _Terminated(BaseException):
    """SIGTERM, as an exception: locks and temporary files are cleaned up on the way out."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``fxload`` with ``argv`` (without the program's name); returns the exit code.

    0: done. 1: the work failed. 2: bad usage. 130 and 143: stopped by a signal. Every failure is
    one line on stderr, and under ``--json`` also ``{"error": …}`` on stdout.
    """
    # A stream is None where the process was started with its descriptor closed.
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - open as long as the process
    if sys.stdout is None:
        sys.stderr.write("fxload: standard output is closed; redirect it to /dev/null instead\n")
        return EXIT_FAILED
    arguments = _join_json_file(list(sys.argv[1:] if argv is None else argv))
    as_json = "--json" in _before_separator(arguments)
    command = typer.main.get_command(app)
    try:
        with _sigterm_as_exception():
            result = command.main(args=arguments, prog_name="fxload", standalone_mode=False)
            with named_stdout():
                sys.stdout.flush()
        code = result if isinstance(result, int) else 0
        # typer answers Ctrl-C with this code or, in older versions, with Abort.
        if code == EXIT_INTERRUPTED:
            return _fail(KeyboardInterrupt(), as_json)
        return code
    except (KeyboardInterrupt, typer.Abort):
        return _fail(KeyboardInterrupt(), as_json)
    except _Terminated:
        return _report({"kind": "terminated", "message": "terminated"}, _TERMINATED, as_json)
    except BrokenPipeError:
        # The reader of our output has gone; there is nobody left to tell.
        _discard_stdout()
        return EXIT_FAILED
    except Exception as error:  # noqa: BLE001 - this is where every failure becomes one line
        return _fail(error, as_json)


def _fail(error: BaseException, as_json: bool) -> int:
    if os.environ.get("FXLOAD_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    usage = getattr(error, "format_message", None)
    if callable(usage):
        line = " ".join(str(usage()).split()).rstrip(".")
        message = f"{line}; see fxload --help"
        return _report({"kind": "usage", "message": message}, EXIT_USAGE, as_json)
    return _report(describe(error), exit_code(error), as_json)


def _report(error: dict[str, object], code: int, as_json: bool) -> int:
    sys.stderr.write(f"fxload: {error['message']}\n")
    try:
        if as_json:
            sys.stdout.write(json.dumps({"error": error | {"exit_code": code}}) + "\n")
        sys.stdout.flush()
    except OSError:
        # The line on stderr and the exit code have to do: stdout is beyond use.
        _discard_stdout()
    return code


def _discard_stdout() -> None:
    """Let what is still buffered go nowhere, or the interpreter fails to flush it at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    sys.stdout.flush()


def _before_separator(arguments: Sequence[str]) -> list[str]:
    """The arguments that may be options."""
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    return list(arguments[:end])


def _join_json_file(arguments: list[str]) -> list[str]:
    """Read ``bench … --json FILE.json`` as ``--json-file FILE.json``.

    The parser knows no option whose value may be absent; what ends in .json is never measured.
    """
    options = _before_separator(arguments)
    if options[:1] != ["bench"]:
        return arguments
    joined: list[str] = []
    index = 0
    while index < len(options):
        option = options[index]
        follower = options[index + 1] if index + 1 < len(options) else ""
        if option == "--json" and follower.endswith(".json"):
            joined += ["--json-file", follower]
            index += 2
            continue
        joined += ["--json-file", option[7:]] if option.startswith("--json=") else [option]
        index += 1
    return joined + arguments[len(options) :]


@contextmanager
def _sigterm_as_exception() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
