"""A real ZooKeeper server with the interface of a test server, as far as a client and a proxy can provide it."""

from __future__ import annotations

import asyncio
import struct
import unittest
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Any, Final, NoReturn

from ..client.blocking import Client
from ..protocol import records as r
from ..protocol.errors import (
    ConnectionLossError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    ZooKeeperError,
)
from ..protocol.framing import frame
from ..protocol.handshake import ConnectRequest
from ..protocol.hexadecimal import hexadecimal
from ..protocol.operations import OpCode
from ..protocol.paths import ZOOKEEPER, is_internal
from .proxy import Proxy
from .run import arguments, clients
from .run.named_waits import NamedWaits
from .signatures import Who
from .state import views
from .state.populate import flatten

TIMEOUT_SECONDS = 10.0
"""Timeout in seconds for a connection, and for each request."""


class UnsupportedError(RuntimeError, unittest.SkipTest):
    """The test needs an ability that only the embedded server has. The test is skipped."""


class LeftoverError(RuntimeError):
    """A real server has nodes that tests may not or cannot delete, so no further test can run on it."""


def missing_attribute(real: object, name: str, embedded: type, needed: str) -> Exception:
    """Return the error for an attribute that only the embedded class has, or that neither class has."""
    if not name.startswith("_") and hasattr(embedded, name):
        return UnsupportedError(f"{name} needs {needed}")
    return AttributeError(f"{type(real).__name__} has no attribute {name!r}")


class RealServer(Proxy, NamedWaits):
    """A real ZooKeeper, such as Apache's, behind a proxy: ``with RealServer("zk1:2181") as server:``.

    Clients connect to ``server.hosts``. Faults, pauses, recordings and ``ops()`` work as with a
    :class:`~zoolet.testing.Proxy`. Methods that read or change the tree, such as ``populate`` and ``tree``, use a
    client. **All nodes are deleted** by :meth:`reset` and at the end, so :meth:`start` refuses a server with nodes.
    Every other call of a ``Server`` raises an :class:`UnsupportedError`.

    Args:
        servers: The servers: ``host:port``, or several joined with commas.
        seed: The seed of all randomness, by default a random seed.
        failures: A list that the tests of a run share. The first failed connection is added to it, so that later tests
            fail without waiting.

    Raises:
        ValueError: An argument is invalid.
    """

    tls_ca: Final = None

    def __init__(self, servers: str, *, seed: int | None = None, failures: list[str] | None = None) -> None:
        super().__init__(servers, seed=seed)
        self._failures = failures
        self._servers = servers
        self._client = Client(servers, TIMEOUT_SECONDS)
        self._owners: list[Client] = []  # the clients that own the ephemeral nodes of create()

    def start(self) -> None:
        """Connect, and start the proxy.

        Raises:
            ConnectionLossError: No server answers.
            LeftoverError: The server has nodes that no test has created.
        """
        if self._failures:
            raise ConnectionLossError(None, f"the server at {self._servers} does not answer: {self._failures[0]}")
        self._client = Client(self._servers, TIMEOUT_SECONDS)
        try:
            self._client.start()
        except (ConnectionLossError, OSError) as error:
            if self._failures is not None:
                self._failures.append(str(error))
            raise
        if strange := self._top_level_names():
            self._client.close()
            raise LeftoverError(
                f"the server at {self._servers} has nodes, such as /{strange[0]}, which tests would delete; "
                "use a server without nodes"
            )
        super().start()

    def stop(self) -> None:
        """Delete the nodes that tests have left, and stop the proxy."""
        self._clear()
        super().stop()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._clear()

    async def __aenter__(self) -> NoReturn:
        raise UnsupportedError("use 'with', not 'async with', for a real server, even in asyncio code")

    def _clear(self) -> None:
        if self._client.runs:
            try:
                self._delete_all()
            finally:
                self._client.close()

    def __getattr__(self, name: str) -> NoReturn:
        from .server import Server

        raise missing_attribute(self, name, Server, "the embedded server, not a real one")

    # --- the tree ---

    def _top_level_names(self) -> list[str]:
        return [name for name in self._client.children("/") if f"/{name}" != ZOOKEEPER]

    def reset(self) -> None:
        """Delete all nodes, end all faults and pauses, and disconnect all clients."""
        self.heal()
        self.drop("all")
        self._delete_all()

    def _delete_all(self) -> None:
        for holder in self._owners:
            holder.close()
        self._owners.clear()
        if any([not _delete(self._client, f"/{name}") for name in self._top_level_names()]):
            with Client(self._servers, TIMEOUT_SECONDS, auth=tuple(self._interceptor.credentials)) as client:
                kept = [name for name in self._top_level_names() if not _delete(client, f"/{name}")]
            if kept:
                raise LeftoverError(
                    f"cannot delete /{kept[0]} on the server at {self._servers}, because an ACL denies it; log in with "
                    "the right credentials, delete the node, and run the tests again"
                )

    def populate(self, nodes: Mapping[str, Any]) -> None:
        """Create nodes like ``Server.populate``, but ignore ``children_created``."""
        for path, node in flatten(nodes).items():
            data = _encode(node.data)
            options: dict[str, Any] = {"acl": node.acl, "container": node.container, "ttl": node.ttl}
            try:
                self._client.create(path, data, parents=True, **options)
            except NodeExistsError:
                self._client.set(path, data)

    def create(
        self, path: str, data: bytes | str | None = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Create a node through a separate client, like ``Server.create``."""
        client = self._client
        if ephemeral:
            client = Client(self._servers, TIMEOUT_SECONDS)
            client.start()
            self._owners.append(client)
        return client.create(path, _encode(data), ephemeral=ephemeral, sequential=sequential, parents=True)

    def set(self, path: str, data: bytes | str | None) -> None:
        """Set a node's data, like ``Server.set``."""
        self._client.set(path, _encode(data))

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a node, like ``Server.delete``."""
        self._client.delete(path, recursive=recursive)

    def tree(self, path: str = "/") -> Mapping[str, views.NodeView]:
        """Return a node and all nodes below it by path, like ``Server.tree``."""
        shown: dict[str, views.NodeView] = {}
        pending = [path]
        while pending:
            at = pending.pop(0)
            if path == "/" and is_internal(at):
                continue
            with suppress(NoNodeError):
                view = self._view(at)
                if at != "/" or path != "/":
                    shown[at] = view
                pending += [f"{at.rstrip('/')}/{name}" for name in view.children]
        return MappingProxyType(shown)

    def _view(self, path: str) -> views.NodeView:
        data, stat = self._client.get(path)
        acl, _ = self._client.get_acl(path)
        numbers = (stat.version, stat.cversion, stat.aversion, stat.czxid, stat.mzxid, stat.pzxid)
        times = (stat.ctime / 1000, stat.mtime / 1000)
        owner, children = stat.ephemeralOwner, tuple(sorted(self._client.children(path)))
        return views.NodeView(path, data, acl, *numbers, *times, owner, stat.numChildren, False, None, children)

    def _node_at(self, path: str) -> views.NodeView | None:
        with suppress(NoNodeError):
            return self._view(path)
        return None

    # --- sessions ---

    def sessions(self) -> Mapping[int, views.SessionView]:
        """Return the sessions that have a connection through the proxy, by id."""

        def look() -> dict[int, views.SessionView]:
            shown = {}
            for client in self._interceptor.connections:
                if (session := client.session) is not None and not client.closing:
                    last = self._interceptor.last.get(session.id)
                    if last is not None and last.opcode == OpCode.CLOSE_SESSION:  # its connection closes soon
                        continue
                    timeout = session.timeout_ms / 1000
                    shown[session.id] = views.SessionView(session.id, timeout, client.address, (), 0, 0.0)
            return shown

        return MappingProxyType(self._runner.call(look))

    def _sessions_of_clients(self) -> Mapping[int, views.SessionView]:
        return self.sessions()

    def expire(self, who: Who) -> None:
        """Close sessions as if they had expired.

        The proxy has seen the passwords of the sessions, so this can resume and then close them.

        Args:
            who: A KazooClient, a zoolet Client, a session id, or ``"all"``.

        Raises:
            ValueError: *who* is none of these.
            LookupError: The session was not opened through the proxy, or is not alive.
        """
        ids = list(self.sessions()) if clients.is_all(who) else [clients.session_id_of(who)]
        for session_id in ids:
            password = self._interceptor.passwords.get(session_id)
            if password is None:
                raise LookupError(f"session {clients.client_label(session_id)} was not opened through the proxy")
            self._client.run(partial(self._close_session, session_id, password))

    async def _close_session(self, session_id: int, password: bytes) -> None:
        host, port = arguments.read_servers(self._servers)[0]
        async with asyncio.timeout(TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                connect = frame(ConnectRequest(0, 30_000, session_id, password, False).encode())
                # A single write sends both requests, because the client immediately resumes its session.
                writer.write(connect + frame(r.RequestHeader(1, OpCode.CLOSE_SESSION).encode()))
                answer = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
                if struct.unpack_from(">q", answer, 8)[0] != session_id:
                    raise LookupError(f"no session {clients.client_label(session_id)} is alive on this server")
                with suppress(ConnectionError):
                    await reader.read()  # the read ends when the server closes the connection
            finally:
                writer.close()

    def leaks(self) -> list[str]:
        """Return a line for each session that is still open. Return no lines if the server does not answer."""
        try:
            open_ = [(hexadecimal(session_id), view.client) for session_id, view in self.sessions().items()]
            return [f"session {session_id} is still open, from {client}" for session_id, client in open_]
        except (RuntimeError, ZooKeeperError):
            return []


def _delete(client: Client, path: str) -> bool:
    """Delete a node and all nodes below it. Return False if some remain.

    A node whose children cannot be listed is deleted if it is empty.
    """
    with suppress(NoAuthError, NoNodeError):
        for name in client.children(path):
            _delete(client, f"{path}/{name}")
    try:
        client.delete(path)
    except NoNodeError:
        pass
    except (NoAuthError, NotEmptyError):
        return False
    return True


def _encode(data: bytes | str | None) -> bytes:
    """Encode data that a test passes: text is encoded as UTF-8, and None becomes empty data."""
    return data.encode() if isinstance(data, str) else data or b""
