"""Output to a terminal never contains control characters from data."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.shells import Screen

from zoolet.cli.shell.nodes_text import format_data
from zoolet.cli.shell.output import ShellOutput
from zoolet.cli.shell.texts import hexdump, java_date, printable
from zoolet.protocol.hexadecimal import hexadecimal


@given(st.binary())
def test_printable_text_cannot_control_terminal(data: bytes) -> None:
    shown = printable(data.decode("utf-8", "surrogateescape"))
    assert all(character.isprintable() or character in "\n\t\xa0\u3000" for character in shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("café \u4f60", "café \u4f60"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\rb", "a\\x0db"),
        ("\x9b", "\\x9b"),
        ("\u202e", "\\u202e"),
        ("\U000e0001", "\\U000e0001"),
        (b"\xff".decode("utf-8", "surrogateescape"), "\\xff"),
        ("two\nlines\t.", "two\nlines\t."),
    ],
)
def test_unprintable_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_pipe_gets_raw_data_and_terminal_escaped() -> None:
    pipe, terminal = Screen(), Screen(terminal=True)
    for screen in (pipe, terminal):
        ShellOutput(screen, screen).show(None, ["\x1b[2J"])
    assert (pipe.pop(), terminal.pop()) == ("\x1b[2J\n", "\\x1b[2J\n")


def test_errors_and_events_are_escaped_on_terminal() -> None:
    screen = Screen(terminal=True)
    out = ShellOutput(screen, screen, colour=True)
    out.error("\x1b]0;x\x07")
    out.event("\x1b]0;x\x07", {})
    assert screen.getvalue() == "\x1b[31m\\x1b]0;x\\x07\x1b[0m\n\nWATCHER::\n\n\x1b[36m\\x1b]0;x\\x07\x1b[0m\n"


def test_errors_are_coloured_only_on_terminals() -> None:
    plain, coloured, pipe = Screen(terminal=True), Screen(terminal=True), Screen()
    ShellOutput(plain, plain).error("no")
    ShellOutput(coloured, coloured, colour=True).error("no")
    ShellOutput(pipe, pipe, colour=True).error("no")
    assert (plain.pop(), coloured.pop(), pipe.pop()) == ("no\n", "\x1b[31mno\x1b[0m\n", "no\n")


def test_json_output_has_one_object_per_line() -> None:
    screen = Screen()
    out = ShellOutput(screen, screen, as_json=True)
    out.show({"a": "\u2028\n"}, ["text"])
    out.remark("text")
    out.remark("text", {"b": 1})
    out.event("text", {"c": 1})
    assert [json.loads(line) for line in screen.pop().splitlines()] == [{"a": "\u2028\n"}, {"b": 1}, {"c": 1}]


def test_negative_hexadecimal_number_is_printed_like_java() -> None:
    assert (hexadecimal(26), hexadecimal(-1)) == ("0x1a", "0xffffffffffffffff")


@pytest.mark.parametrize("milliseconds", [(1 << 63) - 1, -1 << 63, 1 << 62])
def test_java_date_accepts_any_64_bit_number_of_milliseconds(milliseconds: int) -> None:
    assert java_date(milliseconds)


def test_hexdump_of_bytes_has_table_rows_of_16() -> None:
    assert hexdump(b"") == [""]
    assert hexdump(bytes(range(0x41, 0x53)))[3:5] == [
        "|00000000| 41 42 43 44 45 46 47 48 49 4a 4b 4c 4d 4e 4f 50 |ABCDEFGHIJKLMNOP|",
        "|00000010| 51 52                                           |QR              |",
    ]


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, ""),
        (b"", ""),
        (b"text", "text"),
        (b"a\nb", "(3 bytes)"),
        (b"\xff", "(1 bytes)"),
        (b"x" * 500, "(500 bytes)"),
    ],
)
def test_long_or_multiline_data_is_replaced_by_its_size(data: bytes | None, shown: str) -> None:
    assert format_data(data) == shown
