"""``Server.reset``: an empty server for the next test."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from support.embedded import everything
from support.wire import EPHEMERAL, Wire

from zoolet.protocol import records as r
from zoolet.protocol.operations import OpCode
from zoolet.server import Server
from zoolet.server.testing import hold


def test_a_reset_leaves_nothing(server: Server, wire: Wire) -> None:
    fresh = everything(server)
    server.populate({"/a": {"b": "x"}})
    wire.create("/e", EPHEMERAL)
    wire.ask(OpCode.EXISTS, r.ExistsRequest("/a", True))
    server.fault(hold())
    server.pause(wire.id)

    server.reset()

    assert {path: node.data for path, node in everything(server).items()} == {p: n.data for p, n in fresh.items()}
    assert (dict(server.sessions()), server.watches(), server.ops()) == ({}, (), ())


def test_a_reset_cuts_connections_and_clients_learn_of_their_expiry(server: Server, wires: ExitStack) -> None:
    wire = wires.enter_context(Wire(server)).welcomed()

    server.reset()

    with pytest.raises(EOFError):
        wire.payload()
    again = wires.enter_context(Wire(server, session=(wire.id, wire.password))).welcomed()
    assert again.id == 0


def test_a_server_that_was_read_only_takes_writes_after_a_reset(server: Server, wires: ExitStack) -> None:
    server.set_read_only(True)

    server.reset()

    assert wires.enter_context(Wire(server)).welcomed().create("/a") == 0


def test_sessions_and_zxids_go_on_after_a_reset(server: Server, wires: ExitStack) -> None:
    first = wires.enter_context(Wire(server)).welcomed()
    first.create("/a")
    zxid = server.tree()["/a"].czxid

    server.reset()
    second = wires.enter_context(Wire(server)).welcomed()
    second.create("/a")

    assert second.id != first.id
    assert server.tree()["/a"].czxid > zxid


def test_a_reset_server_counts_its_sequences_from_0(server: Server, wires: ExitStack) -> None:
    first = wires.enter_context(Wire(server)).welcomed()
    assert [first.sequential("/n-") for _ in range(3)][-1].endswith("2")

    server.reset()
    second = wires.enter_context(Wire(server)).welcomed()

    assert second.sequential("/n-") == "/n-0000000000"


def test_a_server_that_refused_connections_accepts_them_after_a_reset(server: Server, wires: ExitStack) -> None:
    server.refuse_connections()

    server.reset()

    assert wires.enter_context(Wire(server)).welcomed().id
