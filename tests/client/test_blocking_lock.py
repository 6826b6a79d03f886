"""Locks of the client for threads."""

from __future__ import annotations

import threading

import pytest
from support import kazoo_bugs
from support.leftovers import ephemerals

from zoolet.client.blocking import Client as BlockingClient
from zoolet.client.recipes import LockLostError
from zoolet.server import Server


def test_a_blocking_lock_excludes_threads(zoolet: Server) -> None:
    inside: list[int] = []
    tokens: list[int] = []

    def use(number: int) -> None:
        with BlockingClient(zoolet.hosts) as zk:
            for _ in range(5):
                with zk.lock("/lock") as held:
                    inside.append(number)
                    tokens.append(held.token)
                    assert inside == [number]
                    inside.remove(number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(tokens) == 15
    assert tokens == sorted(set(tokens))
    assert ephemerals(zoolet) == []


def test_a_blocking_lock_times_out_and_flags_its_loss(zoolet: Server) -> None:
    with BlockingClient(zoolet.hosts) as one, BlockingClient(zoolet.hosts) as two:
        with one.lock("/lock") as held:
            with pytest.raises(TimeoutError), two.lock("/lock", timeout=0.02):
                pass
            held.raise_if_lost()
            kazoo_bugs.lose_session(zoolet, one)
            zoolet.wait_for(held.lost.is_set)
            with pytest.raises(LockLostError):
                held.raise_if_lost()
        with two.lock("/lock", timeout=5.0):
            pass
