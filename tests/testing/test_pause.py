"""``Server.pause`` and ``Server.resume`` stop and continue serving a client."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from kazoo.client import KazooClient
from support.waiting import DEADLINE_S
from support.wire import EPHEMERAL, Wire

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.operations import OpCode
from zoolet.testing import Server


def test_paused_client_gets_no_answer_until_resume(server: Server, wires: ExitStack) -> None:
    victim, other = (wires.enter_context(Wire(server)).welcomed() for _ in range(2))

    server.pause(victim.id)
    victim.send(OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0))
    victim.send(OpCode.CREATE, r.CreateRequest("/b", b"", OPEN_ACL_UNSAFE, 0))
    for _ in range(3):
        other.ask(OpCode.PING)  # by now the server has read from all sockets
    assert not victim.has_something()
    assert dict(server.tree()) == {}
    server.resume(victim.id)

    assert (victim.reply(), victim.reply()) == (0, 0)
    assert set(server.tree()) == {"/a", "/b"}


def test_paused_client_gets_its_events_on_resume(server: Server, wires: ExitStack) -> None:
    victim, other = (wires.enter_context(Wire(server)).welcomed() for _ in range(2))
    victim.watch("/a")

    server.pause(victim.id)
    other.create("/a")
    assert not victim.has_something()
    server.resume(victim.id)

    assert victim.event() == (1, "/a")


def test_pause_applies_to_next_connection_of_session(server: Server, wires: ExitStack) -> None:
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


def test_paused_kazoo_client_waits(server: Server, kazoo: Callable[..., KazooClient]) -> None:
    client = kazoo(server)
    server.pause(client)
    pending = client.create_async("/a")
    kazoo(server).create("/b")
    assert not pending.ready()
    assert set(server.tree()) == {"/b"}

    server.resume(client)

    assert pending.get(timeout=DEADLINE_S) == "/a"


def test_paused_session_expires_on_advance(manual: Server, wires: ExitStack) -> None:
    victim, other = (wires.enter_context(Wire(manual, timeout)).welcomed() for timeout in (10, 20))
    victim.create("/e", EPHEMERAL)
    other.watch("/e")

    manual.pause(victim.id)
    victim.send(OpCode.PING)  # the server does not read this ping, so it does not extend the session
    manual.advance(9.999)
    assert set(manual.sessions()) == {victim.id, other.id}
    manual.advance(0.001)

    assert set(manual.sessions()) == {other.id}
    assert dict(manual.tree()) == {}
    assert other.event() == (2, "/e")


def test_paused_client_keeps_no_session_alive(manual: Server, wires: ExitStack) -> None:
    victim = wires.enter_context(Wire(manual, 10)).welcomed()
    manual.pause(victim.id)

    for _ in range(3):
        manual.advance(3)
        victim.send(OpCode.PING)
    manual.advance(1)

    assert dict(manual.sessions()) == {}


@pytest.mark.parametrize("who", ["by id", "all"])
def test_resume_disconnects_client_expired_by_timeout(manual: Server, wires: ExitStack, who: str) -> None:
    victim = wires.enter_context(Wire(manual, 10)).welcomed()
    manual.pause(victim.id)
    manual.advance(10)

    manual.resume("all" if who == "all" else victim.id)

    assert victim.ended()


def test_resume_disconnects_client_expired_by_call(server: Server, wires: ExitStack) -> None:
    victim = wires.enter_context(Wire(server)).welcomed()
    server.pause(victim.id)
    server.expire(victim.id)

    server.resume("all")

    assert victim.ended()


def test_paused_client_is_disconnected_by_drop(server: Server, wires: ExitStack) -> None:
    victim = wires.enter_context(Wire(server)).welcomed()
    server.pause(victim.id)

    server.drop(victim.id)

    assert victim.ended()


def test_expired_session_can_be_paused_by_id(server: Server, wires: ExitStack) -> None:
    victim, other = (wires.enter_context(Wire(server)).welcomed() for _ in range(2))
    server.expire(victim.id)

    server.pause(victim.id, missing_ok=True)
    again = wires.enter_context(Wire(server, session=(victim.id, victim.password)))
    for _ in range(3):
        other.ask(OpCode.PING)
    assert not again.has_something()
    server.resume(victim.id)

    assert again.welcomed().id == 0  # the session has expired


def test_client_without_session_cannot_be_paused(server: Server) -> None:
    client = KazooClient(server.hosts)

    with pytest.raises(LookupError):
        server.pause(client, missing_ok=True)

    client.close()


def test_paused_session_expires_with_real_clock(server: Server, wires: ExitStack) -> None:
    victim = wires.enter_context(Wire(server, timeout=0.1)).welcomed()
    victim.create("/e", EPHEMERAL)

    server.pause(victim.id)

    server.wait_for(lambda: not server.sessions())
    assert dict(server.tree()) == {}


@pytest.mark.parametrize("who", ["by id", "all"])
def test_repeated_pause_counts_once(server: Server, wires: ExitStack, who: str) -> None:
    victim = wires.enter_context(Wire(server)).welcomed()
    server.pause(victim.id)
    server.pause("all" if who == "all" else victim.id)

    server.resume("all" if who == "all" else victim.id)

    assert victim.ask(OpCode.PING) == 0
