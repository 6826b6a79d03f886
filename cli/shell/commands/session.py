"""The shell itself: connect, close, quit, cd, pwd, history, redo, help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.errors import NoNodeError
from .. import words
from ..command import command, find, sorted_commands
from ..errors import ShellCommandError, unknown_command_message
from ..flags import ParsedArguments

if TYPE_CHECKING:
    from ..shell import Shell

HISTORY_LINES: Final = 11
"""Maximum number of lines that the command history prints."""


@command("connect", "host:port", "close the session, and connect to other servers", offline=True)
async def connect(shell: Shell, arguments: ParsedArguments) -> None:
    """Close the session, and open a session on the given hosts. By default, the hosts stay the same.

    Raises:
        ShellCommandError: The connect string is invalid.
    """
    await shell.close()
    shell.directory = ""
    await shell.connect(arguments.word(0) or None)
    await shell.report_connection()


@command("close", "", "close the session", offline=True)
async def close(shell: Shell, arguments: ParsedArguments) -> None:
    """Close the session. The shell stays open, and ``connect`` opens a new session."""
    await shell.close()


@command("quit", "", "close the session, and exit the shell", aliases=("exit",), offline=True)
async def quit_shell(shell: Shell, arguments: ParsedArguments) -> None:
    """Close the session and leave the shell."""
    shell.ended = True


@command("cd", "[path]", "set the node for relative paths (default /)", most=1, ours=True, paths=1)
async def cd(shell: Shell, arguments: ParsedArguments) -> None:
    """Set the node that relative paths start from.

    Raises:
        NoNodeError: The node does not exist.
    """
    path = shell.path(arguments.word(0, "/"))
    if await shell.client.exists(path) is None:
        raise NoNodeError(path)
    shell.directory = path


@command("pwd", "", "print the node for relative paths", most=0, ours=True, offline=True)
async def pwd(shell: Shell, arguments: ParsedArguments) -> None:
    """Print the node that relative paths start from."""
    shell.out.show({"path": shell.directory or "/"}, [shell.directory or "/"])


@command("history", "", "print the last lines", offline=True)
async def history(shell: Shell, arguments: ParsedArguments) -> None:
    """Print the last lines with their numbers."""
    lines = list(enumerate(shell.history))[-HISTORY_LINES:] or [(0, "null")]
    shell.out.show(
        [{"number": number, "line": line} for number, line in lines], [f"{number} - {line}" for number, line in lines]
    )
    shell.report_if_closed()


@command("redo", "cmdno", "execute a line of the history", offline=True)
async def redo(shell: Shell, arguments: ParsedArguments) -> None:
    """Execute a line of the history again.

    Raises:
        ShellCommandError: The history has no line with this number, or the line is a redo command.
    """
    if not arguments.words:
        return
    text = arguments.words[0]
    place = int(text) if text.isdecimal() and len(text) < 10 else -1
    if not 0 <= place < len(shell.history) - 1:
        raise ShellCommandError("Command index out of range")
    line = shell.history[place]
    if words.split(line)[:1] == ["redo"]:
        raise ShellCommandError("No redoing redos")
    shell.history[-1] = shell.pending = line


@command("help", "[command]", "explain the commands", most=1, ours=True, offline=True)
async def help_command(shell: Shell, arguments: ParsedArguments) -> None:
    """Print all commands, or the usage of one command.

    Raises:
        ShellCommandError: The command is unknown.
    """
    if arguments.words:
        row = find(arguments.words[0])
        if row is None:
            raise ShellCommandError(unknown_command_message(arguments.words[0]))
        shell.out.show(
            {"name": row.name, "usage": row.usage, "summary": row.summary},
            [f"{row.name} {row.usage}", f"  {row.summary}", *row.flag_lines()],
        )
        return
    rows = sorted_commands()
    width = max(len(row.name) for row in rows)
    shell.out.show(
        [{"name": row.name, "usage": row.usage, "summary": row.summary} for row in rows],
        [
            *(f"{row.name:<{width}}  {row.summary}" for row in rows),
            "",
            "Type help COMMAND for its flags. Every command accepts --json to print its result as JSON.",
        ],
    )
