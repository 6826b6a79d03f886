"""Every kind of lock at one path, for tests that hold for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zoolet.client import Client
from zoolet.client.recipes import (
    DurableLock,
    Election,
    Lock,
    MultiLock,
    NodeElection,
    ReadWriteLock,
    Semaphore,
    TryLock,
)

KINDS: dict[str, Callable[[Client], Any]] = {
    "Lock": lambda zk: Lock(zk, "/l"),
    "Lock of both": lambda zk: Lock(zk, "/l", naming="both"),
    "MultiLock": lambda zk: MultiLock(zk, ["/k", "/l"]),
    "ReadWriteLock": lambda zk: ReadWriteLock(zk, "/l").write(),
    "Semaphore": lambda zk: Semaphore(zk, "/l"),
    "Semaphore of Curator": lambda zk: Semaphore(zk, "/l", naming="curator"),
    "TryLock": lambda zk: TryLock(zk, "/l"),
    "DurableLock": lambda zk: DurableLock(zk, "/l", "me", ttl=20.0),
    "Election": lambda zk: Election(zk, "/l"),
    "NodeElection": lambda zk: NodeElection(zk, "/l"),
}


async def acquire(kind: str, zk: Client, seconds: float | None = None) -> Any:
    """Acquire a lock of one kind within *seconds*, and return its lease."""
    lock = KINDS[kind](zk)
    return await (lock.lead if "Election" in kind else lock.acquire)(seconds)
