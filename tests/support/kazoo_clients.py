"""Helpers for kazoo's clients: connections for a block, recorded states, and dropped connections."""

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


def collect_states(client: KazooClient) -> queue.Queue[tuple[str, float]]:
    """Return a queue that receives each new state of a client, with its time."""
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


def drop_connection(client: KazooClient) -> None:
    """Drop the TCP connection, as a network does, without closing the session."""
    client._connection._socket.shutdown(2)


@contextmanager
def connected_client(hosts: str, **options: Any) -> Iterator[KazooClient]:
    """Yield a connected client, which is stopped at the end of the block."""
    client = KazooClient(hosts, **options)
    try:
        client.start(DEADLINE_S)
        yield client
    finally:
        client.stop()
        client.close()


@asynccontextmanager
async def kazoo_client(server: Server) -> AsyncIterator[KazooClient]:
    """Yield a client of a server in the running event loop. The client is stopped at the end of the block."""
    client = KazooClient(server.hosts)
    try:
        await asyncio.to_thread(client.start, DEADLINE_S)
        yield client
    finally:
        await asyncio.to_thread(client.stop)
        client.close()
