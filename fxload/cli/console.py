"""All that reaches the terminal, and the only importer of rich.

Results go to stdout, progress and messages to stderr. On a terminal there are colours, tables
with rules and progress bars; elsewhere plain aligned lines that tools can read. ``NO_COLOR`` and
``TERM=dumb`` are honoured.
"""

from __future__ import annotations

import io
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from fxload.cli.errors import named_stdout
from fxload.cli.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Column", "Screen"]

_LEVEL_STYLES = {"ok": "green", "info": "default", "warn": "yellow", "fail": "bold red"}
_LEVEL_MARKS = {"ok": "ok  ", "info": "    ", "warn": "warn", "fail": "FAIL"}
_PLAIN_INTERVAL_S = 2.0


@dataclass(frozen=True)
class Column:
    """A column of a table; numbers go to the right."""

    title: str
    right: bool = False


class Screen:
    """Writes to one pair of streams. Not thread-safe, apart from progress callbacks."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = Console(file=_lenient(out or sys.stdout), highlight=False, soft_wrap=True)
        self._err = Console(file=_lenient(err or sys.stderr), highlight=False, soft_wrap=True)

    def line(self, text: str = "") -> None:
        """One line of the result."""
        self._result(Text(text))

    def heading(self, text: str) -> None:
        """A line that starts a part of the result."""
        self._result(Text(text, style="bold"))

    def message(self, text: str) -> None:
        """One line beside the result: what is being done, what was chosen."""
        self._err.print(Text(text, style="dim"))

    def finding(self, level: str, name: str, value: str, reason: str, hint: str) -> None:
        """A doctor's line: coloured mark, name and value; the reason and the next step below."""
        style = _LEVEL_STYLES[level]
        first = Text.assemble((f"{_LEVEL_MARKS[level]}  ", style), f"{name}: ", (value, style))
        self._result(first)
        for text in (reason, hint):
            if text:
                self._result(Text(f"        {text}", style="dim"))

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """Rows below their titles; ruled on a terminal, only aligned elsewhere."""
        if not self._out.is_terminal:
            self._plain_table(columns, rows)
            return
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in columns:
            table.add_column(column.title, justify="right" if column.right else "left")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self._result(table, soft_wrap=False)

    def _plain_table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        lines = [[column.title for column in columns], *rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
        for line in lines:
            cells = (
                cell.rjust(width) if column.right else cell.ljust(width)
                for cell, width, column in zip(line, widths, columns, strict=True)
            )
            self._result(Text("  ".join(cells).rstrip()))

    def _result(self, what: Text | Table, *, soft_wrap: bool = True) -> None:
        with named_stdout():
            self._out.print(what, soft_wrap=soft_wrap)

    @contextmanager
    def progress(self, title: str) -> Iterator[Callable[[int, int], None]]:
        """Show how far work on bytes has come; yields ``update(done_bytes, total_bytes)``.

        ``update`` may be called from any thread and as often as wanted.
        """
        if self._err.is_terminal and not self._err.is_dumb_terminal:
            with self._bar() as bar:
                task = bar.add_task(title, total=None)

                def update(done_bytes: int, total_bytes: int) -> None:
                    bar.update(task, completed=done_bytes, total=total_bytes)

                yield update
            return
        yield _PlainProgress(self._err, title).update

    @contextmanager
    def steps(self, title: str) -> Iterator[Callable[[str, int, int], None]]:
        """Show a count of runs; yields ``step(what, done, total)``, called before each."""
        if self._err.is_terminal and not self._err.is_dumb_terminal:
            columns = ("{task.completed:.0f} of {task.total:.0f}", "{task.description}")
            texts = [TextColumn(column, markup=False) for column in columns]
            parts = (texts[0], BarColumn(), TimeRemainingColumn(), texts[1])
            with Progress(*parts, console=self._err) as bar:
                task = bar.add_task(title, total=1)

                def advance(what: str, done: int, total: int) -> None:
                    bar.update(task, description=what, completed=done, total=total)

                yield advance
            return

        def say(what: str, done: int, total: int) -> None:
            self.message(f"{title}: {done + 1} of {total}: {what}")

        yield say

    def _bar(self) -> Progress:
        return Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=self._err,
        )


def _lenient(stream: TextIO) -> TextIO:
    """The stream, escaping what it cannot encode: names of files need not be text."""
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="backslashreplace")
    return stream


class _PlainProgress:
    """A line every few seconds, and one at the end."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._title = title
        self._start_s = self._said_s = time.monotonic()
        self._finished = False

    def update(self, done_bytes: int, total_bytes: int) -> None:
        now_s = time.monotonic()
        complete = 0 < total_bytes <= done_bytes
        if self._finished or (not complete and now_s - self._said_s < _PLAIN_INTERVAL_S):
            return
        self._said_s = now_s
        self._finished = complete
        elapsed_s = max(now_s - self._start_s, 1e-9)
        rate = done_bytes / elapsed_s
        text = f"{self._title}: {format_bytes(done_bytes)}"
        if total_bytes:
            text += f" of {format_bytes(total_bytes)} ({100 * done_bytes / total_bytes:.0f} %)"
        text += f", {format_bytes(rate)}/s"
        if complete:
            text += f", {format_seconds(elapsed_s)}"
        elif rate and total_bytes:
            text += f", {format_seconds((total_bytes - done_bytes) / rate)} left"
        self._console.print(Text(text))
