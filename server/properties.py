"""Read Java properties: files, and ``-Dname=value`` options.

Source: java.util.Properties.load; zkServer.sh.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Final, NamedTuple


class Setting(NamedTuple):
    """One value, and where it was said, for messages."""

    value: str
    where: str


_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


def _unescape(text: str) -> str:
    return re.sub(
        r"\\(u[0-9a-fA-F]{4}|.)",
        lambda m: chr(int(m[1][1:], 16)) if m[1][0] == "u" and len(m[1]) == 5 else _ESCAPES.get(m[1], m[1]),
        text,
        flags=re.DOTALL,
    )


def parse_properties(text: str, name: str) -> dict[str, Setting]:
    """Read a properties file: ``key=value``, ``key: value`` or ``key value``; comments, escapes, continued lines.

    Args:
        text: The file's text.
        name: Its name, for messages.
    """
    settings: dict[str, Setting] = {}
    lines = iter(enumerate(re.split("\r\n|\r|\n", text), 1))
    for number, line in lines:
        line = line.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while len(line) - len(line.rstrip("\\")) & 1:
            _, more = next(lines, (0, ""))
            line = line[:-1] + more.lstrip(" \t\f")
        match = _LINE.match(line)
        assert match is not None  # the pattern matches every line
        settings[_unescape(match[1])] = Setting(_unescape(match[2]).strip(), f"{name}, line {number}")
    return settings


def parse_definitions(arguments: list[str], where: str) -> dict[str, Setting]:
    """Read ``-Dname=value`` options; others are left out."""
    settings = {}
    for argument in arguments:
        if argument.startswith("-D"):
            name, _, value = argument[2:].partition("=")
            settings[name] = Setting(value, f"{where}: {argument}")
    return settings


def read_environment(environ: Mapping[str, str]) -> dict[str, Setting]:
    """Read the -D options of ``SERVER_JVMFLAGS`` and ``JVMFLAGS``; the second beat the first, as with Java.

    Raises:
        ValueError: A quotation mark is not closed.
    """
    settings: dict[str, Setting] = {}
    for name in ("SERVER_JVMFLAGS", "JVMFLAGS"):
        try:
            settings |= parse_definitions(shlex.split(environ.get(name, "")), f"environment variable {name}")
        except ValueError as error:
            raise ValueError(f"environment variable {name}: {error}") from None
    return settings
