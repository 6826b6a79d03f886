"""Joint notification of many connections equals notification one by one."""

from __future__ import annotations

from random import Random

import pytest
from support.calls import connect_peer
from support.engine import make_engine
from support.watch_tables import count_leftovers

from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.engine import Engine
from zoolet.server.core.watches import CHILD, DATA, PERSISTENT, STANDARD

PATHS = ("/a", "/a/b", "/c")
MANY = 1_001
"""A number of watches that is too large for removal in one step after the loss of their connection."""


def step(engine: Engine, clients: list[ClientConnection], random: Random) -> None:
    """Set or remove a watch, lose a connection, or change a node."""
    client, path = random.choice(clients), random.choice(PATHS)
    mode, store = random.choice((STANDARD, PERSISTENT)), random.choice((DATA, CHILD))
    action = random.randrange(12)
    if action < 6 and not client.closing:
        engine.watches.add(client, store, path, mode)
    elif action == 6 and not client.closing:
        for number in range(MANY):
            engine.watches.add(client, DATA, f"/x{number}", STANDARD)
        engine.close_connection(client)
    elif action < 8:
        engine.watches.changed(path, 0, 7)
    elif action < 10:
        engine.watches.created(path, 0, "/c", 0, 8)
    else:
        engine.watches.deleted(path, 0, "/a", 0, 9)


def run_random_steps(seed: int, *, together: bool) -> list[object]:
    """Return everything that random steps have changed."""
    engine, random = make_engine(), Random(seed)
    if not together:
        engine.watches.event_filter = lambda *_: False  # with a filter, each connection is notified separately
    clients = [connect_peer(engine).client for _ in range(6)]
    for _ in range(150):
        step(engine, clients, random)
    numbers = {client: number for number, client in enumerate(clients)}
    seen: list[object] = [(client.outbox, client.modes, client.watch_weight, client.closing) for client in clients]
    seen += [{path: [numbers[client] for client in store[path]] for path in store} for store in engine.watches._stores]
    return [*seen, [numbers[client] for client in engine.pending_output], count_leftovers(engine)]


@pytest.mark.parametrize("seed", range(30))
def test_joint_notification_of_deletes_equals_single_ones(seed: int) -> None:
    assert run_random_steps(seed, together=True) == run_random_steps(seed, together=False)
