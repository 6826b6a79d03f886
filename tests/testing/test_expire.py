"""``Server.expire``: what the client sees, what others see, and when."""

from __future__ import annotations

import asyncio
import queue
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from kazoo.client import KazooClient, KazooState
from support.kazoo_clients import next_states, states_of
from support.wire import DEADLINE_S, EPHEMERAL, Wire

from zoolet.server import Server


def test_when_expire_returns_all_has_happened(server: Server, wires: ExitStack) -> None:
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


def test_a_kazoo_client_is_notified_of_the_end_of_another(server: Server, kazoo: Callable[..., KazooClient]) -> None:
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
