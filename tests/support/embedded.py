"""Helpers for an embedded server: its clients, all its methods, and the content of its tree."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kazoo.client import KazooClient
from support.waiting import DEADLINE_S

from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.testing import Server, hold
from zoolet.testing.state.views import NodeView

HELLO: Final = frame(ConnectRequest(timeout_ms=30_000).encode())
CALLS: Final[dict[str, Callable[[Server], object]]] = {
    "port": lambda server: server.port,
    "hosts": lambda server: server.hosts,
    "expire": lambda server: server.expire("all"),
    "drop": lambda server: server.drop("all"),
    "pause": lambda server: server.pause("all"),
    "resume": lambda server: server.resume("all"),
    "expire an id": lambda server: server.expire(1),
    "drop an id": lambda server: server.drop(1),
    "pause an id": lambda server: server.pause(1),
    "resume an id": lambda server: server.resume(1),
    "refuse_connections": lambda server: server.refuse_connections(),
    "accept_connections": lambda server: server.accept_connections(),
    "set_read_only": lambda server: server.set_read_only(True),
    "advance": lambda server: server.advance(1),
    "fault": lambda server: server.fault(hold()),
    "populate": lambda server: server.populate({"/a": "x"}),
    "reset": lambda server: server.reset(),
    "tree": lambda server: server.tree(),
    "sessions": lambda server: server.sessions(),
    "watches": lambda server: server.watches(),
    "ops": lambda server: server.ops(),
    "op_count": lambda server: server.op_count(),
    "zxid": lambda server: server.zxid(),
    "wait_for": lambda server: server.wait_for(lambda: True),
}


def descriptors() -> int:
    """Return the number of open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def ask(port: int, command: bytes, host: str = "127.0.0.1") -> bytes:
    """Send a four-letter command. Return the answer."""
    with socket.create_connection((host, port), DEADLINE_S) as link, link.makefile("rb") as answer:
        link.sendall(command)
        return answer.read()


def ruok(port: int) -> bytes:
    """Send ``ruok`` to a server."""
    return ask(port, b"ruok")


async def ruok_in_loop(port: int) -> bytes:
    """Send ``ruok`` to a server in the running event loop."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"ruok")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@contextmanager
def open_session(port: int) -> Iterator[socket.socket]:
    """Open a session, and yield its socket."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as link:
        link.sendall(HELLO)
        answer = link.recv(4096)
        assert ConnectResponse.decode(answer[4:]).session_id
        yield link


def create_node_with_kazoo(hosts: str) -> str:
    """Connect with kazoo, and create a node."""
    client = KazooClient(hosts, timeout=30)
    client.start(DEADLINE_S)
    try:
        path: str = client.create("/made-", b"x", sequence=True)
        return path
    finally:
        client.stop()
        client.close()


def error_text(do: Callable[[], object]) -> str:
    """Call a function. Return its error as text, or ``no error``."""
    try:
        do()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def all_nodes(server: Server) -> dict[str, NodeView]:
    """Return all nodes, including the root and ``/zookeeper``."""
    return {**server.tree(), **server.tree("/zookeeper")}


def node_data(server: Server) -> dict[str, bytes | None]:
    """Return the data of the nodes."""
    return {path: node.data for path, node in server.tree().items()}
