"""``Server.refuse_connections`` and ``Server.accept_connections``."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from kazoo.client import KazooClient, KazooState
from support.apache import free_port
from support.kazoo_clients import collect_states, next_states
from support.waiting import DEADLINE_S
from support.wire import Wire

from zoolet.testing import Server


def test_connections_are_refused_until_accepted_again(server: Server, wires: ExitStack) -> None:
    before = wires.enter_context(Wire(server)).welcomed()
    port = server.port

    server.refuse_connections()
    with pytest.raises(ConnectionRefusedError):
        Wire(server)
    assert before.create("/a") == 0
    server.accept_connections()

    assert server.port == port
    assert wires.enter_context(Wire(server)).welcomed().create("/b") == 0


async def test_connections_are_refused_by_server_in_loop() -> None:
    async with Server() as server:
        server.refuse_connections()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)
        server.accept_connections()
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.close()
        await writer.wait_closed()


def test_repeated_refuse_and_accept_calls_are_harmless(server: Server, wires: ExitStack) -> None:
    server.accept_connections()
    server.refuse_connections()
    server.refuse_connections()
    with pytest.raises(ConnectionRefusedError):
        Wire(server)
    server.accept_connections()
    server.accept_connections()

    assert wires.enter_context(Wire(server)).welcomed().id


def test_refusing_server_stops_normally(wires: ExitStack) -> None:
    port = free_port()
    with Server(port=port) as server:
        server.refuse_connections()
    with Server(port=port) as again:
        assert wires.enter_context(Wire(again)).welcomed().id


def test_kazoo_client_returns_with_its_session(server: Server, kazoo: Callable[..., KazooClient]) -> None:
    client = kazoo(server)
    before = client.client_id
    states = collect_states(client)

    server.refuse_connections()
    server.drop(client)
    assert next_states(states, 1) == [KazooState.SUSPENDED]
    server.accept_connections()

    assert next_states(states, 1) == [KazooState.CONNECTED]
    assert client.client_id == before


async def _connect_until_refused(port: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            await writer.wait_closed()


async def test_refuse_right_after_accept_connections_refuses_again() -> None:
    async with Server() as server:
        server.refuse_connections()
        server.accept_connections()
        server.refuse_connections()
        with pytest.raises(ConnectionRefusedError):
            await _connect_until_refused(server.port)
        server.accept_connections()
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.close()
        await writer.wait_closed()


def refused(port: int) -> bool:
    """Return whether the kernel refuses a connection now."""
    with socket.socket() as peer:
        return peer.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


@pytest.mark.parametrize("rounds", range(4))
async def test_connections_are_refused_at_any_loop_step(rounds: int) -> None:
    async with Server() as server:
        for _ in range(3):
            server.accept_connections()
            for _ in range(rounds):
                await asyncio.sleep(0)
            assert not refused(server.port)
            server.refuse_connections()
            assert refused(server.port)
            server.accept_connections()
            assert not refused(server.port)
            server.refuse_connections()
            for _ in range(rounds):
                await asyncio.sleep(0)
                assert refused(server.port)
        server.accept_connections()
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.close()
        await writer.wait_closed()
