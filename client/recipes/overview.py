"""A human-readable overview of locks, elections, semaphores and queues below a node, with their holders."""

from __future__ import annotations

from typing import Any

from ...protocol.deadlocks import LockEntry, Wait
from ...protocol.hexadecimal import hexadecimal
from ...protocol.node_json import data_json
from .. import serializers
from ._base import Recipe
from ._shared import ClientReader, SharedRecipe, read_shared_recipes


class Overview(Recipe):
    """Locks, elections, semaphores and queues below a node: ``recipes, cycles = await Overview(zk, "/").read()``.

    Znodes: none. It reads the nodes of zoolet's, kazoo's and Curator's recipes.

    Limits: every node below PATH is listed, except contenders and queue entries. Each line is read at one moment, but
    not all at the same moment. A lock that serves an election (except Curator's LeaderLatch) is shown as a lock.
    Unreadable nodes are omitted.

    Args:
        client: Client that reads the tree.
        path: Path of the node above the locks.
    """

    _serializer = serializers.raw

    async def read(self) -> tuple[list[SharedRecipe], list[list[Wait]]]:
        """Return the recipes in use, sorted by path, and the deadlocks: cycles of clients that wait for each other."""
        lines, found = await read_shared_recipes(ClientReader(self._client, self._path))
        return sorted(lines, key=lambda line: (line.path, line.kind)), found


def overview_json(lines: list[SharedRecipe], circles: list[list[Wait]]) -> dict[str, Any]:
    """Return the result of :meth:`Overview.read` as an object for JSON."""
    return {
        "shared": [
            {
                "path": line.path,
                "kind": line.kind,
                "naming": line.naming,
                "holders": [entry_json(entry) for entry in line.holders],
                "waiters": [entry_json(entry) for entry in line.waiters],
                "size": line.size,
            }
            for line in lines
        ],
        "deadlocks": [
            [
                {"lock": wait.lock, "waiter": entry_json(wait.entry), "holder": entry_json(wait.holder)}
                for wait in circle
            ]
            for circle in circles
        ],
    }


def entry_json(entry: LockEntry, most: int | None = None) -> dict[str, Any]:
    """Return a holder or waiter as an object for JSON.

    Args:
        entry: The holder or waiter.
        most: Maximum number of bytes of data to include; None for no limit. Longer text is cut and ends with "…".
            Longer binary data is replaced with its ``size``.
    """
    return {
        "node": entry.path,
        "session": hexadecimal(entry.session_id) if entry.session_id else None,
        "data": data_json(entry.data) if most is None or len(entry.data) <= most else _preview(entry.data, most),
        "reader": entry.shared,
        "since": entry.since,
        "czxid": str(entry.czxid) if entry.czxid else None,  # a string, because JavaScript rounds 64-bit numbers
    }


def _preview(data: bytes, most: int) -> object:
    for end in range(most, most - 4, -1):  # the limit may split a character
        if isinstance(text := data_json(data[:end]), str):
            return f"{text}…"
    return {"size": len(data)}
