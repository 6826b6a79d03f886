"""Reconnection: which server a client connects to, and which session it gets."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvloop
from support.apache import free_port
from support.simulation import Connect, with_client
from support.states import until
from support.waiting import DEADLINE_S

from zoolet.client import Backoff, Client, State
from zoolet.testing import Server

# --- which server ---


async def test_dead_servers_are_passed_over(server: Server, connect: Connect) -> None:
    dead = ",".join(f"127.0.0.1:{free_port()}" for _ in range(3))

    zk = await connect(f"{dead},{server.hosts}")

    assert zk.state is State.CONNECTED


async def test_next_server_takes_over_with_new_session(connect: Connect) -> None:
    async with Server() as first, Server() as second:
        zk = await connect(f"{first.hosts},{second.hosts}")
        mine, other = (first, second) if first.sessions() else (second, first)
        mine.refuse_connections()
        states = zk.states()

        mine.drop("all")
        await until(states, State.LOST)
        await until(states, State.CONNECTED)

        assert list(other.sessions()) == [zk.session_id]
        await zk.aclose()


async def test_names_are_resolved_at_every_attempt(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Server() as first, Server() as second:
        loop, here, asked = asyncio.get_running_loop(), [first], []

        async def resolve(host: str, port: int, **options: Any) -> list[Any]:
            asked.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", here[0].port))]

        monkeypatch.setattr(loop, "getaddrinfo", resolve)
        zk = await connect("zk.example:2181")
        states = zk.states()
        here[0] = second
        first.refuse_connections()
        first.drop(zk)
        await until(states, State.LOST)
        await until(states, State.CONNECTED)

        assert set(asked) == {"zk.example"}
        assert list(second.sessions()) == [zk.session_id]
        await zk.aclose()


async def test_reconnect_to_empty_server_opens_new_session(connect: Connect) -> None:
    port = free_port()
    async with Server(port=port) as before:
        zk = await connect(before.hosts, timeout=0.2)
        for number in range(5):
            await zk.create(f"/{number}")

    async with Server(port=port):
        states = zk.states()
        await until(states, State.LOST)
        async with asyncio.timeout(DEADLINE_S):
            await zk.wait_for(State.CONNECTED)


def test_backoff_with_last_try_keeps_client_connecting() -> None:
    async def main(server: Server, zk: Client) -> None:
        server.refuse_connections()
        server.drop(zk)
        await asyncio.sleep(1)

        assert (zk.state, zk.statistics().keeps_connecting) == (State.SUSPENDED, True)
        server.accept_connections()
        async with asyncio.timeout(0.5):
            await zk.wait_for(State.CONNECTED)

    with_client(main, backoff=Backoff(first=0.001, longest=0.001, tries=2))


# --- forks, and loops ---


def test_client_runs_on_uvloop() -> None:
    async def main(server: Server) -> None:
        async with Client(server.hosts) as zk, zk.watch("/", recursive=True) as events:
            await zk.create("/a", b"v")
            assert (await events.next()).path == "/a"
            states = zk.states()
            server.drop(zk)
            await until(states, State.SUSPENDED)
            assert (await zk.get("/a"))[0] == b"v"

    with Server() as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(server))
        assert not server.sessions()
