"""Every recipe of the lock family during seeded failures: only a holder writes, no client waits forever, and nothing is
left.

A holder writes its token through ``held.transaction()``, so the server's order of writes shows who held the lock when.
``ZOOLET_SCHEDULES`` sets the number of schedules; see :mod:`support.schedules`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support.schedules import Story, play, seeds

from zoolet.client import Client
from zoolet.client.recipes import (
    DurableLock,
    Election,
    Lock,
    MultiLock,
    NodeElection,
    ReadWriteLock,
    Semaphore,
    SemaphoreLock,
    TryLock,
)

MakeLock = Callable[[Client], Any]
SEEDS = seeds(share=0.25)


def is_contiguous(tokens: Sequence[int]) -> bool:
    """Return whether each holder wrote alone: no token returns after a different one."""
    changes = [token for at, token in enumerate(tokens) if at == 0 or tokens[at - 1] != token]
    return len(changes) == len(set(changes))


def check_exclusive_lock(make: MakeLock, seed: int, *, ordered: bool = True, **options: Any) -> None:
    """Play a scenario with a lock that one client holds at a time."""

    async def scenario(story: Story) -> None:
        story.server.populate({"/history": b""})

        async def turn(client: Client, number: int) -> None:
            async with make(client) as held:
                await story.write(held, "/history")

        await story.all_clients(turn)
        tokens = story.written("/history")
        assert len(tokens) >= len(story.clients)
        assert is_contiguous(tokens), tokens
        if ordered:
            assert tokens == sorted(tokens), tokens

    play(scenario, seed, **options)


@pytest.mark.parametrize("seed", seeds(share=0.25, also=(298,)))
@pytest.mark.parametrize("naming", ["kazoo", "both"])
def test_lock_has_one_holder_under_faults(naming: str, seed: int) -> None:
    check_exclusive_lock(lambda zk: Lock(zk, "/lock", naming=naming), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_lock_with_on_lost_flag_has_one_holder_under_faults(seed: int) -> None:
    check_exclusive_lock(lambda zk: Lock(zk, "/lock", naming="curator", on_lost="flag", timeout=20.0), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_lock_with_short_timeouts_has_one_holder_under_faults(seed: int) -> None:
    check_exclusive_lock(lambda zk: Lock(zk.with_operation_timeout(0.5), "/lock", timeout=2.0), seed, clients=2)


@pytest.mark.parametrize("seed", SEEDS)
def test_try_lock_has_one_holder_under_faults(seed: int) -> None:
    check_exclusive_lock(lambda zk: TryLock(zk, "/lock"), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_durable_lock_has_one_holder_under_faults(seed: int) -> None:
    check_exclusive_lock(lambda zk: DurableLock(zk, "/lock", str(id(zk)), ttl=4.0), seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("naming", ["kazoo", "curator"])
def test_semaphore_lock_has_one_holder_under_faults(naming: str, seed: int) -> None:
    check_exclusive_lock(lambda zk: SemaphoreLock(zk, "/lock", naming=naming), seed, ordered=False)


@pytest.mark.parametrize("seed", SEEDS)
def test_election_has_one_leader_under_faults(seed: int) -> None:
    check_exclusive_lock(lambda zk: Election(zk, "/leader", b"me"), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_node_election_has_one_leader_under_faults(seed: int) -> None:
    check_exclusive_lock(lambda zk: NodeElection(zk, "/leader", b"me"), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_writer_excludes_others_under_faults(seed: int) -> None:
    async def scenario(story: Story) -> None:
        story.server.populate({"/history": b""})
        writers: set[int] = set()

        async def turn(client: Client, number: int) -> None:
            rw = ReadWriteLock(client, "/rw")
            if story.rng.random() < 0.5:
                async with rw.write() as held:
                    writers.add(held.token)
                    await story.write(held, "/history")
            else:
                async with rw.read() as held:
                    await story.write(held, "/history")

        await story.all_clients(turn)
        tokens = story.written("/history")
        for writer in writers & set(tokens):
            first, last = tokens.index(writer), len(tokens) - tokens[::-1].index(writer)
            assert set(tokens[first:last]) == {writer}, (writer, tokens)

    play(scenario, seed, clients=4)


@pytest.mark.parametrize("seed", SEEDS)
def test_downgrade_admits_no_writer_under_faults(seed: int) -> None:
    async def scenario(story: Story) -> None:
        story.server.populate({"/history": b""})

        async def turn(client: Client, number: int) -> None:
            rw = ReadWriteLock(client, "/rw")
            async with rw.write() as held:
                await story.write(held, "/history", times=1, token=held.token)
                writer = held.token
                reader = await rw.downgrade(held)
            try:
                await story.write(reader, "/history", times=2, token=writer)
            finally:
                await reader.release()

        await story.all_clients(turn)
        tokens = story.written("/history")
        assert is_contiguous(tokens), tokens

    play(scenario, seed, clients=2)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("naming", ["kazoo", "curator"])
def test_semaphore_holders_never_exceed_leases(naming: str, seed: int) -> None:
    async def scenario(story: Story) -> None:
        story.server.populate({"/history": b""})
        under = "/pool" if naming == "kazoo" else "/pool/leases"

        def few() -> bool:
            """there are at most two leases"""
            return len(story.server.tree(under)) <= 3

        story.always(few)

        async def turn(client: Client, number: int) -> None:
            async with Semaphore(client, "/pool", 2, naming=naming) as held:
                await story.write(held, "/history")

        await story.all_clients(turn)

    play(scenario, seed, clients=4)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("naming", ["kazoo", "curator"])
def test_multiple_lease_holders_never_exceed_leases(naming: str, seed: int) -> None:
    async def scenario(story: Story) -> None:
        story.server.populate({"/history": b"", "/pool": b"3"})
        under = "/pool" if naming == "kazoo" else "/pool/leases"

        def few() -> bool:
            """there are at most three leases"""
            return len(story.server.tree(under)) <= 4

        story.always(few)

        async def turn(client: Client, number: int) -> None:
            semaphore = Semaphore(client, "/pool", None, naming=naming)
            async with await semaphore.acquire(count=1 + number % 3) as held:
                await story.write(held, "/history")

        await story.all_clients(turn)

    play(scenario, seed, clients=4)


@pytest.mark.parametrize("seed", SEEDS)
def test_multi_lock_is_atomic_under_faults(seed: int) -> None:
    async def scenario(story: Story) -> None:
        story.server.populate({"/history": {"a": b"", "b": b"", "c": b""}})

        async def turn(client: Client, number: int) -> None:
            names = story.rng.sample("abc", 2)
            async with MultiLock(client, [f"/lock/{name}" for name in names]) as held:
                for _ in range(2):
                    async with held.transaction() as t:
                        for name in names:
                            t.create(f"/history/{name}/w-", str(held.token).encode(), sequential=True)

        await story.all_clients(turn)
        for name in "abc":
            tokens = story.written(f"/history/{name}")
            assert is_contiguous(tokens), (name, tokens)

    play(scenario, seed)
