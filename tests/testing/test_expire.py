"""``Server.expire``: its effect on the client and on other clients, and the timing."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from kazoo.client import KazooClient, KazooState
from support.kazoo_clients import collect_states, next_states
from support.waiting import DEADLINE_S, repeat_until_fast
from support.wire import EPHEMERAL, Wire

from zoolet.testing import Server


def test_expiry_is_complete_when_expire_returns(server: Server, wires: ExitStack) -> None:
    victim, other = (wires.enter_context(Wire(server)).welcomed() for _ in range(2))
    victim.create("/e1", EPHEMERAL)
    victim.create("/e2", EPHEMERAL)
    other.create("/stays", EPHEMERAL)
    other.watch("/e1")
    victim.watch("/stays")
    assert {(watch.path, watch.session) for watch in server.watches()} == {("/e1", other.id), ("/stays", victim.id)}

    server.expire(victim.id)

    assert set(server.tree()) == {"/stays"}
    assert set(server.sessions()) == {other.id}
    assert server.watches() == ()
    assert other.event() == (2, "/e1")
    with pytest.raises(EOFError):
        victim.payload()


def test_kazoo_client_sees_expiry_of_other_client(server: Server, kazoo: Callable[..., KazooClient]) -> None:
    victim, other = kazoo(server), kazoo(server)
    victim.create("/e", ephemeral=True)
    events: queue.Queue[Any] = queue.Queue()
    other.exists("/e", watch=events.put)

    server.expire(victim)

    assert "/e" not in server.tree()
    assert server.watches() == ()
    event = events.get(timeout=DEADLINE_S)
    assert (event.type, event.path) == ("DELETED", "/e")


def test_expired_kazoo_client_gets_new_session(server: Server, kazoo: Callable[..., KazooClient]) -> None:
    client = kazoo(server)
    before, _ = client.client_id
    states = collect_states(client)

    server.expire(client)

    assert next_states(states, 3) == [KazooState.SUSPENDED, KazooState.LOST, KazooState.CONNECTED]
    after, _ = client.client_id
    assert after != before
    assert set(server.sessions()) == {after}


@pytest.mark.slow
def test_kazoo_client_reconnects_within_250_ms(server: Server) -> None:
    # kazoo sleeps twice for 100 ms; without this option, for a random time of 60 to 140 ms
    retry = {"max_tries": -1, "max_jitter": 0.0}
    client = KazooClient(server.hosts, timeout=30, connection_retry=retry)
    client.start(DEADLINE_S)
    states = collect_states(client)
    took: list[float] = []
    for _ in repeat_until_fast(took, 0.25):
        began = time.perf_counter()
        server.expire(client)
        seen = [states.get(timeout=DEADLINE_S) for _ in range(3)]
        assert [state for state, _ in seen] == [KazooState.SUSPENDED, KazooState.LOST, KazooState.CONNECTED]
        took.append(seen[-1][1] - began)
    client.stop()
    client.close()

    assert min(took) <= 0.25, took


def test_expired_session_cannot_be_resumed(server: Server, wires: ExitStack) -> None:
    victim = wires.enter_context(Wire(server)).welcomed()

    server.expire(victim.id)

    again = wires.enter_context(Wire(server, session=(victim.id, victim.password))).welcomed()
    assert again.id == 0


def test_session_without_connection_expires(server: Server, wires: ExitStack) -> None:
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


async def test_expiry_is_complete_when_expire_returns_in_server_loop(wires: ExitStack) -> None:
    async with Server() as server:
        victim = await asyncio.to_thread(lambda: Wire(server).welcomed())
        wires.enter_context(victim)
        await asyncio.to_thread(victim.create, "/e", EPHEMERAL)
        assert set(server.tree()) == {"/e"}

        server.expire(victim.id)

        assert (dict(server.tree()), dict(server.sessions())) == ({}, {})
