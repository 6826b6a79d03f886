"""Checks for nodes, watches and tasks that recipes leave in a server or in a client."""

from __future__ import annotations

from support import kazoo_bugs
from support.waiting import DEADLINE_S

from zoolet.client import Client
from zoolet.testing import Server


def nodes_below(server: Server, path: str) -> dict[str, bytes]:
    """Return the names and data of all nodes below a path."""
    found = server.tree().items()
    return {node.removeprefix(path + "/"): view.data or b"" for node, view in found if node.startswith(path + "/")}


def leftovers(server: Server, *clients: Client) -> list[str]:
    """Return the ephemeral nodes, watches and background tasks that finished recipes have left."""
    left = [f"node {view.path}" for view in server.tree().values() if view.ephemeral_owner]
    left += [f"watch {watch.kind} {watch.path}" for watch in server.watches()]
    return left + [f"{tasks} background tasks" for client in clients if (tasks := client.statistics().background_tasks)]


def ephemerals(server: Server) -> list[str]:
    """Return the paths of all ephemeral nodes."""
    return [path for path, view in server.tree().items() if view.ephemeral_owner]


async def wait_until_clean(server: Server) -> None:
    """Wait until no watch and no ephemeral node (of a contender, a lease or a candidate) is left."""
    await server.until(lambda: not ephemerals(server) and not server.watches(), timeout=DEADLINE_S)


async def wait_for_queue(server: Server, path: str, number: int) -> None:
    """Wait until *number* contenders are queued and all of them but the first have a watch."""
    await server.until(
        lambda: len(kazoo_bugs.children(server, path)) == number and len(server.watches()) >= number - 1, DEADLINE_S
    )
