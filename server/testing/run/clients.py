"""The clients that the arguments *who* and *session* name, and the functions that expire, drop, pause and resume them.

Such an argument is a KazooClient, a zoolet Client, a session id or ``"all"``. The functions are called in the server's
loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol, TypeVar

from zoolet.protocol.hexadecimal import hexadecimal
from zoolet.server.core.client_connection import Session
from zoolet.server.core.engine import Engine
from zoolet.server.net.daemon import Daemon
from zoolet.server.testing.frames.interceptor import Interceptor
from zoolet.server.testing.signatures import Direction


class Healed(Protocol):
    """A server, as far as :func:`heal_all` is concerned."""

    @property
    def running(self) -> bool:
        """Whether it runs."""
        ...

    def heal(self) -> None:
        """End all its faults."""
        ...


H = TypeVar("H", bound=Healed)


def is_all(who: object) -> bool:
    """Return whether *who* names every session."""
    return isinstance(who, str) and who == "all"


def session_id_of(who: object, default: int | None = None) -> int:
    """Return the id of a client's session; a session id is returned as it is, whether or not the session is alive.

    Args:
        who: A KazooClient, a zoolet Client or a session id.
        default: What to return for a client that has no session now.

    Raises:
        ValueError: *who* is none of these.
        LookupError: The client has no session now, and there is no *default*.
    """
    if isinstance(who, int) and not isinstance(who, bool):
        return who - (1 << 64) if 1 << 63 <= who < 1 << 64 else who  # it may be written without a sign
    if hasattr(who, "session_id"):  # a zoolet client
        session_id = getattr(who, "session_id", None)
    elif hasattr(who, "client_id"):  # a KazooClient, whose client_id is None while it is not connected
        session_id = getattr(who, "_session_id", None)
    else:
        raise ValueError(f"{who!r} is unknown; it must be a KazooClient, a zoolet Client, a session id or 'all'")
    if session_id:
        return int(session_id)
    if default is None:
        raise LookupError(f"{who!r} has no session now")
    return default


def name_of(who: object) -> str:
    """Return a session id in hexadecimal, as reports show it, or a client as it is."""
    return hexadecimal(who) if isinstance(who, int) else repr(who)


def sessions_of(engine: Engine, who: object) -> list[Session]:
    """Return the sessions that *who* names; for ``"all"`` all sessions that are alive.

    Raises:
        ValueError: *who* is none of the types above.
        LookupError: The session is not alive on this server, or the client has none.
    """
    alive = engine.sessions.alive
    if is_all(who):
        return list(alive.values())
    session = alive.get(session_id_of(who))
    if session is None:
        raise LookupError(f"{name_of(who)} has no session that is alive on this server")
    return [session]


def follow(who: object) -> Callable[[], int] | None:
    """Return a function that returns the client's present session id, 0 while it has none; None for all clients.

    Args:
        who: As for :func:`session_id_of`, ``"all"`` or None; a client need not be connected yet.

    Raises:
        ValueError: *who* is none of the types above.
    """
    if who is None or is_all(who):
        return None
    session_id_of(who, 0)  # raise now, not at the first request
    return partial(session_id_of, who, 0)


# --- actions ---


def expire(interceptor: Interceptor, engine: Engine, who: object) -> None:
    """Expire sessions, and close their connections, whether or not they are paused; as for :func:`sessions_of`."""
    for session in sessions_of(engine, who):
        engine.expire(session)
        interceptor.paused.pop(session.id, None)
    interceptor.recheck()


def drop(daemon: Daemon, session_ids: set[int], *, everybody: bool) -> None:
    """Close the connections of sessions, or all connections, also those without a session."""
    for socket in list(daemon.connections.open.values()):
        connection = socket.connection
        if connection is None:
            continue
        session = connection.client.session
        if everybody or (session is not None and session.id in session_ids):
            connection.connection_lost()
            socket.abort()


def pause(interceptor: Interceptor, session_ids: set[int] | None, direction: Direction) -> None:
    """Stop serving sessions; None for all."""
    if session_ids is None:
        interceptor.all_paused = direction
    else:
        interceptor.paused.update(dict.fromkeys(session_ids, direction))
    interceptor.recheck()


def resume(interceptor: Interceptor, who: object) -> None:
    """Serve sessions again, whether or not they are still alive.

    Raises:
        LookupError: The session is not paused.
    """
    if is_all(who):
        interceptor.all_paused = None
        interceptor.paused.clear()
    else:
        session_id = session_id_of(who)
        if session_id not in interceptor.paused:
            raise LookupError(f"{name_of(who)} is not paused")
        del interceptor.paused[session_id]
    interceptor.recheck()


def authority_of(servers: Iterable[Any], hosts: str) -> str | None:
    """Return the file of the authority that clients of the server with this address trust; None without TLS."""
    return next((server.tls_ca for server in servers if server.tls_ca is not None and server.hosts == hosts), None)


def heal_all(servers: Iterable[H]) -> list[H]:
    """End the faults of some servers, and return those that run: clients that are being closed would wait for replies
    until they time out.
    """
    running = [server for server in servers if getattr(server, "running", False)]  # what plays a recording is not
    for server in running:
        server.heal()
    return running
