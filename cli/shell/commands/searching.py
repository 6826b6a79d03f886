"""Searching: find (by name and Stat) and grep (by data)."""

from __future__ import annotations

import fnmatch
import re
import time
from typing import TYPE_CHECKING

from ....client.aio.subtree import MAX_IN_FLIGHT, request_each
from ....protocol import paths
from ....protocol import records as r
from ....protocol.errors import NoAuthError, NoNodeError, ZooKeeperError
from ..command import command
from ..errors import ShellCommandError
from ..flags import Flag, ParsedArguments
from ..matcher import Matcher
from ..output import BOLD
from ..texts import stat_json
from ..walk import raise_if_forbidden, walk
from .nodes import number

if TYPE_CHECKING:
    from ..shell import Shell


@command(
    "find",
    "[path] [-name pattern] [-ephemeral] [-owner session] [-larger bytes] [-changed seconds] [-empty]",
    "print the paths of nodes that match all flags",
    Flag("name", "the name matches this pattern with * and ?", "pattern"),
    Flag("ephemeral", "the node is ephemeral"),
    Flag("owner", "the node is ephemeral and owned by this session, such as 0x1234", "session"),
    Flag("larger", "the data has more bytes", "bytes"),
    Flag("changed", "the data has changed in this many seconds, by the local clock", "seconds"),
    Flag("empty", "the node has neither data nor children"),
    paths=1,
    most=1,
    ours=True,
)
async def find(shell: Shell, arguments: ParsedArguments) -> None:
    """Print the paths in a subtree whose name and Stat match the flags.

    Raises:
        ShellCommandError: A flag has an invalid value, or some nodes may not be read. Readable nodes are printed.
        NoNodeError: The root does not exist.
    """
    root = shell.path(arguments.word(0, shell.directory or "/"))
    pattern = re.compile(fnmatch.translate(arguments.flags.get("name", "*")))
    test = _StatFilter(arguments)
    forbidden: set[str] = set()
    async for batch in walk(shell.client, root, forbidden):
        named = [path for path in batch if pattern.match(paths.name(path))]
        for start in range(0, len(named), MAX_IN_FLIGHT):
            part = named[start : start + MAX_IN_FLIGHT]
            await _print_matching_nodes(shell, part, test, forbidden)
            shell.out.flush()
    raise_if_forbidden(forbidden)


async def _print_matching_nodes(shell: Shell, part: list[str], test: _StatFilter, forbidden: set[str]) -> None:
    """Print the nodes that pass the test. Add unreadable nodes to *forbidden*."""
    if not test.needs_stat and not shell.out.as_json:
        for path in part:
            shell.out.line(None, path)
        return
    for path, stat in zip(part, await request_each(shell.client.exists, part, NoNodeError, NoAuthError), strict=True):
        if isinstance(stat, NoAuthError):
            forbidden.add(path)
        elif isinstance(stat, r.Stat) and test.passes(stat):
            shell.out.line({"path": path, "stat": stat_json(stat)}, path)


class _StatFilter:
    """The conditions of find's flags that concern the Stat of a node.

    Raises:
        ShellCommandError: A flag has an invalid value.
    """

    def __init__(self, arguments: ParsedArguments) -> None:
        flags = arguments.flags
        self.needs_stat = bool(flags.keys() - {"name"})
        self._ephemeral = "ephemeral" in flags
        self._empty = "empty" in flags
        self._owner = self._larger = self._since = None
        if "owner" in flags:
            try:
                self._owner = int(flags["owner"], 0) & 0xFFFFFFFFFFFFFFFF
            except ValueError:
                raise ShellCommandError(f"-owner must be a session id such as 0x1234, not {flags['owner']}") from None
        if "larger" in flags:
            self._larger = number(flags["larger"], f"-larger must be a number of bytes, not {flags['larger']}")
        if "changed" in flags:
            try:
                self._since = (time.time() - float(flags["changed"])) * 1000
            except ValueError:
                raise ShellCommandError(f"-changed must be a number of seconds, not {flags['changed']}") from None

    def passes(self, stat: r.Stat) -> bool:
        """Return whether the Stat of a node meets all conditions."""
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
    Flag("i", "ignore case"),
    Flag("l", "print only the paths"),
    Flag("F", "the pattern is plain text"),
    least=1,
    most=2,
    ours=True,
)
async def grep(shell: Shell, arguments: ParsedArguments) -> None:
    """Print the lines of data in a subtree that match a pattern, or with ``-l`` the paths of the nodes.

    Raises:
        ShellCommandError: No line matches, the pattern is invalid, or some nodes may not be read.
        NoNodeError: The root does not exist.
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
                matched = await _print_matching_lines(shell, part, matcher, arguments.has("l"), forbidden) or matched
                shell.out.flush()
    raise_if_forbidden(forbidden)
    if not matched:
        raise ShellCommandError(f"no data below {root} matches {arguments.words[0]}")


async def _print_matching_lines(
    shell: Shell, paths: list[str], matcher: Matcher, only_paths: bool, forbidden: set[str]
) -> bool:
    """Print the matching lines in the data of some nodes. Return whether any line matches.

    Unreadable nodes are added to *forbidden*.
    """
    matched = False
    for path, answer in zip(paths, await request_each(shell.client.get, paths, NoNodeError, NoAuthError), strict=True):
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
