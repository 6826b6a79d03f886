"""The straight forms, which are generated functions for frequent requests, equal the general forms for any bytes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from random import Random
from typing import Any

import pytest
from fuzz import engines, frames
from support.effort import effort
from support.engine import attach_journal
from support.forms import general_forms
from support.generators import GENERATORS
from support.numbers import CONTAINER
from support.peer import Peer

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.operations import OpCode
from zoolet.server.core.node import Node
from zoolet.server.core.ops.dispatch import STRAIGHT_OPERATIONS, STRAIGHT_REQUESTS
from zoolet.server.core.server_connection import ConnectionState, ServerConnection
from zoolet.testing.state.history import TreeHistory

pytestmark = pytest.mark.skipif(
    "config.getoption('--general-forms')", reason="--general-forms hides the straight forms"
)
FRAMES = effort(600, 4_000)
KINDS = ["alone", "logged", "heard", "undone"]
"""Kinds of servers: plain, with a log, with the console's history, and with a test's history."""
FIELDS = [name for name in Node.__slots__ if name != "children"]


class World:
    """An engine with two connections: one that sends the requests, and one that watches.

    Args:
        variant: Number of the settings.
        kind: One of :data:`KINDS`.
        forms: Maker of the blocks in which the engine is made and works.
    """

    def __init__(self, variant: int, kind: str, forms: Callable[[], AbstractContextManager[None]]) -> None:
        self.forms = forms
        self.heard: list[Any] = []
        with self.forms():
            self.engine = engines.engine_for(variant)
        self.journal = attach_journal(self.engine) if kind == "logged" else None
        if kind == "heard":
            self.engine.on_requests = self.heard.append
        self.history = TreeHistory(self.engine) if kind == "undone" else None
        self.connections = [self.connect("127.0.0.1"), self.connect("10.0.0.7")]

    def connect(self, host: str) -> ServerConnection:
        connection = engines.connection_to(self.engine, host)
        engines.receive(connection, frames.HELLO)
        return connection

    def feed(self, number: int, data: bytes) -> list[bytes]:
        """Send bytes on one connection, and return the output of both. A closed connection is opened again."""
        with self.forms():
            while engines.receive(self.connections[number], data):
                data = b""
        output = [connection.data_to_send() for connection in self.connections]
        for at, connection in enumerate(self.connections):
            if connection.state is ConnectionState.CLOSED:
                connection.connection_lost()
                self.connections[at] = self.connect("127.0.0.1")
        return output

    def facts(self) -> dict[str, Any]:
        """Return what a write may change, except the metrics."""
        engine, tree = self.engine, self.engine.tree
        nodes = {path: tuple(getattr(node, name) for name in FIELDS) for path, node in tree.walk()}
        children = {path: dict(node.children or {}) for path, node in tree.walk()}
        kinds = {path: [(name, type(child)) for name, child in below.items()] for path, below in children.items()}
        return {
            "nodes": nodes,
            "kinds": kinds,
            "size": tree.size,
            "data_size": tree.data_size,
            "largest": tree.largest,
            "ephemerals": tree.ephemerals,
            "expiring": list(tree.expiring),
            "zxid": engine.zxid,
            "failed": engine.failed,
            "acls": {key: (acl, engine.acls._lists[key].uses) for key, acl in engine.acls.lists().items()},
            "details": engine.details,
            "watches": [client.modes for client in engine.connections],
            "quota": engine.quota.active,
            "log": self.journal.entries if self.journal else [],
            "heard": self.heard,
        }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", range(len(engines.VARIANTS)))
def test_straight_forms_have_same_effects_as_general_forms(variant: int, kind: str) -> None:
    rng = Random(f"{variant} {kind}")
    pool = frames.make_pool(rng, FRAMES)
    straight, general = World(variant, kind, nullcontext), World(variant, kind, general_forms)

    for number, whole in enumerate(pool):
        data = frames.break_frame(rng, whole, pool) if rng.random() < 0.1 else whole
        at = int(rng.random() < 0.2)
        assert straight.feed(at, data) == general.feed(at, data), (number, data.hex())

    assert straight.facts() == general.facts()
    if straight.history is not None and general.history is not None:
        straight.history.restore_to(straight.history.start)
        general.history.restore_to(general.history.start)
        assert straight.facts() == general.facts()


def test_random_requests_reach_every_straight_form(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: set[tuple[str, int]] = set()
    for name, table in (("run", STRAIGHT_REQUESTS), ("part", STRAIGHT_OPERATIONS)):
        for op, form in table.items():

            def spy(*arguments: Any, key: tuple[str, int] = (name, op), form: Any = form) -> Any:
                result = form(*arguments)
                reached.add(key)  # only if it succeeds
                return result

            monkeypatch.setitem(table, op, spy)
    world = World(0, "alone", nullcontext)

    for data in frames.make_pool(Random(0), 4_000):
        world.feed(0, data)

    assert reached == {*(("run", op) for op in STRAIGHT_REQUESTS), *(("part", op) for op in STRAIGHT_OPERATIONS)}


def test_straight_forms_are_up_to_date() -> None:
    """To update them, run ``make straight``."""
    subprocess.run([sys.executable, GENERATORS / "straight.py", "--check"], check=True)


def test_generator_refuses_two_functions_of_same_name() -> None:
    planted = "import straight; straight.writes.add = print; straight.straight()"
    run = subprocess.run([sys.executable, "-c", planted], cwd=GENERATORS, capture_output=True, text=True, check=False)
    assert "create calls a different function with the name add" in run.stderr


def test_straight_form_of_uncommon_operation_changes_nothing(peer: Peer) -> None:
    container = r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, CONTAINER)
    body = wire.encode_operations([(OpCode.CREATE, container)])
    before = peer.engine.zxid

    after = STRAIGHT_OPERATIONS[OpCode.CREATE](peer.engine, peer.client, body, 9, len(body), [])

    assert (after, peer.engine.zxid, peer.engine.tree.get("/a")) == (0, before, None)
