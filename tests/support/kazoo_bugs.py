"""Faults, with their exact moments, that reproduce known bugs of kazoo every time.

Each function takes an embedded server and the client to disturb. None of them depends on kazoo, so zoolet's own client
goes through the same faults. Both sides are in ``tests/kazoo_bugs``.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from zoolet.testing import Fault, Server, Znode, drop_request, lose_reply
from zoolet.testing.run.clients import session_id_of
from zoolet.testing.state.views import WatchView

LAST_SEQUENCE: Final = 2**31 - 1
"""The highest sequence number, after which the numbers overflow."""
FIRST_NEGATIVE_SEQUENCE: Final = -(2**31)
"""The sequence number after the highest one."""


# --- faults ---


def lose_session(server: Server, client: Any) -> Any:
    """Expire a session, and wait until the client has a new one. In the server's event loop, await the result."""

    def has_another() -> bool:
        return session_id_of(client, 0) in server.sessions()

    server.expire(client)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return server.wait_for(has_another)
    return server.until(has_another)


def create_with_next_sequence(server: Server, path: str, number: int) -> None:
    """Create a node whose next sequential child gets this number."""
    server.populate({path: Znode(children_created=number)})


def lose_create_reply(server: Server, path: str) -> Fault:
    """Apply the next create at *path* or below, but never answer it."""
    return server.fault(lose_reply(), "create", f"{path}*", times=1, strict=True)


def lose_set_reply(server: Server, path: str) -> Fault:
    """Apply the next change of a node's data, but never answer it."""
    return server.fault(lose_reply(), "setData", path, times=1, strict=True)


def drop_delete(server: Server, path: str) -> Fault:
    """Drop the next delete below *path* before it reaches the server; the session survives."""
    return server.fault(drop_request(), "delete", f"{path}/*", times=1, strict=True)


def fail_child_lists(server: Server, client: Any, path: str) -> Fault:
    """Drop a client's connection whenever the client lists the children of *path*."""
    return server.fault(drop_request(), "getChildren", path, client=session_id_of(client), strict=True)


# --- leftovers ---


def children(server: Server, path: str) -> list[str]:
    """Return the names of a node's children, in order of creation."""
    return [below.removeprefix(f"{path}/") for below in server.tree(path) if below != path]


def client_watches(server: Server, client: Any) -> list[WatchView]:
    """Return the watches of a client's session."""
    return [watch for watch in server.watches() if watch.session == session_id_of(client)]
