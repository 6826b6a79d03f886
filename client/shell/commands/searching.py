"""Searching: find, by what nodes are, and grep, by what they hold."""

from __future__ import annotations

import fnmatch
import re
import time
from typing import TYPE_CHECKING

from zoolet.client.aio.subtree import MAX_IN_FLIGHT, ask
from zoolet.client.shell.command import command
from zoolet.client.shell.commands.nodes import number
from zoolet.client.shell.errors import CommandError
from zoolet.client.shell.flags import Flag, Parsed
from zoolet.client.shell.matcher import Matcher
from zoolet.client.shell.output import BOLD
from zoolet.client.shell.texts import stat_json
from zoolet.client.shell.walk import report, walk
from zoolet.protocol import paths
from zoolet.protocol import records as r
from zoolet.protocol.errors import NoAuthError, NoNodeError, ZooKeeperError

if TYPE_CHECKING:
    from zoolet.client.shell.shell import Shell


@command(
    "find",
    "[path] [-name pattern] [-ephemeral] [-owner session] [-larger bytes] [-changed seconds] [-empty]",
    "print the paths of nodes that are as the flags say",
    Flag("name", "the last name matches this, with * and ? as in a shell", "pattern"),
    Flag("ephemeral", "it is ephemeral"),
    Flag("owner", "it is ephemeral, and of this session, as in 0x1234", "session"),
    Flag("larger", "its data has more bytes", "bytes"),
    Flag("changed", "its data was changed in the last so many seconds, by this machine's clock", "seconds"),
    Flag("empty", "it has neither data nor children"),
    paths=1,
    most=1,
    ours=True,
)
async def find(shell: Shell, arguments: Parsed) -> None:
    """Print the paths of a subtree whose name and Stat are as asked for.

    Raises:
        CommandError: A condition cannot be read, or some nodes may not be read; the others were printed.
        NoNodeError: There is no such node.
    """
    root = shell.path(arguments.word(0, shell.directory or "/"))
    pattern = re.compile(fnmatch.translate(arguments.flags.get("name", "*")))
    test = _Test(arguments)
    forbidden: set[str] = set()
    async for batch in walk(shell.client, root, forbidden):
        named = [path for path in batch if pattern.match(paths.name(path))]
        for start in range(0, len(named), MAX_IN_FLIGHT):
            part = named[start : start + MAX_IN_FLIGHT]
            await _show(shell, part, test, forbidden)
            shell.out.flush()
    report(forbidden)


async def _show(shell: Shell, part: list[str], test: _Test, forbidden: set[str]) -> None:
    """Print those of some nodes that pass the test."""
    if not test.needs_stat and not shell.out.as_json:
        for path in part:
            shell.out.line(None, path)
        return
    for path, stat in zip(part, await ask(shell.client.exists, part, NoNodeError, NoAuthError), strict=True):
        if isinstance(stat, NoAuthError):
            forbidden.add(path)
        elif isinstance(stat, r.Stat) and test.passes(stat):
            shell.out.line({"path": path, "stat": stat_json(stat)}, path)


class _Test:
    """The conditions on a Stat that the flags of find ask for."""

    def __init__(self, arguments: Parsed) -> None:
        flags = arguments.flags
        self.needs_stat = bool(flags.keys() - {"name"})
        self._ephemeral = "ephemeral" in flags
        self._empty = "empty" in flags
        self._owner = self._larger = self._since = None
        if "owner" in flags:
            try:
                self._owner = int(flags["owner"], 0) & 0xFFFFFFFFFFFFFFFF
            except ValueError:
                raise CommandError(f"-owner is {flags['owner']}; it must be a session id, as in 0x1234") from None
        if "larger" in flags:
            self._larger = number(flags["larger"], f"-larger is {flags['larger']}; it must be a number of bytes")
        if "changed" in flags:
            try:
                self._since = (time.time() - float(flags["changed"])) * 1000
            except ValueError:
                raise CommandError(f"-changed is {flags['changed']}; it must be a number of seconds") from None

    def passes(self, stat: r.Stat) -> bool:
        """Return whether a node is as the flags say."""
        owner = stat.ephemeralOwner & 0xFFFFFFFFFFFFFFFF
        return (
            not (self._ephemeral and not owner)
            and not (self._empty and (stat.dataLength or stat.numChildren))
            and (self._owner is None or owner == self._owner)
            and (self._larger is None or stat.dataLength > self._larger)
            and (self._since is None or stat.mtime >= self._since)
        )


@command(
    "grep",
    "[-i] [-l] [-F] pattern [path]",
    "print the lines of data that match a regular expression",
    Flag("i", "small and capital letters are the same"),
    Flag("l", "print only the paths"),
    Flag("F", "the pattern is plain text"),
    least=1,
    most=2,
    ours=True,
)
async def grep(shell: Shell, arguments: Parsed) -> None:
    """Print the lines of data that match, below a node.

    Raises:
        CommandError: Nothing matches, the pattern cannot be used, or some nodes may not be read.
        NoNodeError: There is no such node.
    """
    text = arguments.words[0].encode("utf-8", "surrogateescape")
    pattern = re.escape(text) if arguments.has("F") else text
    root = shell.path(arguments.word(1, shell.directory or "/"))
    matched = False
    forbidden: set[str] = set()
    async with Matcher(pattern, ignore_case=arguments.has("i")) as matcher:
        async for batch in walk(shell.client, root, forbidden):
            for start in range(0, len(batch), MAX_IN_FLIGHT):
                part = batch[start : start + MAX_IN_FLIGHT]
                matched = await _search(shell, part, matcher, arguments.has("l"), forbidden) or matched
                shell.out.flush()
    report(forbidden)
    if not matched:
        raise CommandError(f"nothing below {root} matches {arguments.words[0]}")


async def _search(shell: Shell, paths: list[str], matcher: Matcher, only_paths: bool, forbidden: set[str]) -> bool:
    """Print what matches in the data of some nodes; return whether anything does."""
    matched = False
    for path, answer in zip(paths, await ask(shell.client.get, paths, NoNodeError, NoAuthError), strict=True):
        if isinstance(answer, NoAuthError):
            forbidden.add(path)
        if isinstance(answer, ZooKeeperError):
            continue
        lines = await matcher.lines(answer[0] or b"")
        matched = matched or bool(lines)
        if only_paths and lines:
            shell.out.line({"path": path}, path)
        for line in [] if only_paths else lines:
            shown = line.decode("utf-8", "backslashreplace")
            shell.out.line({"path": path, "line": shown}, shell.out.paint(path, BOLD, f": {shown}"))
    return matched
