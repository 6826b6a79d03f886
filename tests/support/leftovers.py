"""What recipes leave in a server and in their clients, and waiting until it is nothing."""

from __future__ import annotations

from support import kazoo_bugs

from zoolet.client import Client
from zoolet.server import Server


def below(server: Server, path: str) -> dict[str, bytes]:
    """Return the names and data of all nodes below a path."""
    found = server.tree().items()
    return {node.removeprefix(path + "/"): view.data or b"" for node, view in found if node.startswith(path + "/")}


def leftovers(server: Server, *clients: Client) -> list[str]:
    """Return what is left of recipes that are done with: ephemeral nodes, watches, background tasks."""
    left = [f"node {view.path}" for view in server.tree().values() if view.ephemeral_owner]
    left += [f"watch {watch.kind} {watch.path}" for watch in server.watches()]
    return left + [f"{tasks} background tasks" for client in clients if (tasks := client.statistics().background_tasks)]


def ephemerals(server: Server) -> list[str]:
    """Return the paths of all nodes that end with a session."""
    return [path for path, view in server.tree().items() if view.ephemeral_owner]


async def nothing_left(server: Server) -> None:
    """Wait until no ephemeral node, which a contender, a lease or a candidate is, and no watch is left."""
    await server.until(lambda: not ephemerals(server) and not server.watches(), timeout=20)


async def in_line(server: Server, path: str, number: int) -> None:
    """Wait until so many stand in line, and all but the first watch."""
    await server.until(
        lambda: len(kazoo_bugs.children(server, path)) == number and len(server.watches()) >= number - 1, 10
    )
