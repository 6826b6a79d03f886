"""Subtrees: deleteall, tree, du."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final, NamedTuple

from zoolet.client.aio.subtree import MAX_IN_FLIGHT, ask
from zoolet.client.shell.command import command
from zoolet.client.shell.commands.nodes import number
from zoolet.client.shell.errors import CommandError
from zoolet.client.shell.flags import Flag, Parsed
from zoolet.client.shell.nodes_text import shown_data
from zoolet.client.shell.walk import children_of, report, walk
from zoolet.progress import Progress
from zoolet.protocol import records as r
from zoolet.protocol.errors import NoAuthError, NoNodeError, ZooKeeperError

if TYPE_CHECKING:
    from zoolet.client.shell.shell import Shell

BATCH: Final = 1000
"""Nodes that deleteall deletes at once."""


@command(
    "deleteall",
    "path [-b batch size]",
    "delete a node and all below it",
    Flag("b", "how many are deleted at once (default 1000)", "batch size"),
    least=1,
    paths=1,
)
async def delete_all(shell: Shell, arguments: Parsed) -> None:
    """Delete a node and all below it, and print how many.

    Raises:
        CommandError: The size of a batch cannot be used.
        NoNodeError: There is no such node.
        ZooKeeperError: The server refuses it.
    """
    text = arguments.flags.get("b", str(BATCH))
    batch = number(text, "-b argument must be an int value")
    if not 0 < batch < 1 << 31:
        raise CommandError(f"-b is {text}; it must be at least 1")
    await _delete_all(shell, shell.path(arguments.words[0]), batch)


async def _delete_all(shell: Shell, path: str, batch: int) -> None:
    """Delete a subtree, many nodes at once, each after those below it.

    Raises:
        NoNodeError: There is no such node.
        NoAuthError: The children of a node may not be listed; nothing was deleted.
    """
    nodes: list[str] = []
    with Progress("listing") as progress:
        async for paths in walk(shell.client, path):
            nodes += paths
            progress.show("nodes", len(nodes), 0)
    failed = deleted = 0
    first: ZooKeeperError | None = None
    with Progress("deleting") as progress:
        for end in range(len(nodes), 0, -batch):  # each is listed before what is below it
            calls = [shell.client.delete(node) for node in reversed(nodes[max(0, end - batch) : end])]
            for answer in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(answer, NoNodeError) or answer is None:
                    deleted += 1
                elif isinstance(answer, ZooKeeperError):
                    failed, first = failed + 1, first or answer
                else:
                    raise answer
            progress.show("nodes", deleted, len(nodes))
    if failed:
        shell.out.error("Failed to delete some node(s) in the subtree!")
    shell.out.show({"path": path, "deleted": deleted, "failed": failed, "reason": str(first or "") or None}, ())


@command("rmr", "path", "delete a node and all below it", least=1, paths=1, most=1, ours=True)
async def rmr(shell: Shell, arguments: Parsed) -> None:
    """Delete a node and all below it, as old releases did.

    Raises:
        NoNodeError: There is no such node.
        ZooKeeperError: The server refuses it.
    """
    shell.out.remark("The command 'rmr' has been deprecated. Please use 'deleteall' instead.")
    await _delete_all(shell, shell.path(arguments.words[0]), BATCH)


# --- tree ---


@command(
    "tree",
    "[-L depth] [-d] [path]",
    "draw a subtree",
    Flag("L", "draw no more levels than this", "depth"),
    Flag("d", "print short data, too"),
    paths=1,
    most=1,
    ours=True,
)
async def tree(shell: Shell, arguments: Parsed) -> None:
    """Draw a subtree.

    Raises:
        NoNodeError: There is no such node.
        CommandError: The children of some nodes may not be listed; the others were printed.
    """
    path = shell.path(arguments.word(0, shell.directory or "/"))
    depth = _levels(arguments, "1000000")
    (first,) = await children_of(shell.client, [path])
    if isinstance(first, ZooKeeperError):
        raise first
    texts = await _texts(shell, [path]) if arguments.has("d") else [""]
    shell.out.line({"path": path}, path + texts[0])
    count = 0
    forbidden: set[str] = set()
    async for node, line in _branches(shell, first, depth, arguments.has("d"), forbidden):
        shell.out.line({"path": node}, line)
        count += 1
        if count % MAX_IN_FLIGHT == 0:
            shell.out.flush()
    if not shell.out.as_json:
        shell.out.show(None, ["", f"{count + 1:,} node{'s' * (count > 0)}"])
    shell.out.flush()
    report(forbidden)


class _Level(NamedTuple):
    """Siblings that are drawn: one of them after the other, each with all that is below it.

    Args:
        paths: The siblings.
        known: Of those that come next, the children and the texts.
        indent: What stands before each.
        place: How many of them are drawn.
    """

    paths: list[str]
    known: list[tuple[list[str], str]]
    indent: str
    place: int = 0


async def _branches(
    shell: Shell, siblings: list[str], depth: int, with_data: bool, forbidden: set[str]
) -> AsyncIterator[tuple[str, str]]:
    """Yield each node below, and its line; siblings are asked for their children in batches."""
    levels = [_Level(siblings, [], "")] if depth > 0 else []
    while levels:
        level = levels.pop()
        if level.place == len(level.paths):
            continue
        coming = level.paths[level.place :][:MAX_IN_FLIGHT]
        known = level.known or await _ask(shell, coming, len(levels) + 1 < depth, with_data, forbidden)
        path, (children, text) = level.paths[level.place], known[0]
        last = level.place == len(level.paths) - 1
        yield path, f"{level.indent}{'└' if last else '├'}── {path.rpartition('/')[2]}{text}"
        levels.append(level._replace(known=known[1:], place=level.place + 1))
        if children:
            levels.append(_Level(children, [], level.indent + ("    " if last else "│   ")))


async def _ask(
    shell: Shell, paths: list[str], with_children: bool, with_data: bool, forbidden: set[str]
) -> list[tuple[list[str], str]]:
    """Return the children of each node, none of those that may not be listed, and what is printed behind its name."""
    below = await children_of(shell.client, paths) if with_children else [[] for _ in paths]
    forbidden |= {path for path, names in zip(paths, below, strict=True) if isinstance(names, NoAuthError)}
    texts = await _texts(shell, paths) if with_data else [""] * len(paths)
    return [(names if isinstance(names, list) else [], text) for names, text in zip(below, texts, strict=True)]


async def _texts(shell: Shell, paths: list[str]) -> list[str]:
    """Return what is printed behind the name of each node."""
    texts = []
    for answer in await ask(shell.client.get, paths, NoNodeError, NoAuthError):
        text = "" if isinstance(answer, ZooKeeperError) else shown_data(answer[0])
        texts.append(f"  {text}" if text else "")
    return texts


# --- du ---


@command(
    "du",
    "[-L depth] [path]",
    "count the bytes of data and the nodes of subtrees",
    Flag("L", "print so many levels (default 1)", "depth"),
    paths=1,
    most=1,
    ours=True,
)
async def du(shell: Shell, arguments: Parsed) -> None:
    """Print bytes and nodes of a subtree, level by level.

    Raises:
        NoNodeError: There is no such node.
        CommandError: Some nodes may not be read; the others were counted.
    """
    root = shell.path(arguments.word(0, shell.directory or "/"))
    depth = _levels(arguments, "1")
    sums: dict[str, list[int]] = {}
    forbidden: set[str] = set()
    done = 0
    with Progress("reading") as progress:
        async for batch in walk(shell.client, root, forbidden):
            for start in range(0, len(batch), MAX_IN_FLIGHT):
                part = batch[start : start + MAX_IN_FLIGHT]
                for path, stat in zip(
                    part, await ask(shell.client.exists, part, NoNodeError, NoAuthError), strict=True
                ):
                    if isinstance(stat, NoAuthError):
                        forbidden.add(path)
                    elif isinstance(stat, r.Stat):
                        _add(sums, root, path, depth, stat.dataLength)
                done += len(part)
                progress.show("nodes", done, 0)
    for path in sorted(sums):
        size, nodes = sums[path]
        shell.out.line({"path": path, "bytes": size, "nodes": nodes}, f"{size:>14,} bytes {nodes:>10,} nodes  {path}")
    shell.out.flush()
    report(forbidden)


def _add(sums: dict[str, list[int]], root: str, path: str, depth: int, size: int) -> None:
    """Add a node to the sums of those above it that are printed."""
    below = path[len(root.rstrip("/")) :].strip("/").split("/") if path != root else []
    above = root
    for name in ["", *below[:depth]]:
        above = above if not name else f"{above.rstrip('/')}/{name}"
        entry = sums.setdefault(above, [0, 0])
        entry[0] += size
        entry[1] += 1


def _levels(arguments: Parsed, default: str) -> int:
    """Return the number of levels that ``-L`` asks for."""
    text = arguments.flags.get("L", default)
    return number(text, f"-L is {text}; it must be a number of levels")
