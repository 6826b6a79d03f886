"""``Server.drop`` closes connections, but keeps their sessions and nodes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from kazoo.client import KazooClient, KazooState
from support.kazoo_clients import collect_states, next_states
from support.wire import Wire

from zoolet.testing import Server


def test_dropped_client_keeps_session_and_nodes(server: Server, kazoo: Callable[..., KazooClient]) -> None:
    client = kazoo(server)
    client.create("/e", ephemeral=True)
    before = client.client_id
    states = collect_states(client)

    server.drop(client)

    assert next_states(states, 2) == [KazooState.SUSPENDED, KazooState.CONNECTED]
    assert client.client_id == before
    assert server.tree()["/e"].ephemeral_owner == before[0]


def test_drop_by_session_id_closes_only_its_connection(server: Server, wires: ExitStack) -> None:
    victim, other = (wires.enter_context(Wire(server)).welcomed() for _ in range(2))

    server.drop(victim.id)

    with pytest.raises(EOFError):
        victim.payload()
    assert set(server.sessions()) == {victim.id, other.id}
    assert other.create("/a") == 0


def test_session_is_disconnected_once_drop_returns(server: Server, wires: ExitStack) -> None:
    victim = wires.enter_context(Wire(server)).welcomed()
    assert server.sessions()[victim.id].connected

    server.drop(victim.id)

    assert not server.sessions()[victim.id].connected


def test_drop_of_all_clients_keeps_sessions(server: Server, wires: ExitStack) -> None:
    clients = [wires.enter_context(Wire(server)).welcomed() for _ in range(3)]

    server.drop("all")

    for client in clients:
        with pytest.raises(EOFError):
            client.payload()
    assert set(server.sessions()) == {client.id for client in clients}


def test_drop_without_connection_has_no_effect(server: Server, wires: ExitStack) -> None:
    victim = wires.enter_context(Wire(server)).welcomed()
    server.drop(victim.id)

    server.drop(victim.id)

    assert set(server.sessions()) == {victim.id}
