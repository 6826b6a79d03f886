"""Fencing tokens: each holder has a higher token than all earlier holders, across all kinds of lock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest
from support.simulation import Connect, simulate_clients

from zoolet.client import Client
from zoolet.client.recipes import Lock, MultiLock, ReadWriteLock
from zoolet.testing import Server, Simulation, lose_reply

MAKERS: Final[dict[str, Callable[[Client], Any]]] = {
    "kazoo": lambda zk: Lock(zk, "/b"),
    "curator": lambda zk: Lock(zk, "/b", naming="curator"),
    "both": lambda zk: Lock(zk, "/b", naming="both"),
    "a and b": lambda zk: MultiLock(zk, ["/a", "/b"]),
    "b and c": lambda zk: MultiLock(zk, ["/b", "/c"]),
    "b alone": lambda zk: MultiLock(zk, ["/b"]),
    "write": lambda zk: ReadWriteLock(zk, "/b").write(),
}


@pytest.mark.parametrize("release", ["3.8", "3.9"])
def test_next_holder_has_higher_token_for_any_two_kinds_of_lock(release: str) -> None:
    names = [name for name in MAKERS if name != "curator"]

    async def main(sim: Simulation) -> None:
        async with sim.server(compat=release) as server:
            for first in names:
                for second in names:
                    await hold_in_turn(server, MAKERS[first], MAKERS[second])
            await hold_in_turn(server, MAKERS["both"], MAKERS["curator"])
            await hold_in_turn(server, MAKERS["curator"], MAKERS["both"])

    sim = Simulation(7)
    sim.run(main(sim))


async def hold_in_turn(server: Server, first: Callable[[Client], Any], second: Callable[[Client], Any]) -> None:
    """Acquire two locks of one path, the second after various short delays. Check the exclusion and the tokens."""
    async with Client(server.hosts) as one, Client(server.hosts) as two:
        for delay in (0.0, 0.001, 0.002, 0.003, 0.005, 0.01):
            order: list[int] = []

            async def hold(lock: Any, order: list[int] = order) -> None:
                async with lock as lease:
                    order.append(lease.token)
                    await asyncio.sleep(0.1)
                    order.append(lease.token)

            async def hold_later(lock: Any, delay: float = delay) -> None:
                await asyncio.sleep(delay)
                await hold(lock)

            await asyncio.gather(hold(first(one)), hold_later(second(two)))
            before, same, after, _ = order
            assert before == same  # the second lock was not acquired between the two appends of the first
            assert before < after


def test_reader_token_after_downgrade_does_not_exceed_next_token() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        lock = ReadWriteLock(one, "/rw")
        writer = await lock.write().acquire()
        reading = asyncio.ensure_future(ReadWriteLock(two, "/rw").read().acquire())
        await asyncio.sleep(1)

        reader = await lock.downgrade(writer)

        other = await reading
        assert writer.token < reader.token <= other.token
        await reader.release()
        await other.release()

    simulate_clients(main)


@pytest.mark.parametrize("op", ["create", "getChildren", "exists", "getData"])
def test_lost_reply_does_not_lower_token_of_next_holder(op: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        first = await one.lock("/lock").acquire()
        with server.fault(lose_reply(), op, client=two, times=1):
            waiting = asyncio.ensure_future(two.lock("/lock").acquire())
            await asyncio.sleep(1)
            await first.release()
            async with await waiting as second:
                assert second.token > first.token

    simulate_clients(main)


def test_multilock_has_token_of_each_path() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with MultiLock(zk, ["/b", "/a"]) as lease:
            assert list(lease.tokens) == ["/a", "/b"]
            assert list(lease.tokens.values()) == [part.token for part in lease.parts]
            assert lease.token == lease.tokens["/b"]  # the token of a MultiLock is the one of the lock acquired last

    simulate_clients(main)
