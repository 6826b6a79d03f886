"""``Server.reset``: an empty server for the next test."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from support.apache import free_port
from support.embedded import all_nodes
from support.wire import EPHEMERAL, Wire

from zoolet.client import Backoff, ConnectionLossError, SessionExpiredError
from zoolet.client.blocking import Client
from zoolet.protocol import records as r
from zoolet.protocol.operations import OpCode
from zoolet.testing import Server, hold


def test_reset_removes_all_state(server: Server, wire: Wire) -> None:
    fresh = all_nodes(server)
    server.populate({"/a": {"b": "x"}})
    wire.create("/e", EPHEMERAL)
    wire.ask(OpCode.EXISTS, r.ExistsRequest("/a", True))
    server.fault(hold())
    server.pause(wire.id)

    server.reset()

    assert {path: node.data for path, node in all_nodes(server).items()} == {p: n.data for p, n in fresh.items()}
    assert (dict(server.sessions()), server.watches(), server.ops()) == ({}, (), ())


def test_reset_closes_connections(server: Server, wires: ExitStack) -> None:
    wire = wires.enter_context(Wire(server)).welcomed()

    server.reset()

    with pytest.raises(EOFError):
        wire.payload()
    assert wire.id not in server.sessions()


def test_client_from_before_reset_never_reconnects() -> None:
    with Server() as server, Client(server.hosts, timeout=2.0, backoff=Backoff(first=0.01)) as leaked:
        ports = {server.port}
        for _ in range(20):
            server.reset()
            assert server.port not in ports
            ports.add(server.port)
        with Wire(server) as fresh:
            mine = fresh.welcomed().id
            assert leaked.asyncio_client.session_id not in (0, mine)
            with pytest.raises((ConnectionLossError, SessionExpiredError)):
                leaked.create("/leaked")
            assert list(server.sessions()) == [mine]
            assert "/leaked" not in server.tree()


def test_started_server_never_reuses_port() -> None:
    ports = []
    for _ in range(50):
        with Server() as server:
            ports.append(server.port)
    assert len(set(ports)) == 50


def test_reset_keeps_chosen_port(wires: ExitStack) -> None:
    port = free_port()
    with Server(port=port) as server:
        server.reset()
        assert server.port == port
        assert wires.enter_context(Wire(server)).welcomed().id


def test_read_only_server_is_writable_after_reset(server: Server, wires: ExitStack) -> None:
    server.set_read_only(True)

    server.reset()

    assert wires.enter_context(Wire(server)).welcomed().create("/a") == 0


def test_sessions_and_zxids_continue_after_reset(server: Server, wires: ExitStack) -> None:
    first = wires.enter_context(Wire(server)).welcomed()
    first.create("/a")
    zxid = server.tree()["/a"].czxid

    server.reset()
    second = wires.enter_context(Wire(server)).welcomed()
    second.create("/a")

    assert second.id != first.id
    assert server.tree()["/a"].czxid > zxid


def test_reset_server_counts_sequences_from_0(server: Server, wires: ExitStack) -> None:
    first = wires.enter_context(Wire(server)).welcomed()
    assert [first.sequential("/n-") for _ in range(3)][-1].endswith("2")

    server.reset()
    second = wires.enter_context(Wire(server)).welcomed()

    assert second.sequential("/n-") == "/n-0000000000"


def test_reset_ends_refusal_of_connections(server: Server, wires: ExitStack) -> None:
    server.refuse_connections()

    server.reset()

    assert wires.enter_context(Wire(server)).welcomed().id
