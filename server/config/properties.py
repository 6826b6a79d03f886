"""The parsers for Java properties: files, and ``-Dname=value`` options.

Source: java.util.Properties.load; zkServer.sh.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple


class SettingSource(Enum):
    """The kind of place that a setting comes from."""

    FILE = auto()
    """A configuration file, or a mapping that stands for one."""
    OPTION = auto()
    """An option of the command line, such as ``--port``."""
    DEFINITION = auto()
    """A ``-Dname=value`` of the command line. It may be meant for other software."""
    ENVIRONMENT = auto()
    """A ``-Dname=value`` of an environment variable. ZooKeeper's clients also read these."""


class Setting(NamedTuple):
    """One value, and the place where it was set.

    Args:
        value: The text after the key.
        where: The place, for messages: ``zoo.cfg:12``.
        source: The kind of place.
    """

    value: str
    where: str
    source: SettingSource = SettingSource.FILE


JVM_VARIABLES: Final = ("SERVER_JVMFLAGS", "JVMFLAGS")
"""Environment variables with options of Java. As in Java, the second overrides the first."""
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_PATTERN: Final = r"(?s)((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)"


def parse_properties(text: str, name: str) -> dict[str, Setting]:
    """Parse a properties file: ``key=value``, ``key: value`` or ``key value``, comments, escapes, continued lines.

    Args:
        text: The text of the file.
        name: The name of the file, for messages.
    """
    settings: dict[str, Setting] = {}
    lines = iter(enumerate(re.split("\r\n|\r|\n", text), 1))
    for number, line in lines:
        line = line.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while len(line) - len(line.rstrip("\\")) & 1:  # an odd number of backslashes continues the line
            _, more = next(lines, (0, ""))
            line = line[:-1] + more.lstrip(" \t\f")
        match = re.match(_LINE_PATTERN, line)
        assert match is not None  # the pattern matches every line
        set_as_last(settings, _unescape(match[1]), Setting(_unescape(match[2]).strip(), f"{name}:{number}"))
    return settings


def set_as_last(settings: dict[str, Setting], name: str, setting: Setting) -> None:
    """Set a key, and make it the last one. The later one of ``skipACL`` and ``zookeeper.skipACL`` is used."""
    settings.pop(name, None)
    settings[name] = setting


def parse_definitions(
    arguments: list[str], where: str, source: SettingSource = SettingSource.DEFINITION
) -> dict[str, Setting]:
    """Parse ``-Dname=value`` options and ignore all others."""
    settings: dict[str, Setting] = {}
    for argument in arguments:
        if argument.startswith("-D"):
            name, _, value = argument[2:].partition("=")
            set_as_last(settings, name, Setting(value, where, source))
    return settings


def parse_environment(environ: Mapping[str, str], variables: Sequence[str] = JVM_VARIABLES) -> dict[str, Setting]:
    """Parse the -D options of environment variables.

    Args:
        environ: The environment.
        variables: The names of the variables. Later ones override earlier ones.

    Raises:
        ValueError: A quotation mark is not closed. The message names the variable.
    """
    settings: dict[str, Setting] = {}
    for name in variables:
        if name not in environ:
            continue
        import shlex  # most environments have none of the variables

        where = f"environment variable {name}"
        try:
            words = shlex.split(environ[name])
        except ValueError as error:
            raise ValueError(f"{where}: cannot split the value into options: {error}") from None
        for key, setting in parse_definitions(words, where, SettingSource.ENVIRONMENT).items():
            set_as_last(settings, key, setting)
    return settings


def _unescape(text: str) -> str:
    return re.sub(
        r"\\(u[0-9a-fA-F]{4}|.)",
        lambda m: chr(int(m[1][1:], 16)) if m[1][0] == "u" and len(m[1]) == 5 else _ESCAPES.get(m[1], m[1]),
        text,
        flags=re.DOTALL,
    )
