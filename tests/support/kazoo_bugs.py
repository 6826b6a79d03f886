"""What goes wrong, and when, so that a known bug of kazoo shows every time.

Each function takes an embedded server and whichever client it is about; none of them knows kazoo, so zoolet's own
client is put through the same ones. ``tests/kazoo_bugs`` has both sides.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from zoolet.server import Server
from zoolet.server.testing import Fault, Znode, drop_request, lose_reply
from zoolet.server.testing.run.clients import session_id_of
from zoolet.server.testing.state.views import WatchView

LAST_NUMBER: Final = 2**31 - 1
"""The last sequence number before they turn negative."""
FIRST_NEGATIVE: Final = -(2**31)
"""The one behind it."""


# --- what goes wrong ---


def lose_session(server: Server, client: Any) -> Any:
    """End a client's session, and wait until it has another; in the server's own loop the result is to be awaited."""

    def has_another() -> bool:
        return session_id_of(client, 0) in server.sessions()

    server.expire(client)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return server.wait_for(has_another)
    return server.until(has_another)


def count_from(server: Server, path: str, number: int) -> None:
    """Create a node whose next sequential child gets this number."""
    server.populate({path: Znode(children_created=number)})


def reply_to_create_lost(server: Server, path: str) -> Fault:
    """The next create at *path* or below is applied and never answered."""
    return server.fault(lose_reply(), "create", f"{path}*", times=1, strict=True)


def reply_to_set_lost(server: Server, path: str) -> Fault:
    """The next change of a node's data is applied and never answered."""
    return server.fault(lose_reply(), "setData", path, times=1, strict=True)


def cleanup_lost(server: Server, path: str) -> Fault:
    """The next delete below *path* never reaches the server; the session lives on."""
    return server.fault(drop_request(), "delete", f"{path}/*", times=1, strict=True)


def blind(server: Server, client: Any, path: str) -> Fault:
    """A client cannot list the children of *path*: whenever it asks, its connection breaks."""
    return server.fault(drop_request(), "getChildren", path, client=session_id_of(client), strict=True)


# --- what is left ---


def children(server: Server, path: str) -> list[str]:
    """List the names below a node, in order of creation."""
    return [below.removeprefix(f"{path}/") for below in server.tree(path) if below != path]


def watches_of(server: Server, client: Any) -> list[WatchView]:
    """List a client's watches."""
    return [watch for watch in server.watches() if watch.session == session_id_of(client)]
