"""The shell itself: connect, close, quit, cd, pwd, history, redo, help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from zoolet.client.shell import words
from zoolet.client.shell.command import command, find, listed
from zoolet.client.shell.errors import CommandError
from zoolet.client.shell.flags import Parsed
from zoolet.protocol.errors import NoNodeError

if TYPE_CHECKING:
    from zoolet.client.shell.shell import Shell

HISTORY_LINES: Final = 11
"""Lines that history shows."""


@command("connect", "host:port", "close the session, and connect to other servers", offline=True)
async def connect(shell: Shell, arguments: Parsed) -> None:
    """Connect to other hosts, in a new session.

    Raises:
        ValueError: The hosts cannot be read.
    """
    await shell.close()
    shell.directory = ""
    shell.connect(arguments.word(0) or None)
    await shell.report_connection()


@command("close", "", "close the session", offline=True)
async def close(shell: Shell, arguments: Parsed) -> None:
    """Close the session; ``connect`` opens another."""
    await shell.close()


@command("quit", "", "close the session, and end the shell", aliases=("exit",), offline=True)
async def quit_shell(shell: Shell, arguments: Parsed) -> None:
    """Close the session and leave the shell."""
    shell.ended = True


@command("cd", "[path]", "begin relative paths at a node; without one, at the root", most=1, ours=True, paths=1)
async def cd(shell: Shell, arguments: Parsed) -> None:
    """Set the directory, to which relative paths refer.

    Raises:
        NoNodeError: There is no such node.
    """
    path = shell.path(arguments.word(0, "/"))
    if await shell.client.exists(path) is None:
        raise NoNodeError(path)
    shell.directory = path


@command("pwd", "", "print the node that relative paths begin at", most=0, ours=True, offline=True)
async def pwd(shell: Shell, arguments: Parsed) -> None:
    """Print the node to which relative paths refer."""
    shell.out.show({"path": shell.directory or "/"}, [shell.directory or "/"])


@command("history", "", "print the last lines", offline=True)
async def history(shell: Shell, arguments: Parsed) -> None:
    """Print the last commands with their numbers."""
    lines = list(enumerate(shell.history))[-HISTORY_LINES:] or [(0, "null")]
    shell.out.show(
        [{"number": number, "line": line} for number, line in lines], [f"{number} - {line}" for number, line in lines]
    )
    shell.report_if_closed()


@command("redo", "cmdno", "execute a line of the history", offline=True)
async def redo(shell: Shell, arguments: Parsed) -> None:
    """Run a command of the history again.

    Raises:
        CommandError: It has no such number, or the command is redo itself.
    """
    if not arguments.words:
        return
    text = arguments.words[0]
    place = int(text) if text.isdecimal() and len(text) < 10 else -1
    if not 0 <= place < len(shell.history) - 1:
        raise CommandError("Command index out of range")
    line = shell.history[place]
    if words.split(line)[:1] == ["redo"]:
        raise CommandError("No redoing redos")
    shell.history[-1] = shell.pending = line


@command("help", "[command]", "explain the commands", most=1, ours=True, offline=True)
async def help_command(shell: Shell, arguments: Parsed) -> None:
    """Print all commands, or the usage of one.

    Raises:
        CommandError: There is no such command.
    """
    if arguments.words:
        row = find(arguments.words[0])
        if row is None:
            raise CommandError(f"there is no command {arguments.words[0]}; help lists them")
        shell.out.show(
            {"name": row.name, "usage": row.usage, "summary": row.summary},
            [f"{row.name} {row.usage}", f"  {row.summary}", *row.flag_lines()],
        )
        return
    rows = listed()
    width = max(len(row.name) for row in rows)
    shell.out.show(
        [{"name": row.name, "usage": row.usage, "summary": row.summary} for row in rows],
        [
            *(f"{row.name:<{width}}  {row.summary}" for row in rows),
            "",
            "help COMMAND explains its flags; --json makes the result of any command JSON.",
        ],
    )
