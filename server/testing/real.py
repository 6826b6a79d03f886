"""A real ZooKeeper server with the calls of a test server, as far as a client and a proxy can do them."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Any, Final, NoReturn

from zoolet.client.blocking import Client
from zoolet.protocol import records as r
from zoolet.protocol.errors import ConnectionLossError, NodeExistsError, NoNodeError, ZooKeeperError
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest
from zoolet.protocol.operations import OpCode
from zoolet.protocol.paths import ZOOKEEPER
from zoolet.server.testing.proxy import Proxy
from zoolet.server.testing.run import arguments, clients
from zoolet.server.testing.run.named_waits import NamedWaits
from zoolet.server.testing.signatures import Who
from zoolet.server.testing.state import views
from zoolet.server.testing.state.populate import flatten

TIMEOUT = 10.0
"""Seconds for connecting, and for each request."""


class UnsupportedError(RuntimeError):
    """A real server cannot do this at the wish of a client."""


class RealServer(Proxy, NamedWaits):
    """A real ZooKeeper, such as Apache's, behind a proxy: ``with RealServer("zk1:2181") as server:``.

    Clients connect to ``server.hosts``; faults, pauses, recordings and ``ops()`` are those of a
    :class:`~zoolet.server.testing.Proxy`. What needs a look into the tree, ``populate``, ``tree`` and the like, is done
    with a client. **All nodes are deleted** at the start and by :meth:`reset`, so it refuses a server that has any.

    Args:
        servers: The servers: ``host:port`` joined with commas.
        seed: The seed of all randomness; by default a random one.
        failures: Why it could not be reached, for all tests of a run: after the first of them none waits again.

    Raises:
        ValueError: An argument is invalid.
        UnsupportedError: From every other call of a ``Server``.
    """

    tls_ca: Final = None

    def __init__(self, servers: str, *, seed: int | None = None, failures: list[str] | None = None) -> None:
        super().__init__(servers, seed=seed)
        self._failures = failures
        self._real = servers
        self._client = Client(servers, TIMEOUT)
        self._holders: list[Client] = []  # whose ephemeral nodes are those of create()

    def start(self) -> None:
        """Connect, and start the proxy.

        Raises:
            ConnectionLossError: No server answers.
            ValueError: It has nodes that are not ours to delete.
        """
        if self._failures:
            raise ConnectionLossError(None, f"the server of these tests does not answer: {self._failures[0]}")
        self._client = Client(self._real, TIMEOUT)
        try:
            self._client.start()
        except (ConnectionLossError, OSError) as error:
            if self._failures is not None:
                self._failures.append(str(error))
            raise
        if strange := self._names():
            self._client.close()
            raise ValueError(f"the server at {self._real} has nodes (/{strange[0]}), which tests would delete")
        super().start()

    def stop(self) -> None:
        """Stop the proxy, and delete what tests have left."""
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
        raise UnsupportedError("a real server is entered with `with`, also in asyncio code: it runs in another thread")

    def _clear(self) -> None:
        if self._client.runs:
            self._delete_all()
            self._client.close()

    def __getattr__(self, name: str) -> NoReturn:
        from zoolet.server.testing.server import Server

        if not name.startswith("_") and hasattr(Server, name):
            raise UnsupportedError(f"{name} needs the embedded server; this one is real")
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    # --- the tree ---

    def _names(self) -> list[str]:
        return [name for name in self._client.children("/") if f"/{name}" != ZOOKEEPER]

    def reset(self) -> None:
        """Delete all nodes, end all faults and pauses, and disconnect all clients."""
        self.heal()
        self.drop("all")
        self._delete_all()

    def _delete_all(self) -> None:
        for holder in self._holders:
            holder.close()
        self._holders.clear()
        for name in self._names():
            with suppress(NoNodeError):
                self._client.delete(f"/{name}", recursive=True)

    def populate(self, nodes: Mapping[str, Any]) -> None:
        """Create nodes; as for ``Server``, without ``children_created``."""
        for path, node in flatten("", nodes):
            data = _encoded(node.data)
            options: dict[str, Any] = {"acl": node.acl, "container": node.container, "ttl": node.ttl}
            try:
                self._client.create(path, data, parents=True, **options)
            except NodeExistsError:
                self._client.set(path, data)

    def create(
        self, path: str, data: bytes | str | None = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Create a node, as another client; as for ``Server``."""
        client = self._client
        if ephemeral:
            client = Client(self._real, TIMEOUT)
            client.start()
            self._holders.append(client)
        return client.create(path, _encoded(data), ephemeral=ephemeral, sequential=sequential, parents=True)

    def set(self, path: str, data: bytes | str | None) -> None:
        """Set a node's data; as for ``Server``."""
        self._client.set(path, _encoded(data))

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a node; as for ``Server``."""
        self._client.delete(path, recursive=recursive)

    def tree(self, path: str = "/") -> Mapping[str, views.NodeView]:
        """Return a node and all nodes below it, by path; as for ``Server``."""
        shown: dict[str, views.NodeView] = {}
        pending = [path]
        while pending:
            at = pending.pop(0)
            if path == "/" and f"{at}/".startswith(f"{ZOOKEEPER}/"):
                continue
            with suppress(NoNodeError):
                view = self._view(at)
                if at != "/" or path != "/":
                    shown[at] = view
                pending += [f"{at.rstrip('/')}/{name}" for name in sorted(self._client.children(at))]
        return MappingProxyType(shown)

    def _view(self, path: str) -> views.NodeView:
        data, stat = self._client.get(path)
        acl, _ = self._client.get_acl(path)
        numbers = (stat.version, stat.cversion, stat.aversion, stat.czxid, stat.mzxid, stat.pzxid)
        times = (stat.ctime / 1000, stat.mtime / 1000)
        return views.NodeView(path, data, acl, *numbers, *times, stat.ephemeralOwner, stat.numChildren, False, None)

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
                    address = f"{client.host}:{client.port}"
                    shown[session.id] = views.SessionView(session.id, session.timeout_ms / 1000, address, (), 0, 0.0)
            return shown

        return MappingProxyType(self._runner.call(look))

    def _sessions_of_clients(self) -> Mapping[int, views.SessionView]:
        return self.sessions()

    def expire(self, who: Who) -> None:
        """End sessions, as if they had expired: each is resumed from here with the password that its client was given
        through the proxy, and closed.

        Raises:
            LookupError: It was not opened through the proxy, or is not alive.
        """
        ids = list(self.sessions()) if clients.is_all(who) else [clients.session_id_of(who)]
        for session_id in ids:
            password = self._interceptor.passwords.get(session_id)
            if password is None:
                raise LookupError(f"{clients.name_of(session_id)} has opened no session through the proxy")
            self._client.run(partial(self._end, session_id, password))

    async def _end(self, session_id: int, password: bytes) -> None:
        host, port = arguments.read_servers(self._real)[0]
        async with asyncio.timeout(TIMEOUT):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                connect = frame(ConnectRequest(0, 30_000, session_id, password, False).encode())
                # At once, for the client connects again as soon as it is disconnected, and takes its session back.
                writer.write(connect + frame(r.RequestHeader(1, OpCode.CLOSE_SESSION).encode()))
                answer = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
                if struct.unpack_from(">q", answer, 8)[0] != session_id:
                    raise LookupError(f"{clients.name_of(session_id)} has no session that is alive on this server")
                with suppress(ConnectionError):
                    await reader.read()  # until the server closes the connection
            finally:
                writer.close()

    def leaks(self) -> list[str]:
        """Return a line for each session that is still open."""
        try:
            return [f"session 0x{id:x} is still open, from {view.client}" for id, view in self.sessions().items()]
        except (RuntimeError, ZooKeeperError):
            return []


def _encoded(data: bytes | str | None) -> bytes:
    """Return what a node holds, given as tests give it: text is UTF-8, and None is nothing."""
    return data.encode() if isinstance(data, str) else data or b""
