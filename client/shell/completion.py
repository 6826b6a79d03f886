"""Completions of a line that is being typed: commands, flags, and the paths that there are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from zoolet.client.shell import words
from zoolet.client.shell.command import find, listed
from zoolet.client.shell.errors import CommandError
from zoolet.client.shell.texts import printable
from zoolet.protocol import paths
from zoolet.protocol.errors import ZooKeeperError

if TYPE_CHECKING:
    from zoolet.client.shell.shell import Shell

MAX_PATHS: Final = 500
"""Completions that are offered."""
SECONDS: Final = 2.0
"""The longest that a server is waited for."""


async def completions(shell: Shell, line: str) -> list[str]:
    """Return what the last word of a line may be, each as a whole word.

    Args:
        shell: The shell.
        line: The line as far as the cursor.
    """
    complete, last, _ = words.last_word(line)
    if not complete:
        return [row.name for row in listed() if row.name.startswith(last)]
    row = find(complete[0])
    if row is None:
        return []
    if complete[0] == "help":
        return [each.name for each in listed() if each.name.startswith(last)]
    if last.startswith("-"):
        return [f"-{flag.name}" for flag in row.flags if f"-{flag.name}".startswith(last)]
    if complete[0] == "printwatches":
        return [word for word in ("on", "off") if word.startswith(last)]
    if last.startswith("/") or (shell.directory and row.paths):
        return await _paths(shell, last)
    return ["/"] if row.paths and not last else []


async def _paths(shell: Shell, last: str) -> list[str]:
    """Return the paths that begin like a word; nothing if the server does not answer in time."""
    above, slash, prefix = last.rpartition("/")
    try:
        parent = shell.path(above or slash or shell.directory)
        async with asyncio.timeout(SECONDS):
            names = await shell.client.children(parent)
    except (CommandError, ZooKeeperError, TimeoutError):
        return []
    # What does not show as it is could do something to the terminal, or be something else than it seems to be.
    matching = sorted(name for name in names if name.startswith(prefix) and printable(name) == name)[:MAX_PATHS]
    return [paths.join(above, name) if slash else name for name in matching]
