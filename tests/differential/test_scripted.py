"""Scripts that take time, over sockets: zoolet's daemon and a real ZooKeeper give the same transcript.

Both sides run a script at the same time, each in its own thread. A script waits for events and for the end of
connections, so it takes as long as the slower side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from differential.script import add_watch, children, create, create_ttl, delete, exists, multi_of, read, write
from differential.sockets import LONG_TIMEOUT, Client
from support.apache import RELEASES, ApacheZooKeeper
from support.daemon import DaemonProcess
from support.waiting import DEADLINE_S

from zoolet.protocol import records as r
from zoolet.protocol.operations import OpCode

pytestmark = pytest.mark.slow
TICK_MS = 200
NEVER_USED_MS = 700
SHORT_TIMEOUT = 500
"""Session timeout in milliseconds, for a session that expires."""
LIMITS = {"tickTime": str(TICK_MS), "minSessionTimeout": "100", "maxSessionTimeout": "600000"}
PROPERTIES = {
    "zookeeper.extendedTypesEnabled": "true",
    "znode.container.checkIntervalMs": "150",
    "znode.container.maxNeverUsedIntervalMs": str(NEVER_USED_MS),
}
CONTAINER = OpCode.CREATE_CONTAINER
PERSISTENT, RECURSIVE = 0, 1
AUTH = (OpCode.AUTH, r.AuthPacket(0, "digest", b"u:p").encode())
PING = (OpCode.PING, b"")


Script = Callable[[Callable[..., Client]], object]
"""A script for one side. It receives a function that connects a client, and returns the transcript."""


@dataclass(frozen=True)
class Sides:
    """The ports of both servers."""

    real: int
    ours: int

    def same(self, script: Script) -> Any:
        """Run a script on both sides, and return their common transcript.

        Raises:
            AssertionError: The transcripts differ.
        """
        with ExitStack() as connections, ThreadPoolExecutor(2) as threads:
            connect = [partial(self._connect, connections, port) for port in (self.real, self.ours)]
            real, ours = threads.map(script, connect)
        assert ours == real
        return real

    @staticmethod
    def _connect(connections: ExitStack, port: int, timeout: int = LONG_TIMEOUT, of: Client | None = None) -> Client:
        client = Client(port, timeout, of)
        connections.callback(client.close)
        return client


@pytest.fixture(scope="module", params=RELEASES)
def sides(request: pytest.FixtureRequest) -> Iterator[Sides]:
    definitions = [f"-Dzookeeper.{name}={text}" for name, text in {**LIMITS, "maxClientCnxns": "0"}.items()]
    definitions += [f"-D{name}={text}" for name, text in PROPERTIES.items()]
    with (
        ApacheZooKeeper(request.param, config=LIMITS, properties=PROPERTIES) as apache,
        DaemonProcess("--compat", request.param, *definitions) as daemon,
    ):
        yield Sides(apache.port, daemon.port)


# --- container and TTL nodes ---


def test_container_is_deleted_after_last_child(sides: Sides) -> None:
    def script(connect: Callable[..., Client]) -> object:
        client = connect()
        made = [client.do(create("/used", b"", 4, op=CONTAINER)), client.do(create("/used/x"))]
        watching = [client.do(exists("/used", True)), client.do(children("/", True)), client.do(delete("/used/x"))]
        return made, watching, client.events(2), client.zxid(), client.do(exists("/used"))

    sides.same(script)


def test_container_created_by_transaction_is_deleted(sides: Sides) -> None:
    def script(connect: Callable[..., Client]) -> object:
        client = connect()
        client.do(add_watch("/several", RECURSIVE))
        made = client.do(multi_of(create("/several", b"", 4), create("/several/x"), delete("/several/x")))
        return made, client.events(4), client.zxid()

    sides.same(script)


def test_nested_containers_are_deleted_inside_out(sides: Sides) -> None:
    def script(connect: Callable[..., Client]) -> object:
        client = connect()
        client.do(add_watch("/out", RECURSIVE))
        client.do(create("/out", b"", 4, op=CONTAINER))
        client.do(create("/out/in", b"", 4, op=CONTAINER))
        client.do(create("/out/in/x"))
        client.do(delete("/out/in/x"))
        return client.events(6), client.zxid()

    sides.same(script)


def test_each_due_container_is_deleted_with_its_own_zxid(sides: Sides) -> None:
    def script(connect: Callable[..., Client]) -> object:
        client, names = connect(), ("a", "b", "c")
        client.do(create("/due"))
        for name in names:
            client.do(create(f"/due/{name}", b"", 4, op=CONTAINER))
            client.do(create(f"/due/{name}/x"))
        client.do(add_watch("/due", RECURSIVE))
        client.do(multi_of(*[delete(f"/due/{name}/x") for name in names]))
        kinds, zxids, paths = zip(*client.events(6), strict=True)
        return sorted(zip(kinds, paths, strict=True)), sorted(zxids), client.zxid(), client.do(children("/due"))

    sides.same(script)


def test_container_that_never_had_children_is_deleted_in_time(sides: Sides) -> None:
    def script(connect: Callable[..., Client]) -> object:
        client = connect()
        client.do(exists("/unused", True))
        started = time.monotonic()
        client.do(create("/unused", b"", 4, op=CONTAINER))
        client.events(1)
        client.do(exists("/unused", True))
        return client.events(1), time.monotonic() - started > NEVER_USED_MS / 1000, client.zxid()

    assert sides.same(script)[1]  # the script waited long enough


def test_ttl_node_expires_only_without_children(sides: Sides) -> None:
    def script(connect: Callable[..., Client]) -> object:
        client = connect()
        client.do(add_watch("/brief", RECURSIVE))
        client.do(multi_of(create_ttl("/brief", 5, 1), create("/brief/x")))  # before a check can find it empty
        made = client.events(2)
        time.sleep(0.4)  # longer than two check intervals
        return made, client.do(delete("/brief/x")), client.events(2), client.zxid()

    sides.same(script)


def test_write_of_data_extends_life_of_ttl_node(sides: Sides) -> None:
    def script(connect: Callable[..., Client]) -> object:
        client = connect()
        client.do(create_ttl("/renewed", 5, 500))
        time.sleep(0.3)
        client.do(write("/renewed", b"1"))
        started = time.monotonic()
        client.do(read("/renewed", True))
        return client.events(1), time.monotonic() - started > 0.45, client.zxid()

    assert sides.same(script)[1]  # the script waited long enough


def test_sequential_ttl_node_is_deleted_by_full_name(sides: Sides) -> None:
    def script(connect: Callable[..., Client]) -> object:
        client = connect()
        client.do(create("/row"))
        client.do(children("/row", True))
        made = client.do(create_ttl("/row/n-", 6, 200))
        client.events(1)
        client.do(exists("/row/n-0000000000", True))
        return made, client.events(1), client.zxid(), client.do(children("/row"))

    sides.same(script)


def test_container_deleted_by_client_uses_no_zxid(sides: Sides) -> None:
    def script(connect: Callable[..., Client]) -> object:
        client = connect()
        client.do(create("/first", b"", 4, op=CONTAINER))
        client.do(multi_of(create("/first/x"), delete("/first/x"), delete("/first")))
        time.sleep(0.4)
        return client.zxid()

    sides.same(script)


# --- sessions that expire ---


def test_expiry_deletes_nodes_with_one_zxid(sides: Sides) -> None:
    def script(connect: Callable[..., Client]) -> object:
        watcher, owner = connect(), connect(SHORT_TIMEOUT)
        watcher.do(create("/group"))
        owner.do(create("/group/a", b"", 1))
        owner.do(create("/group/b", b"", 1))
        owner.do(create("/group/c"))
        owner.do(create("/group/n-", b"", 3))
        watcher.do(add_watch("/group", PERSISTENT))
        other = connect()
        other.do(add_watch("/group", RECURSIVE))
        events = watcher.events(3), sorted(other.events(3))
        ends = events, watcher.zxid(), watcher.do(children("/group")), owner.closed()
        return ends, connect(of=owner).refused, watcher.zxid()

    sides.same(script)


def test_event_of_deleted_child_precedes_event_of_parent(sides: Sides) -> None:
    def script(connect: Callable[..., Client]) -> object:
        watcher, owner = connect(), connect(SHORT_TIMEOUT)
        watcher.do(create("/order"))
        owner.do(create("/order/a", b"", 1))
        watcher.do(read("/order/a", True))
        watcher.do(children("/order/a", True))
        watcher.do(children("/order", True))
        return watcher.events(2), watcher.zxid()

    sides.same(script)


def test_expiry_of_session_without_nodes_takes_zxid(sides: Sides) -> None:
    def script(connect: Callable[..., Client]) -> object:
        other = connect()
        idle = connect(SHORT_TIMEOUT)
        started = time.monotonic()
        closed, before, ended = idle.closed(), started + SHORT_TIMEOUT / 1000, time.monotonic()
        # A real server may close the connection before the transaction.
        while other.zxid() < 2 and time.monotonic() < ended + DEADLINE_S:
            pass
        return closed, ended > before, other.zxid()

    assert sides.same(script)[1]  # a session never expires early


def test_session_without_connection_expires(sides: Sides) -> None:
    def script(connect: Callable[..., Client]) -> object:
        watcher, owner = connect(), connect(SHORT_TIMEOUT)
        owner.do(create("/left", b"", 1))
        watcher.do(exists("/left", True))
        owner.cut()
        return watcher.events(1), connect(of=owner).refused, watcher.zxid()

    sides.same(script)


def test_resumed_session_gets_new_timeout(sides: Sides) -> None:
    def script(connect: Callable[..., Client]) -> object:
        watcher, owner = connect(), connect()
        owner.do(create("/kept", b"", 1))
        resumed = connect(SHORT_TIMEOUT, of=owner)
        seen = resumed.do(exists("/kept")), resumed.welcome.timeout_ms, owner.closed()
        watcher.do(exists("/kept", True))
        return seen, watcher.events(1), resumed.closed(), watcher.zxid()

    sides.same(script)


@pytest.mark.parametrize(("operation", "xid"), [(PING, -2), (children("/none"), 1)])
def test_any_request_keeps_session_alive(sides: Sides, operation: tuple[OpCode, bytes], xid: int) -> None:
    def script(connect: Callable[..., Client]) -> object:
        other, busy = connect(), connect(800)
        return busy.keep_alive(1.3, operation, xid), other.zxid()

    assert sides.same(script) == (True, 1)


def test_authentication_does_not_keep_a_session_alive(sides: Sides) -> None:
    def script(connect: Callable[..., Client]) -> object:
        other, busy = connect(), connect(SHORT_TIMEOUT)
        return busy.keep_alive(3, AUTH, -4), other.zxid()

    assert sides.same(script) == (False, 2)


def test_session_timeout_is_clamped_to_limits(sides: Sides) -> None:
    def script(connect: Callable[..., Client]) -> object:
        return [connect(asked).welcome.timeout_ms for asked in (-1, 0, 99, 100, 601_000)]

    assert sides.same(script) == [100, 100, 100, 100, 600_000]


# --- reconfig ---


def test_reconfig_is_refused_while_it_is_disabled(sides: Sides) -> None:
    requests = [
        (None, "server.1=a:1:2", None, -1),
        ("server.1=127.0.0.1:1:2:participant;3", None, None, 0),
        (None, None, "server.2=b:1:2", -1),
        (None, None, None, 1 << 40),
        ("nonsense", "nonsense", "nonsense", -1),
    ]

    def script(connect: Callable[..., Client]) -> object:
        client = connect()
        replies = [client.do((OpCode.RECONFIG, r.ReconfigRequest(*request).encode())) for request in requests]
        odd = [client.do((OpCode.RECONFIG, body)) for body in (b"", b"\0\0\0\5a", b"\xff" * 11)]
        return (
            replies,
            odd,
            client.zxid(),
            client.do(read("/zookeeper/config")),
            client.do(write("/zookeeper/config", b"")),
        )

    sides.same(script)
