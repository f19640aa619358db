from __future__ import annotations

import io

import pytest

from fxload._errors import UsageError
from fxload.cli.console import Column, Screen
from fxload.cli.units import format_bytes, format_request, format_seconds, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512", 512),
        ("4MiB", 4 << 20),
        ("4mib", 4 << 20),
        ("1.5G", 1_500_000_000),
        ("2 GB", 2_000_000_000),
        ("8KiB", 8192),
        ("1Ti", 1 << 40),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text, "--x") == size


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "0MiB", "4 apples", "1e9", "iB", "4iB"])
def test_what_is_no_size_is_a_usage_error_that_names_the_option(text: str) -> None:
    with pytest.raises(UsageError, match="--make"):
        parse_size(text, "--make")


def test_figures_are_written_as_people_write_them() -> None:
    assert format_bytes(0) == "0 B"
    assert format_bytes(4_830_000_000) == "4.83 GB"
    assert format_bytes(-2_000_000) == "-2 MB"
    assert format_bytes(3e15) == "3e+03 TB"
    assert [format_request(size) for size in (512, 524288, 8 << 20, 1 << 30, 1536)] == [
        "512 B",
        "512 KiB",
        "8 MiB",
        "1 GiB",
        "1536 B",
    ]
    assert [format_seconds(each) for each in (0.48, 12.34, 245, 9000, 864000)] == [
        "480 ms",
        "12.3 s",
        "4:05 min",
        "2.5 h",
        "10 days",
    ]


def test_elsewhere_a_table_is_aligned_text_of_any_width() -> None:
    out = io.StringIO()
    screen = Screen(out, io.StringIO())
    long = "x" * 300
    screen.table([Column("name"), Column("bytes", right=True)], [["a[b]", "1"], [long, "12345"]])
    lines = out.getvalue().splitlines()
    assert lines[0].split() == ["name", "bytes"]
    assert lines[1].split() == ["a[b]", "1"]
    assert lines[2] == f"{long}  12345"
    assert lines[1].endswith("    1")
    assert "\x1b" not in out.getvalue()


def test_elsewhere_progress_is_plain_lines_with_an_end() -> None:
    err = io.StringIO()
    with Screen(io.StringIO(), err).progress("warm") as update:
        update(0, 0)
        update(10, 100)
        update(100, 100)
        update(100, 100)
    lines = err.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("warm: 100 B of 100 B (100 %), ")
    assert "\r" not in err.getvalue()
    assert "\x1b" not in err.getvalue()


def test_elsewhere_each_step_is_a_line_on_stderr() -> None:
    out, err = io.StringIO(), io.StringIO()
    with Screen(out, err).steps("bench") as step:
        step("first", 0, 2)
        step("second [x]", 1, 2)
    assert err.getvalue().splitlines() == ["bench: 1 of 2: first", "bench: 2 of 2: second [x]"]
    assert out.getvalue() == ""


def test_names_that_are_no_text_are_escaped() -> None:
    raw, beside = io.BytesIO(), io.BytesIO()
    screen = Screen(
        io.TextIOWrapper(raw, "utf-8", "strict", write_through=True),
        io.TextIOWrapper(beside, "utf-8", "strict", write_through=True),
    )
    screen.line("bad\udcffname")
    screen.message("bad\udcfename")
    assert raw.getvalue() == b"bad\\udcffname\n"
    assert beside.getvalue() == b"bad\\udcfename\n"


def test_a_finding_shows_its_reason_and_next_step() -> None:
    out = io.StringIO()
    Screen(out, io.StringIO()).finding("warn", "queue", "32", "too shallow", "echo 256 > x")
    assert out.getvalue().splitlines() == [
        "warn  queue: 32",
        "        too shallow",
        "        echo 256 > x",
    ]
