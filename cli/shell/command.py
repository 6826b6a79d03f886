"""The table of commands. Parsing, usage, help, completion and the manual are derived from its rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

from .flags import Flag, ParsedArguments

if TYPE_CHECKING:
    from .shell import Shell

Run = Callable[["Shell", ParsedArguments], Awaitable[None]]
"""Function that runs a command, given the shell, and the parsed flags and words of the command."""


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One row of the table: a command of the shell.

    Args:
        name: Name of the command.
        usage: Arguments in the notation of zkCli.
        summary: One-line description.
        run: Function that runs the command.
        flags: Flags of the command.
        least: Minimum number of words.
        most: Maximum number of words; None to ignore additional words, as zkCli does.
        one_of: Flags of which at most one may be given.
        one_required: Whether one of the flags in *one_of* must be given.
        lists_flags: Whether the usage lists the flags.
        ours: Whether the command is an addition of zoolet, which zkCli lacks.
        alias: Name of the command that this name stands for. An alias is not listed.
        paths: Number of words that are paths of nodes.
        offline: Whether the command works without a connection.
    """

    name: str
    usage: str
    summary: str
    run: Run
    flags: tuple[Flag, ...] = ()
    least: int = 0
    most: int | None = None
    one_of: tuple[Flag, ...] = ()
    one_required: bool = False
    lists_flags: bool = False
    ours: bool = False
    alias: str = ""
    paths: int = 0
    offline: bool = False

    def usage_text(self) -> str:
        """Return the usage, which is printed if the number of words is wrong."""
        first = f"{self.name} {self.usage}"
        if not self.lists_flags:
            return first
        return "\n".join([first, *self.flag_lines(), ""])

    def flag_lines(self) -> list[str]:
        """Return a line with the help of each flag.

        Source: org.apache.commons.cli.HelpFormatter.
        """
        names = [f" -{flag.name}" + (" <arg>" if flag.value else "") for flag in self.flags]
        width = max(map(len, names), default=0) + 3
        return [f"{name:<{width}}{flag.help}" for name, flag in zip(names, self.flags, strict=True)]


_COMMANDS: Final[dict[str, ShellCommand]] = {}
_COMMANDS_PACKAGE: Final = "zoolet.cli.shell.commands"
_MODULES: Final = ["nodes", "access", "session", "watching", "servers", "subtrees", "searching", "copying", "quotas"]
"""Modules of commands that are not imported yet. :func:`find` imports them in this order until it finds the command."""


def find(name: str) -> ShellCommand | None:
    """Return the command with this name, or None if the name is unknown. Import modules of commands as needed."""
    while name not in _COMMANDS and _MODULES:
        import_module(f"{_COMMANDS_PACKAGE}.{_MODULES.pop(0)}")
    return _COMMANDS.get(name)


def all_commands() -> dict[str, ShellCommand]:
    """Return all commands by name, including aliases."""
    find("")
    return _COMMANDS


def command(
    name: str,
    usage: str,
    summary: str,
    *flags: Flag,
    least: int = 0,
    most: int | None = None,
    one_of: tuple[Flag, ...] = (),
    one_required: bool = False,
    lists_flags: bool = False,
    ours: bool = False,
    paths: int = 0,
    offline: bool = False,
    aliases: tuple[str, ...] = (),
) -> Callable[[Run], Run]:
    """Return a decorator that adds a function to the table. For the arguments see :class:`ShellCommand`."""

    def enter(run: Run) -> Run:
        for each in (name, *aliases):
            _COMMANDS[each] = ShellCommand(
                each, usage, summary, run, (*flags, *one_of), least, most, one_of, one_required, lists_flags, ours,
                name if each != name else "", paths, offline,
            )  # fmt: skip
        return run

    return enter


def sorted_commands() -> list[ShellCommand]:
    """Return the commands sorted by name, without aliases."""
    rows = all_commands()
    return [rows[name] for name in sorted(rows) if not rows[name].alias]
