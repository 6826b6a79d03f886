"""The table of commands: one row each, from which come parsing, usage, help, completion and the manual."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

from zoolet.client.shell.flags import Flag, Parsed

if TYPE_CHECKING:
    from zoolet.client.shell.shell import Shell

Run = Callable[["Shell", Parsed], Awaitable[None]]
"""Runs a command, given the shell and its words."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command.

    Args:
        name: What is typed.
        usage: What may follow, as ZooKeeper's own shell shows it.
        summary: What it does, in a line.
        run: What does it.
        flags: Its flags.
        least: How many words it needs.
        most: How many it takes; None if what is too much is passed over, as by ZooKeeper's own shell.
        one_of: Those of its flags of which only one may be given.
        one_required: Whether one of those has to be.
        lists_flags: Whether its usage lists the flags.
        ours: Whether ZooKeeper's own shell lacks it.
        alias: It is another name of this command, and not listed.
        paths: How many of its words are paths of nodes.
        offline: Whether it works without a connection.
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
        """Return how it is used, as it is shown if words are missing."""
        first = f"{self.name} {self.usage}"
        if not self.lists_flags:
            return first
        return "\n".join([first, *self.flag_lines(), ""])

    def flag_lines(self) -> list[str]:
        """Return a line for each flag.

        Source: org.apache.commons.cli.HelpFormatter.
        """
        names = [f" -{flag.name}" + (" <arg>" if flag.value else "") for flag in self.flags]
        width = max(map(len, names), default=0) + 3
        return [f"{name:<{width}}{flag.help}" for name, flag in zip(names, self.flags, strict=True)]


_COMMANDS: Final[dict[str, Command]] = {}
_PACKAGE: Final = "zoolet.client.shell.commands"
_MODULES: Final = ["nodes", "access", "session", "watching", "servers", "subtrees", "searching", "copying", "quotas"]
"""The modules with commands that are imported when they are needed: a shell for one command needs one of them."""


def find(name: str) -> Command | None:
    """Return the command of that name; None if there is none."""
    while name not in _COMMANDS and _MODULES:
        import_module(f"{_PACKAGE}.{_MODULES.pop(0)}")
    return _COMMANDS.get(name)


def all_commands() -> dict[str, Command]:
    """Return all commands by name, aliases too."""
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
    """Enter a function into the table; arguments as for :class:`Command`."""

    def enter(run: Run) -> Run:
        for each in (name, *aliases):
            _COMMANDS[each] = Command(
                each, usage, summary, run, (*flags, *one_of), least, most, one_of, one_required, lists_flags, ours,
                name if each != name else "", paths, offline,
            )  # fmt: skip
        return run

    return enter


def listed() -> list[Command]:
    """Return the commands in order of their names, aliases left out."""
    rows = all_commands()
    return [rows[name] for name in sorted(rows) if not rows[name].alias]
