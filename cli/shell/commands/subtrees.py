"""Subtrees: deleteall, tree, du."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ....client.aio.subtree import MAX_IN_FLIGHT, request_each
from ....protocol import records as r
from ....protocol.errors import NoAuthError, NoNodeError, ZooKeeperError
from ...progress import Progress
from ..command import command
from ..errors import ShellCommandError
from ..flags import Flag, ParsedArguments
from ..nodes_text import format_data
from ..walk import list_children, raise_if_forbidden, walk
from .nodes import number

if TYPE_CHECKING:
    from ..shell import Shell

DELETE_BATCH_SIZE: Final = 1000
"""Default number of concurrent requests of deleteall."""


@command(
    "deleteall",
    "path [-b batch size]",
    "delete a subtree",
    Flag("b", "number of concurrent requests (default 1000)", "batch size"),
    least=1,
    paths=1,
)
async def delete_all(shell: Shell, arguments: ParsedArguments) -> None:
    """Delete a subtree.

    Raises:
        ShellCommandError: The batch size is invalid.
        NoNodeError: The node does not exist.
        NoAuthError: The children of a node may not be listed; no node was deleted.
    """
    text = arguments.flags.get("b", str(DELETE_BATCH_SIZE))
    batch = number(text, "-b argument must be an int value")
    if not 0 < batch < 1 << 31:
        raise ShellCommandError(f"-b must be a number from 1 to {(1 << 31) - 1}, not {text}")
    await _delete_all(shell, shell.path(arguments.words[0]), batch)


async def _delete_all(shell: Shell, path: str, batch: int) -> None:
    """Delete a subtree with concurrent requests, each node after the nodes below it.

    Raises:
        NoNodeError: The node does not exist.
        NoAuthError: The children of a node may not be listed; no node was deleted.
    """
    nodes: list[str] = []
    with Progress("listing") as progress:
        async for paths in walk(shell.client, path):
            nodes += paths
            progress.show("nodes", len(nodes), 0)
    failed = deleted = 0
    first: ZooKeeperError | None = None
    with Progress("deleting") as progress:
        for end in range(len(nodes), 0, -batch):  # each node is listed before the nodes below it
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


@command("rmr", "path", "delete a subtree", least=1, paths=1, most=1, ours=True)
async def rmr(shell: Shell, arguments: ParsedArguments) -> None:
    """Delete a subtree, as in old releases.

    Raises:
        NoNodeError: The node does not exist.
        NoAuthError: The children of a node may not be listed; no node was deleted.
    """
    shell.out.remark("The command 'rmr' has been deprecated. Please use 'deleteall' instead.")
    await _delete_all(shell, shell.path(arguments.words[0]), DELETE_BATCH_SIZE)


# --- tree ---


@command(
    "tree",
    "[-L depth] [-d] [path]",
    "draw a subtree",
    Flag("L", "maximum number of levels", "depth"),
    Flag("d", "also print short data"),
    paths=1,
    most=1,
    ours=True,
)
async def tree(shell: Shell, arguments: ParsedArguments) -> None:
    """Draw a subtree, with ``-d`` including short data, and print the number of nodes.

    Raises:
        NoNodeError: The root does not exist.
        ShellCommandError: ``-L`` is invalid, or the children of some nodes may not be listed. Readable nodes are
            printed.
    """
    path = shell.path(arguments.word(0, shell.directory or "/"))
    depth = _parse_depth(arguments, "1000000")
    (first,) = await list_children(shell.client, [path])
    if isinstance(first, ZooKeeperError):
        raise first
    texts = await _data_texts(shell, [path]) if arguments.has("d") else [""]
    shell.out.line({"path": path}, path + texts[0])
    count = 0
    forbidden: set[str] = set()
    async for node, line in _draw_subtrees(shell, first, depth, arguments.has("d"), forbidden):
        shell.out.line({"path": node}, line)
        count += 1
        if count % MAX_IN_FLIGHT == 0:
            shell.out.flush()
    if not shell.out.as_json:
        shell.out.show(None, ["", f"{count + 1:,} node{'s' * (count > 0)}"])
    shell.out.flush()
    raise_if_forbidden(forbidden)


class _SiblingLevel(NamedTuple):
    """Siblings in a drawn tree, each followed by its subtree.

    Args:
        paths: Paths of the siblings.
        known: Prefetched children and texts of the next siblings.
        indent: Text before each line.
        place: Number of siblings that are already drawn.
    """

    paths: list[str]
    known: list[tuple[list[str], str]]
    indent: str
    place: int = 0


async def _draw_subtrees(
    shell: Shell, siblings: list[str], depth: int, with_data: bool, forbidden: set[str]
) -> AsyncIterator[tuple[str, str]]:
    """Yield the path and the drawn line of each node below the root. Siblings are read in batches.

    Nodes whose children may not be listed are added to *forbidden*.
    """
    levels = [_SiblingLevel(siblings, [], "")] if depth > 0 else []
    while levels:
        level = levels.pop()
        if level.place == len(level.paths):
            continue
        coming = level.paths[level.place :][:MAX_IN_FLIGHT]
        known = level.known or await _read_siblings(shell, coming, len(levels) + 1 < depth, with_data, forbidden)
        path, (children, text) = level.paths[level.place], known[0]
        last = level.place == len(level.paths) - 1
        yield path, f"{level.indent}{'└' if last else '├'}── {path.rpartition('/')[2]}{text}"
        levels.append(level._replace(known=known[1:], place=level.place + 1))
        if children:
            levels.append(_SiblingLevel(children, [], level.indent + ("    " if last else "│   ")))


async def _read_siblings(
    shell: Shell, paths: list[str], with_children: bool, with_data: bool, forbidden: set[str]
) -> list[tuple[list[str], str]]:
    """Return the children of each node, and the text to print after its name.

    Nodes whose children may not be listed are added to *forbidden*, and have no children.
    """
    below = await list_children(shell.client, paths) if with_children else [[] for _ in paths]
    forbidden |= {path for path, names in zip(paths, below, strict=True) if isinstance(names, NoAuthError)}
    texts = await _data_texts(shell, paths) if with_data else [""] * len(paths)
    return [(names if isinstance(names, list) else [], text) for names, text in zip(below, texts, strict=True)]


async def _data_texts(shell: Shell, paths: list[str]) -> list[str]:
    """Return the text with the data of each node, to print after its name."""
    texts = []
    for answer in await request_each(shell.client.get, paths, NoNodeError, NoAuthError):
        text = "" if isinstance(answer, ZooKeeperError) else format_data(answer[0])
        texts.append(f"  {text}" if text else "")
    return texts


# --- du ---


@command(
    "du",
    "[-L depth] [path]",
    "count the bytes of data and the nodes of subtrees",
    Flag("L", "number of levels to print (default 1)", "depth"),
    paths=1,
    most=1,
    ours=True,
)
async def du(shell: Shell, arguments: ParsedArguments) -> None:
    """Print the number of bytes and nodes of a subtree, and of the subtrees below it down to ``-L`` levels.

    Raises:
        NoNodeError: The root does not exist.
        ShellCommandError: ``-L`` is invalid, or some nodes may not be read. Readable nodes are counted.
    """
    root = shell.path(arguments.word(0, shell.directory or "/"))
    depth = _parse_depth(arguments, "1")
    sums: dict[str, list[int]] = {}
    forbidden: set[str] = set()
    done = 0
    with Progress("reading") as progress:
        async for batch in walk(shell.client, root, forbidden):
            for start in range(0, len(batch), MAX_IN_FLIGHT):
                part = batch[start : start + MAX_IN_FLIGHT]
                for path, stat in zip(
                    part, await request_each(shell.client.exists, part, NoNodeError, NoAuthError), strict=True
                ):
                    if isinstance(stat, NoAuthError):
                        forbidden.add(path)
                    elif isinstance(stat, r.Stat):
                        _add_to_sums(sums, root, path, depth, stat.dataLength)
                done += len(part)
                progress.show("nodes", done, 0)
    for path in sorted(sums):
        size, nodes = sums[path]
        shell.out.line({"path": path, "bytes": size, "nodes": nodes}, f"{size:>14,} bytes {nodes:>10,} nodes  {path}")
    shell.out.flush()
    raise_if_forbidden(forbidden)


def _add_to_sums(sums: dict[str, list[int]], root: str, path: str, depth: int, size: int) -> None:
    """Add a node to the sums of all printed subtrees that contain it, down to *depth* levels below *root*."""
    below = path[len(root.rstrip("/")) :].strip("/").split("/") if path != root else []
    above = root
    for name in ["", *below[:depth]]:
        above = above if not name else f"{above.rstrip('/')}/{name}"
        entry = sums.setdefault(above, [0, 0])
        entry[0] += size
        entry[1] += 1


def _parse_depth(arguments: ParsedArguments, default: str) -> int:
    """Return the number of levels that ``-L`` sets.

    Raises:
        ShellCommandError: The value is not a number.
    """
    text = arguments.flags.get("L", default)
    return number(text, f"-L must be a number of levels, not {text}")
