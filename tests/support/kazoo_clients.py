"""Kazoo's clients: connected for a block, their states, and dropped connections."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from kazoo.client import KazooClient
from support.waiting import DEADLINE_S

from zoolet.testing import Server


def states_of(client: KazooClient) -> queue.Queue[tuple[str, float]]:
    """Collect the states of a client as they arrive, with their times."""
    states: queue.Queue[tuple[str, float]] = queue.Queue()
    client.add_listener(lambda state: states.put((state, time.perf_counter())))
    return states


def next_states(states: queue.Queue[tuple[str, float]], count: int) -> list[str]:
    """Wait for *count* states."""
    return [states.get(timeout=DEADLINE_S)[0] for _ in range(count)]


def record_states(client: KazooClient) -> queue.Queue[str]:
    """Return a queue that receives all later states of the connection."""
    states: queue.Queue[str] = queue.Queue()

    def put(state: str) -> None:
        states.put(state)

    client.add_listener(put)
    return states


def drop(client: KazooClient) -> None:
    """Drop the TCP connection, as a network does, without closing the session."""
    client._connection._socket.shutdown(2)


@contextmanager
def connected(hosts: str, **options: Any) -> Iterator[KazooClient]:
    """Connect a client; stop it at the end of the block."""
    client = KazooClient(hosts, **options)
    try:
        client.start(DEADLINE_S)
        yield client
    finally:
        client.stop()
        client.close()


@asynccontextmanager
async def kazoo_of(server: Server) -> AsyncIterator[KazooClient]:
    """Connect a client to a server in the running event loop; stop it at the end of the block."""
    client = KazooClient(server.hosts)
    try:
        await asyncio.to_thread(client.start, DEADLINE_S)
        yield client
    finally:
        await asyncio.to_thread(client.stop)
        client.close()
