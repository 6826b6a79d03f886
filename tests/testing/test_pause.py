"""``Server.pause`` and ``Server.resume``: a client that is not served for a while."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from kazoo.client import KazooClient
from support.wire import DEADLINE_S, EPHEMERAL, Wire

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.operations import OpCode
from zoolet.server import Server


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
def test_a_client_whose_session_ended_in_a_pause_is_disconnected_at_the_resume(
    manual: Server, wires: ExitStack, who: str
) -> None:
    victim = wires.enter_context(Wire(manual, 10)).welcomed()
    manual.pause(victim.id)
    manual.advance(10)

    manual.resume("all" if who == "all" else victim.id)

    assert victim.ended()


def test_a_paused_client_that_is_expired_is_disconnected_at_the_resume(server: Server, wires: ExitStack) -> None:
    victim = wires.enter_context(Wire(server)).welcomed()
    server.pause(victim.id)
    server.expire(victim.id)

    server.resume("all")

    assert victim.ended()


def test_a_paused_client_that_is_dropped_is_disconnected(server: Server, wires: ExitStack) -> None:
    victim = wires.enter_context(Wire(server)).welcomed()
    server.pause(victim.id)

    server.drop(victim.id)

    assert victim.ended()


def test_a_session_that_is_not_alive_may_be_paused_by_its_id(server: Server, wires: ExitStack) -> None:
    victim, other = (wires.enter_context(Wire(server)).welcomed() for _ in range(2))
    server.expire(victim.id)

    server.pause(victim.id, missing_ok=True)
    again = wires.enter_context(Wire(server, session=(victim.id, victim.password)))
    for _ in range(3):
        other.ask(OpCode.PING)
    assert not again.has_something()
    server.resume(victim.id)

    assert again.welcomed().id == 0  # it has expired


def test_a_client_without_a_session_cannot_be_paused_all_the_same(server: Server) -> None:
    client = KazooClient(server.hosts)

    with pytest.raises(LookupError):
        server.pause(client, missing_ok=True)

    client.close()


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
