"""kazoo's clients with a chroot."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from support.waiting import DEADLINE_S

Connect = Callable[..., KazooClient]


def test_chroot_client_sees_only_its_subtree(kazoo: Connect, base: str) -> None:
    client, inside = kazoo(), kazoo(base)

    path = inside.create("/node", b"data")

    assert path == "/node"
    assert inside.get_children("/") == ["node"]
    assert client.get(f"{base}/node")[0] == b"data"


def test_chroot_client_gets_its_own_paths_in_events(kazoo: Connect, base: str) -> None:
    client, inside = kazoo(), kazoo(base)
    events: queue.Queue[Any] = queue.Queue()
    inside.exists("/node", watch=events.put)

    client.create(f"{base}/node")

    assert events.get(timeout=DEADLINE_S).path == "/node"


def test_lock_in_chroot_excludes_client_outside(kazoo: Connect, base: str) -> None:
    client, inside = kazoo(), kazoo(base)

    with inside.Lock("/lock"):
        taken = client.Lock(f"{base}/lock").acquire(blocking=False)

    assert taken is False
