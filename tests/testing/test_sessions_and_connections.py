"""Sessions that end and connections that break on command: what the client sees, what others see, and when."""

from __future__ import annotations

import asyncio
import queue
import select
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self

import pytest
from kazoo.client import KazooClient, KazooState

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import Record, int_at
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.server import Server

DEADLINE_S: Final = 10.0  # only ever reached on failure
SOON_S: Final = 0.3  # for what is sent at once, or not at all
QUICK: Final = {"max_tries": -1, "delay": 0.001, "backoff": 1, "max_jitter": 0.0}  # how kazoo reconnects in these tests
EPHEMERAL: Final = 1
NOBODY: Final = 0x1234
VERBS: Final[dict[str, Callable[[Server, Any], None]]] = {
    "expire": Server.expire,
    "drop": Server.drop,
    "pause": Server.pause,
    "resume": Server.resume,
}


# --- what the tests say it with ---


class Wire:
    """A session reduced to its socket.

    Args:
        server: Whom to connect to.
        timeout: The session timeout to ask for.
        session: The id and password of the session to go on with.
    """

    def __init__(self, server: Server, timeout: float = 30.0, session: tuple[int, bytes] = (0, bytes(16))) -> None:
        self.link = socket.create_connection(("127.0.0.1", server.port), DEADLINE_S)
        self.stream = self.link.makefile("rb")
        self.link.sendall(frame(ConnectRequest(0, round(timeout * 1000), *session).encode()))
        self.events: list[tuple[int, str]] = []
        self.xid = 0
        self.id = 0
        self.password = bytes(16)

    def welcomed(self) -> Self:
        """Wait for the server's first words."""
        welcome = ConnectResponse.decode(self.payload())
        self.id, self.password = welcome.session_id, welcome.password or b""
        return self

    def payload(self) -> bytes:
        """Wait for one frame; the end of the connection is an EOFError."""
        head = self.stream.read(4)
        if len(head) < 4:
            raise EOFError
        return self.stream.read(int_at(head)[0])

    def send(self, op: OpCode, body: Record | None = None) -> None:
        """Send one request."""
        self.xid += 1
        self.link.sendall(frame(r.RequestHeader(self.xid, op).encode() + (body.encode() if body else b"")))

    def reply(self) -> int:
        """Wait for a reply, and give its error code; events that come before it are kept."""
        while True:
            payload = self.payload()
            header = r.ReplyHeader.decode(payload)
            if header.xid != -1:
                return header.err
            event = r.WatcherEvent.decode(payload[16:])
            self.events.append((event.type, event.path))

    def event(self) -> tuple[int, str]:
        """Wait for an event."""
        event = r.WatcherEvent.decode(self.payload()[16:])
        return event.type, event.path

    def ask(self, op: OpCode, body: Record | None = None) -> int:
        """Send one request and wait for its reply."""
        self.send(op, body)
        return self.reply()

    def create(self, path: str, flags: int = 0) -> int:
        """Make a node."""
        return self.ask(OpCode.CREATE, r.CreateRequest(path, b"", OPEN_ACL_UNSAFE, flags))

    def watch(self, path: str) -> int:
        """Leave an exists watch."""
        return self.ask(OpCode.EXISTS, r.ExistsRequest(path, True))

    def has_something(self) -> bool:
        """Return whether something has come that was not read yet."""
        return bool(select.select([self.link], [], [], 0)[0])

    def ended(self) -> bool:
        """Return whether the server closes the connection, or has."""
        return bool(select.select([self.link], [], [], SOON_S)[0]) and not self.stream.read(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stream.close()
        self.link.close()


@pytest.fixture
def server() -> Iterator[Server]:
    """A server with the real clock."""
    with Server() as server:
        yield server


@pytest.fixture
def manual() -> Iterator[Server]:
    """A server whose time stands still."""
    with Server(clock="manual") as server:
        yield server


@pytest.fixture
def wires() -> Iterator[ExitStack]:
    """Where to enter connections, so that they are closed in the end."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def kazoo() -> Iterator[Callable[..., KazooClient]]:
    """A function that makes connected KazooClients of a server."""
    clients: list[KazooClient] = []

    def make(server: Server, **options: Any) -> KazooClient:
        client = KazooClient(server.hosts, **{"timeout": 30, "connection_retry": QUICK, **options})
        clients.append(client)
        client.start(DEADLINE_S)
        return client

    yield make
    for client in clients:
        client.stop()
        client.close()


def states_of(client: KazooClient) -> queue.Queue[tuple[str, float]]:
    """Collect the states of a client as they come, with their times."""
    states: queue.Queue[tuple[str, float]] = queue.Queue()
    client.add_listener(lambda state: states.put((state, time.perf_counter())))
    return states


def next_states(states: queue.Queue[tuple[str, float]], count: int) -> list[str]:
    """Wait for so many states."""
    return [states.get(timeout=DEADLINE_S)[0] for _ in range(count)]


# --- expire ---


def test_when_expire_returns_all_has_happened(server: Server, wires: ExitStack) -> None:
    victim, other = (wires.enter_context(Wire(server)).welcomed() for _ in range(2))
    victim.create("/e1", EPHEMERAL)
    victim.create("/e2", EPHEMERAL)
    other.create("/stays", EPHEMERAL)
    other.watch("/e1")
    victim.watch("/stays")
    assert {(watch.path, watch.session) for watch in server.watches()} == {("/e1", other.id), ("/stays", victim.id)}

    server.expire(victim.id)

    assert other.has_something()
    assert set(server.tree()) == {"/stays"}
    assert set(server.sessions()) == {other.id}
    assert server.watches() == ()
    assert other.event() == (2, "/e1")
    with pytest.raises(EOFError):
        victim.payload()


def test_a_kazoo_client_hears_of_the_end_of_another(server: Server, kazoo: Callable[..., KazooClient]) -> None:
    victim, other = kazoo(server), kazoo(server)
    victim.create("/e", ephemeral=True)
    events: queue.Queue[Any] = queue.Queue()
    other.exists("/e", watch=events.put)

    server.expire(victim)

    assert "/e" not in server.tree()
    assert server.watches() == ()
    event = events.get(timeout=DEADLINE_S)
    assert (event.type, event.path) == ("DELETED", "/e")


def test_an_expired_kazoo_client_gets_a_new_session(server: Server, kazoo: Callable[..., KazooClient]) -> None:
    client = kazoo(server)
    before, _ = client.client_id
    states = states_of(client)

    server.expire(client)

    assert next_states(states, 3) == [KazooState.SUSPENDED, KazooState.LOST, KazooState.CONNECTED]
    after, _ = client.client_id
    assert after != before
    assert set(server.sessions()) == {after}


@pytest.mark.slow
def test_a_kazoo_client_is_connected_again_within_250_ms(server: Server) -> None:
    client = KazooClient(server.hosts, timeout=30)  # kazoo sleeps twice from 60 to 140 ms, by its own dice
    client.start(DEADLINE_S)
    states = states_of(client)
    took = []
    for _ in range(5):
        began = time.perf_counter()
        server.expire(client)
        seen = [states.get(timeout=DEADLINE_S) for _ in range(3)]
        assert [state for state, _ in seen] == [KazooState.SUSPENDED, KazooState.LOST, KazooState.CONNECTED]
        took.append(seen[-1][1] - began)
    client.stop()
    client.close()

    assert statistics.median(took) <= 0.25, took


def test_an_expired_session_cannot_be_gone_on_with(server: Server, wires: ExitStack) -> None:
    victim = wires.enter_context(Wire(server)).welcomed()

    server.expire(victim.id)

    again = wires.enter_context(Wire(server, session=(victim.id, victim.password))).welcomed()
    assert again.id == 0


def test_a_session_without_a_connection_expires_too(server: Server, wires: ExitStack) -> None:
    with Wire(server).welcomed() as victim:
        victim.create("/e", EPHEMERAL)
    server.wait_for(lambda: not server.sessions()[victim.id].connected)

    server.expire(victim.id)

    assert dict(server.tree()) == {}
    assert dict(server.sessions()) == {}


def test_all_sessions_expire(server: Server, wires: ExitStack) -> None:
    clients = [wires.enter_context(Wire(server)).welcomed() for _ in range(5)]
    for i, client in enumerate(clients):
        client.create(f"/e{i}", EPHEMERAL)

    server.expire("all")

    assert (dict(server.tree()), dict(server.sessions())) == ({}, {})
    for client in clients:
        with pytest.raises(EOFError):
            client.payload()


async def test_expire_is_done_when_it_returns_in_the_server_s_loop_too(wires: ExitStack) -> None:
    async with Server() as server:
        victim = await asyncio.to_thread(lambda: Wire(server).welcomed())
        wires.enter_context(victim)
        await asyncio.to_thread(victim.create, "/e", EPHEMERAL)
        assert set(server.tree()) == {"/e"}

        server.expire(victim.id)

        assert (dict(server.tree()), dict(server.sessions())) == ({}, {})


# --- drop ---


def test_a_dropped_client_keeps_its_session_and_its_nodes(server: Server, kazoo: Callable[..., KazooClient]) -> None:
    client = kazoo(server)
    client.create("/e", ephemeral=True)
    before = client.client_id
    states = states_of(client)

    server.drop(client)

    assert next_states(states, 2) == [KazooState.SUSPENDED, KazooState.CONNECTED]
    assert client.client_id == before
    assert server.tree()["/e"].ephemeral_owner == before[0]


def test_a_drop_by_id_cuts_one_connection_only(server: Server, wires: ExitStack) -> None:
    victim, other = (wires.enter_context(Wire(server)).welcomed() for _ in range(2))

    server.drop(victim.id)

    with pytest.raises(EOFError):
        victim.payload()
    assert set(server.sessions()) == {victim.id, other.id}
    assert other.create("/a") == 0


def test_a_session_is_not_connected_once_drop_returns(server: Server, wires: ExitStack) -> None:
    victim = wires.enter_context(Wire(server)).welcomed()
    assert server.sessions()[victim.id].connected

    server.drop(victim.id)

    assert not server.sessions()[victim.id].connected


def test_all_connections_are_dropped_and_all_sessions_stay(server: Server, wires: ExitStack) -> None:
    clients = [wires.enter_context(Wire(server)).welcomed() for _ in range(3)]

    server.drop("all")

    for client in clients:
        with pytest.raises(EOFError):
            client.payload()
    assert set(server.sessions()) == {client.id for client in clients}


def test_dropping_a_session_without_a_connection_is_nothing(server: Server, wires: ExitStack) -> None:
    victim = wires.enter_context(Wire(server)).welcomed()
    server.drop(victim.id)

    server.drop(victim.id)

    assert set(server.sessions()) == {victim.id}


# --- pause, resume ---


def test_a_paused_client_gets_no_answer_until_resume(server: Server, wires: ExitStack) -> None:
    victim, other = (wires.enter_context(Wire(server)).welcomed() for _ in range(2))

    server.pause(victim.id)
    victim.send(OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0))
    victim.send(OpCode.CREATE, r.CreateRequest("/b", b"", OPEN_ACL_UNSAFE, 0))
    for _ in range(3):
        other.ask(OpCode.PING)  # by now the server has looked at all sockets
    assert not victim.has_something()
    assert dict(server.tree()) == {}
    server.resume(victim.id)

    assert (victim.reply(), victim.reply()) == (0, 0)
    assert set(server.tree()) == {"/a", "/b"}


def test_a_paused_client_gets_its_events_at_the_resume(server: Server, wires: ExitStack) -> None:
    victim, other = (wires.enter_context(Wire(server)).welcomed() for _ in range(2))
    victim.watch("/a")

    server.pause(victim.id)
    other.create("/a")
    assert not victim.has_something()
    server.resume(victim.id)

    assert victim.event() == (1, "/a")


def test_a_pause_holds_for_the_next_connection_of_the_session(server: Server, wires: ExitStack) -> None:
    victim, other = (wires.enter_context(Wire(server)).welcomed() for _ in range(2))
    server.pause(victim.id)
    server.drop(victim.id)

    again = wires.enter_context(Wire(server, session=(victim.id, victim.password)))
    for _ in range(3):
        other.ask(OpCode.PING)
    assert not again.has_something()
    server.resume(victim.id)

    assert again.welcomed().id == victim.id


def test_all_clients_are_paused_and_resumed(server: Server, wires: ExitStack) -> None:
    clients = [wires.enter_context(Wire(server)).welcomed() for _ in range(3)]

    server.pause("all")
    for client in clients:
        client.send(OpCode.PING)
    server.populate({"/later": "x"})
    assert not any(client.has_something() for client in clients)
    server.resume("all")

    assert [client.reply() for client in clients] == [0, 0, 0]


def test_a_paused_kazoo_client_waits(server: Server, kazoo: Callable[..., KazooClient]) -> None:
    client = kazoo(server)
    server.pause(client)
    pending = client.create_async("/a")
    kazoo(server).create("/b")
    assert not pending.ready()
    assert set(server.tree()) == {"/b"}

    server.resume(client)

    assert pending.get(timeout=DEADLINE_S) == "/a"


def test_a_paused_session_expires_by_advance(manual: Server, wires: ExitStack) -> None:
    victim, other = (wires.enter_context(Wire(manual, timeout)).welcomed() for timeout in (10, 20))
    victim.create("/e", EPHEMERAL)
    other.watch("/e")

    manual.pause(victim.id)
    victim.send(OpCode.PING)  # does not arrive
    manual.advance(9.999)
    assert set(manual.sessions()) == {victim.id, other.id}
    manual.advance(0.001)

    assert set(manual.sessions()) == {other.id}
    assert dict(manual.tree()) == {}
    assert other.event() == (2, "/e")


def test_what_a_paused_client_sends_keeps_no_session_alive(manual: Server, wires: ExitStack) -> None:
    victim = wires.enter_context(Wire(manual, 10)).welcomed()
    manual.pause(victim.id)

    for _ in range(3):
        manual.advance(3)
        victim.send(OpCode.PING)
    manual.advance(1)

    assert dict(manual.sessions()) == {}


@pytest.mark.parametrize("who", ["by id", "all"])
def test_a_client_whose_session_ended_in_a_pause_is_cut_off_at_the_resume(
    manual: Server, wires: ExitStack, who: str
) -> None:
    victim = wires.enter_context(Wire(manual, 10)).welcomed()
    manual.pause(victim.id)
    manual.advance(10)

    manual.resume("all" if who == "all" else victim.id)

    assert victim.ended()


def test_a_paused_client_that_is_expired_is_cut_off_at_the_resume(server: Server, wires: ExitStack) -> None:
    victim = wires.enter_context(Wire(server)).welcomed()
    server.pause(victim.id)
    server.expire(victim.id)

    server.resume("all")

    assert victim.ended()


def test_a_paused_client_that_is_dropped_is_cut_off(server: Server, wires: ExitStack) -> None:
    victim = wires.enter_context(Wire(server)).welcomed()
    server.pause(victim.id)

    server.drop(victim.id)

    assert victim.ended()


def test_a_paused_session_expires_by_the_real_clock(server: Server, wires: ExitStack) -> None:
    victim = wires.enter_context(Wire(server, timeout=0.1)).welcomed()
    victim.create("/e", EPHEMERAL)

    server.pause(victim.id)

    server.wait_for(lambda: not server.sessions())
    assert dict(server.tree()) == {}


@pytest.mark.parametrize("who", ["by id", "all"])
def test_a_pause_counts_once_however_often_it_was_asked_for(server: Server, wires: ExitStack, who: str) -> None:
    victim = wires.enter_context(Wire(server)).welcomed()
    server.pause(victim.id)
    server.pause("all" if who == "all" else victim.id)

    server.resume("all" if who == "all" else victim.id)

    assert victim.ask(OpCode.PING) == 0


# --- refuse_connections, accept_connections ---


def test_connections_are_refused_until_they_are_accepted_again(server: Server, wires: ExitStack) -> None:
    before = wires.enter_context(Wire(server)).welcomed()
    port = server.port

    server.refuse_connections()
    with pytest.raises(ConnectionRefusedError):
        Wire(server)
    assert before.create("/a") == 0
    server.accept_connections()

    assert server.port == port
    assert wires.enter_context(Wire(server)).welcomed().create("/b") == 0


async def test_connections_are_refused_in_a_loop_too() -> None:
    async with Server() as server:
        server.refuse_connections()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)
        server.accept_connections()
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.close()
        await writer.wait_closed()


def test_refusing_and_accepting_twice_is_nothing(server: Server, wires: ExitStack) -> None:
    server.accept_connections()
    server.refuse_connections()
    server.refuse_connections()
    with pytest.raises(ConnectionRefusedError):
        Wire(server)
    server.accept_connections()
    server.accept_connections()

    assert wires.enter_context(Wire(server)).welcomed().id


def test_a_server_that_refuses_stops_as_any_other(wires: ExitStack) -> None:
    with Server() as server:
        port = server.port
        server.refuse_connections()
    with Server(port=port) as again:
        assert wires.enter_context(Wire(again)).welcomed().id


def test_a_kazoo_client_comes_back_with_its_session(server: Server, kazoo: Callable[..., KazooClient]) -> None:
    client = kazoo(server)
    before = client.client_id
    states = states_of(client)

    server.refuse_connections()
    server.drop(client)
    assert next_states(states, 1) == [KazooState.SUSPENDED]
    server.accept_connections()

    assert next_states(states, 1) == [KazooState.CONNECTED]
    assert client.client_id == before


# --- who ---


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("who", ["bob", "ALL", "", None, 1.5, True, b"all", [1], {}, object], ids=repr)
def test_somebody_that_has_no_sessions_is_named(server: Server, verb: str, who: object) -> None:
    with pytest.raises(ValueError) as failure:
        VERBS[verb](server, who)

    assert repr(who) in str(failure.value)


@pytest.mark.parametrize("verb", VERBS)
def test_an_id_that_is_unknown_is_named(server: Server, verb: str) -> None:
    with pytest.raises(LookupError, match=f"{NOBODY}|{NOBODY:#x}"):
        VERBS[verb](server, NOBODY)


@pytest.mark.parametrize("verb", VERBS)
def test_a_client_that_has_no_session_is_a_lookup_error(server: Server, verb: str) -> None:
    client = KazooClient(server.hosts)

    with pytest.raises(LookupError):
        VERBS[verb](server, client)

    client.close()


@pytest.mark.parametrize("verb", VERBS)
def test_a_client_of_another_server_is_a_lookup_error(verb: str, kazoo: Callable[..., KazooClient]) -> None:
    with Server() as one, Server() as two:
        client = kazoo(one)
        with pytest.raises(LookupError):
            VERBS[verb](two, client)
        assert one.sessions()[client.client_id[0]].connected
        client.stop()


@pytest.mark.parametrize("verb", VERBS)
def test_all_of_nobody_is_nothing(server: Server, verb: str) -> None:
    VERBS[verb](server, "all")

    assert dict(server.sessions()) == {}


def test_an_id_that_has_expired_is_unknown(server: Server, wires: ExitStack) -> None:
    victim = wires.enter_context(Wire(server)).welcomed()
    server.expire(victim.id)

    with pytest.raises(LookupError):
        server.expire(victim.id)
    with pytest.raises(LookupError):
        server.drop(victim.id)


def test_a_negative_id_is_an_id(server: Server) -> None:
    with pytest.raises(LookupError):
        server.expire(-5)
