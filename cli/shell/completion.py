"""Completions of a line that the user is typing: commands, flags and existing paths."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ...protocol import paths
from ...protocol.errors import ZooKeeperError
from . import words
from .command import find, sorted_commands
from .errors import ShellCommandError
from .texts import printable

if TYPE_CHECKING:
    from .shell import Shell

MAX_PATHS: Final = 500
"""Maximum number of paths to offer."""
COMPLETION_TIMEOUT_S: Final = 2.0
"""Maximum number of seconds to wait for the names of children."""


async def completions(shell: Shell, line: str) -> list[str]:
    """Return the completions of the last word of a line, each as a whole word.

    Args:
        shell: The shell.
        line: The line up to the cursor.
    """
    complete, last, _ = words.last_word(line)
    if not complete:
        return [row.name for row in sorted_commands() if row.name.startswith(last)]
    row = find(complete[0])
    if row is None:
        return []
    if complete[0] == "help":
        return [each.name for each in sorted_commands() if each.name.startswith(last)]
    if last.startswith("-"):
        return [f"-{flag.name}" for flag in row.flags if f"-{flag.name}".startswith(last)]
    if complete[0] == "printwatches":
        return [word for word in ("on", "off") if word.startswith(last)]
    if last.startswith("/") or (shell.directory and row.paths):
        return await _path_completions(shell, last)
    return ["/"] if row.paths and not last else []


async def _path_completions(shell: Shell, last: str) -> list[str]:
    """Return the paths that start with a word, or an empty list if the server does not answer in time."""
    above, slash, prefix = last.rpartition("/")
    try:
        parent = shell.path(above or slash or shell.directory)
        async with asyncio.timeout(COMPLETION_TIMEOUT_S):
            names = await shell.client.children(parent)
    except (ShellCommandError, ZooKeeperError, TimeoutError):
        return []
    # Unprintable names could control the terminal or look like other names.
    matching = sorted(name for name in names if name.startswith(prefix) and printable(name) == name)[:MAX_PATHS]
    return [paths.join(above, name) if slash else name for name in matching]
