"""The clients that the arguments *who* and *client* select, and actions on their sessions.

Such an argument is a KazooClient, a zoolet Client, a session id or ``"all"``. Call the functions in the server's loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...protocol.hexadecimal import hexadecimal, to_signed_64
from ...server.core.client_connection import Session
from ...server.core.engine import Engine
from ...server.net.daemon import Daemon
from ..frames.interceptor import Interceptor
from ..signatures import Direction
from ..state import report
from .arguments import invalid

if TYPE_CHECKING:
    from kazoo.client import KazooClient


def is_all(who: object) -> bool:
    """Return whether *who* names every session."""
    return isinstance(who, str) and who == "all"


def session_id_of(who: object, default: int | None = None) -> int:
    """Return the id of a client's session. A session id is returned as it is, whether or not the session is alive.

    Args:
        who: A KazooClient, a zoolet Client or a session id.
        default: Result for a client that has no session now, or None to raise an error.

    Raises:
        ValueError: *who* is none of these.
        LookupError: The client has no session now, and *default* is None.
    """
    if isinstance(who, int) and not isinstance(who, bool):
        return to_signed_64(who) if -(1 << 63) <= who < 1 << 64 else who  # ids may be written as unsigned numbers
    if hasattr(who, "session_id"):  # a zoolet client
        session_id = getattr(who, "session_id", None)
    elif hasattr(who, "client_id"):  # a KazooClient, whose client_id is None while it is not connected
        session_id = getattr(who, "_session_id", None)
    else:
        expected = "a KazooClient, a zoolet Client, a session id or 'all'"
        raise invalid("who", who, expected)
    if session_id:
        return int(session_id)
    if default is None:
        raise LookupError(f"{who!r} has no session now")
    return default


def client_label(who: object) -> str:
    """Return a session id in hexadecimal, as reports show it, or the ``repr`` of a client."""
    return hexadecimal(who) if isinstance(who, int) else repr(who)


def matching_sessions(engine: Engine, who: object) -> list[Session]:
    """Return the sessions that *who* names. ``"all"`` names all sessions that are alive.

    Raises:
        ValueError: *who* is neither a client, nor a session id, nor ``"all"``.
        LookupError: The session is not alive on this server, or the client has none.
    """
    alive = engine.sessions.alive
    if is_all(who):
        return list(alive.values())
    session = alive.get(session_id_of(who))
    if session is None:
        raise LookupError(
            f"no session {'' if isinstance(who, int) else 'of '}{client_label(who)} is alive on this server"
        )
    return [session]


def follow(who: object) -> Callable[[], int] | None:
    """Return a function that returns the client's current session id, or 0 while it has none.

    Args:
        who: A KazooClient or a zoolet Client, which need not be connected yet, or a session id. For ``"all"`` and None
            the result is None.

    Raises:
        ValueError: *who* is neither a client, nor a session id, nor ``"all"``.
    """
    if who is None or is_all(who):
        return None
    session_id_of(who, 0)  # an invalid *who* raises now, not at the first request
    return partial(session_id_of, who, 0)


def name_client(client: object, fixture: str) -> str:
    """Name a client by its fixture in reports, and return the name. The name also applies to later sessions."""
    number = len({name for name in report.names.values() if name.startswith(fixture)}) + 1
    name = fixture if number == 1 else f"{fixture} {number}"
    report.names[partial(int, session_id_of(client, 0))] = report.names[partial(session_id_of, client, 0)] = name
    return name


# --- actions on sessions ---


def expire(interceptor: Interceptor, engine: Engine, who: object) -> None:
    """Expire sessions, and close their connections, whether or not they are paused.

    Raises:
        ValueError: *who* is neither a client, nor a session id, nor ``"all"``.
        LookupError: The session is not alive on this server, or the client has none.
    """
    for session in matching_sessions(engine, who):
        engine.expire(session)
        interceptor.paused.pop(session.id, None)
    interceptor.recheck()


def drop(daemon: Daemon, session_ids: set[int], *, all_connections: bool) -> None:
    """Close the connections of sessions.

    With *all_connections*, close all connections, including connections without a session.
    """
    for socket in list(daemon.connections.open.values()):
        connection = socket.connection
        if connection is None:
            continue
        session = connection.client.session
        if all_connections or (session is not None and session.id in session_ids):
            connection.connection_lost()
            socket.abort()


def pause(interceptor: Interceptor, session_ids: set[int] | None, direction: Direction) -> None:
    """Pause some sessions, or all sessions if *session_ids* is None, in a direction."""
    if session_ids is None:
        interceptor.all_paused = direction
    else:
        interceptor.paused.update(dict.fromkeys(session_ids, direction))
    interceptor.recheck()


def resume(interceptor: Interceptor, who: object) -> None:
    """Serve sessions again, whether or not they are still alive.

    Raises:
        ValueError: *who* is neither a client, nor a session id, nor ``"all"``.
        LookupError: The session is not paused, or the client has none.
    """
    if is_all(who):
        interceptor.all_paused = None
        interceptor.paused.clear()
    else:
        session_id = session_id_of(who)
        if session_id not in interceptor.paused:
            raise LookupError(f"{client_label(who)} is not paused")
        del interceptor.paused[session_id]
    interceptor.recheck()


def trusted_ca_file(servers: Iterable[Any], hosts: str) -> str | None:
    """Return the file of the authority that clients of a server must trust, or None if the server has no TLS.

    Args:
        servers: The servers and clusters of a test.
        hosts: Connection string of one of them, with or without a chroot.
    """
    addresses = set(hosts.partition("/")[0].split(","))
    known = ((server.tls_ca, set(server.hosts.split(","))) for server in servers if server.tls_ca is not None)
    return next((tls_ca for tls_ca, its in known if addresses <= its), None)


def stop_kazoo(client: KazooClient, limit: float) -> bool:
    """Stop and close a KazooClient. After *limit* seconds, return False and let the stop continue.

    kazoo waits for its threads without a limit, and the threads wait for the functions of the test that they call. The
    handlers for gevent and eventlet have no threads, and must be stopped in the thread that has created them.
    """
    from kazoo.handlers.threading import SequentialThreadingHandler

    if not isinstance(client.handler, SequentialThreadingHandler):
        client.stop()
        client.close()
        return True
    errors: list[BaseException] = []

    def stop() -> None:
        try:
            client.stop()
            client.close()
        except BaseException as error:  # raised below, in the thread of the caller
            errors.append(error)

    thread = threading.Thread(target=stop, name="zoolet-stop-kazoo", daemon=True)
    thread.start()
    thread.join(limit)
    if errors:
        raise errors[0]
    return not thread.is_alive()
