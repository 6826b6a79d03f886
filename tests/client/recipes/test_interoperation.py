"""One lock, several libraries: kazoo in threads, zoolet in a loop, and contenders that write Curator's names.

Each holder reads a number and writes its successor without a version, so the sum is correct only if no two holders were
inside at the same time. ``ZOOLET_ROUNDS`` sets the number of rounds for each pairing.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import pytest
from kazoo.client import KazooClient
from support.effort import effort
from support.kazoo_clients import connected_client
from support.leftovers import ephemerals
from support.waiting import DEADLINE_S

from zoolet.client import Client
from zoolet.client.recipes import Election, Lock, ReadWriteLock, Semaphore, SemaphoreLock
from zoolet.protocol.errors import NoNodeError
from zoolet.testing import Server

ROUNDS: Final = int(os.environ.get("ZOOLET_ROUNDS") or effort(50, 200))
TIMEOUT_S: Final = 20 + ROUNDS / 10
COUNTER_PATH: Final = "/counter"
MakeLock = Callable[[Client], AbstractAsyncContextManager[Any]]
MakeKazooLock = Callable[[KazooClient], Any]


class Curator:
    """Curator's InterProcessMutex, with its algorithm: each contender watches its predecessor.

    Args:
        client: Client whose session holds the lock.
        path: Path of the lock.
        kind: Name before the number; all children are contenders, sorted by the text after it.
    """

    def __init__(self, client: Client, path: str, kind: str = "lock-") -> None:
        self._client = client
        self._path = path
        self._kind = kind

    def _key(self, name: str) -> str:
        at = name.rfind(self._kind)
        return name[at + len(self._kind) :] if at >= 0 else name

    async def __aenter__(self) -> str:
        node = await self._client.create(
            f"{self._path}/_c_{uuid.uuid4()}-{self._kind}", b"10.0.0.1", ephemeral=True, sequential=True, parents=True
        )
        name = node.rpartition("/")[2]
        while True:
            names = sorted(await self._client.children(self._path), key=self._key)
            mine = names.index(name)
            if mine == 0:
                self._node = node
                return node
            try:
                async with self._client.watch_data(f"{self._path}/{names[mine - 1]}") as watch:
                    await watch.next()
            except NoNodeError:
                continue

    async def __aexit__(self, *error: object) -> None:
        await self._client.delete(self._node)


class CuratorReadWrite(Curator):
    """Curator's InterProcessReadWriteLock: a writer waits for all earlier contenders, a reader only for writers."""

    def __init__(self, client: Client, path: str, *, write: bool) -> None:
        super().__init__(client, path, "__WRIT__" if write else "__READ__")
        self._write = write

    async def __aenter__(self) -> str:
        node = await self._client.create(
            f"{self._path}/_c_{uuid.uuid4()}-{self._kind}", b"", ephemeral=True, sequential=True, parents=True
        )
        name = node.rpartition("/")[2]
        while True:
            names = sorted(await self._client.children(self._path), key=lambda name: re.split("__", name)[-1])
            before = names[: names.index(name)]
            if not self._write:
                before = [one for one in before if "__WRIT__" in one]
            if not before:
                self._node = node
                return node
            try:
                async with self._client.watch_data(f"{self._path}/{before[-1]}") as watch:
                    await watch.next()
            except NoNodeError:
                continue


@asynccontextmanager
async def semaphore_mutex(zk: Client) -> AsyncIterator[None]:
    """Curator's InterProcessSemaphoreV2 with one lease."""
    async with Curator(zk, "/mutex/locks"):
        lease = await zk.create(
            f"/mutex/leases/_c_{uuid.uuid4()}-lease-", ephemeral=True, sequential=True, parents=True
        )
        while True:
            async with zk.watch_children("/mutex/leases") as watch:
                if len(watch.initial) <= 1:
                    break
                await watch.next()
    yield
    await zk.delete(lease)


@pytest.fixture
def server() -> Iterator[Server]:
    """A server in its own thread."""
    with Server() as running:
        running.populate({COUNTER_PATH: b"0"})
        yield running


@pytest.fixture
async def zk(server: Server) -> AsyncIterator[Client]:
    """A client in the event loop."""
    async with Client(server.hosts) as client:
        yield client


@pytest.fixture
def kazoo(server: Server) -> Iterator[KazooClient]:
    """kazoo's client."""
    with connected_client(server.hosts) as client:
        yield client


class TurnCounter:
    """The turns of each side, and a check that no two sides hold the lock at the same time.

    Args:
        server: Server with the counter.
        max_holders: Maximum number of holders at the same time.
        side_count: Number of sides.
    """

    def __init__(self, server: Server, max_holders: int = 1, side_count: int = 2) -> None:
        self.server = server
        self.max_holders = max_holders
        self.side_count = side_count
        self.turns: dict[str, int] = {}
        self.inside = 0
        self.broken = ""
        self.deadline = time.monotonic() + TIMEOUT_S
        self._guard = threading.Lock()

    def needs_more_turns(self) -> bool:
        """Return whether more turns are needed: ROUNDS in total, and a quarter of its fair share for each side."""
        assert time.monotonic() < self.deadline, f"{self.turns} in {TIMEOUT_S} s"
        with self._guard:
            turns = list(self.turns.values())
        fair = len(turns) == self.side_count and min(turns) >= sum(turns) / self.side_count / 4
        return sum(turns) < ROUNDS or not fair

    def enter(self) -> None:
        """Record that a side holds the lock."""
        with self._guard:
            self.inside += 1
            if self.inside > self.max_holders:
                self.broken = f"{self.inside} inside after {self.turns}"

    def leave(self, who: str) -> None:
        """Record the end of a turn, while the side still holds the lock."""
        with self._guard:
            self.inside -= 1
            self.turns[who] = self.turns.get(who, 0) + 1

    async def run(self, who: str, zk: Client, make: MakeLock) -> None:
        """Hold the lock in the event loop, and increment the counter, until no more turns are needed."""
        while self.needs_more_turns():
            async with make(zk):
                self.enter()
                value, _ = await zk.get(COUNTER_PATH)
                if self.max_holders == 1:
                    await zk.set(COUNTER_PATH, b"%d" % (int(value) + 1))
                self.leave(who)

    def run_kazoo(self, who: str, client: KazooClient, make: MakeKazooLock) -> None:
        """Hold kazoo's lock in a thread, and increment the counter, until no more turns are needed."""
        lock = make(client)
        while self.needs_more_turns():
            with lock:
                self.enter()
                value, _ = client.get(COUNTER_PATH)
                if self.max_holders == 1:
                    client.set(COUNTER_PATH, b"%d" % (int(value) + 1))
                self.leave(who)

    def check(self) -> None:
        """Check that the sides excluded each other and that nothing is left."""
        assert not self.broken
        total = sum(self.turns.values())
        assert total >= ROUNDS
        if self.max_holders == 1:
            assert int(self.server.tree()[COUNTER_PATH].data or b"") == total
        self.server.wait_for(lambda: not ephemerals(self.server), timeout=DEADLINE_S)


@pytest.mark.parametrize(
    ("make", "other_make"),
    [
        pytest.param(lambda zk: Lock(zk, "/lock"), lambda zk: zk.Lock("/lock"), id="lock"),
        pytest.param(lambda zk: Lock(zk, "/lock", naming="both"), lambda zk: zk.Lock("/lock"), id="both"),
        pytest.param(lambda zk: ReadWriteLock(zk, "/rw").write(), lambda zk: zk.WriteLock("/rw"), id="writer"),
    ],
)
async def test_recipe_excludes_kazoo_recipe(
    server: Server, zk: Client, kazoo: KazooClient, make: MakeLock, other_make: MakeKazooLock
) -> None:
    tally = TurnCounter(server)
    await asyncio.gather(tally.run("zoolet", zk, make), asyncio.to_thread(tally.run_kazoo, "kazoo", kazoo, other_make))
    tally.check()


@pytest.mark.parametrize(
    ("make", "other_make"),
    [
        pytest.param(lambda zk: Lock(zk, "/lock", naming="curator"), lambda zk: Curator(zk, "/lock"), id="lock"),
        pytest.param(lambda zk: Lock(zk, "/lock", naming="both"), lambda zk: Curator(zk, "/lock"), id="both"),
        pytest.param(
            lambda zk: ReadWriteLock(zk, "/rw", naming="curator").write(),
            lambda zk: CuratorReadWrite(zk, "/rw", write=True),
            id="writer",
        ),
        pytest.param(lambda zk: SemaphoreLock(zk, "/mutex", naming="curator"), semaphore_mutex, id="semaphore mutex"),
        pytest.param(
            lambda zk: Election(zk, "/leader", naming="curator"),
            lambda zk: Curator(zk, "/leader", "latch-"),
            id="leader latch",
        ),
    ],
)
async def test_recipe_excludes_curator_recipe(server: Server, zk: Client, make: MakeLock, other_make: MakeLock) -> None:
    tally = TurnCounter(server)
    async with Client(server.hosts) as other:
        await asyncio.gather(tally.run("zoolet", zk, make), tally.run("curator", other, other_make))
        tally.check()


async def test_kazoo_readers_share_lock_but_writers_do_not(server: Server, zk: Client, kazoo: KazooClient) -> None:
    rw = ReadWriteLock(zk, "/rw", timeout=0.05)
    reader, writer = kazoo.ReadLock("/rw"), kazoo.WriteLock("/rw")
    await asyncio.to_thread(reader.acquire)
    async with rw.read():
        with pytest.raises(TimeoutError):
            async with rw.write():
                pass
        assert not await asyncio.to_thread(writer.acquire, blocking=False)
    await asyncio.to_thread(reader.release)
    async with rw.write():
        assert not await asyncio.to_thread(kazoo.ReadLock("/rw").acquire, blocking=False)
    assert await asyncio.to_thread(writer.acquire, timeout=DEADLINE_S)
    with pytest.raises(TimeoutError):
        async with rw.read():
            pass
    await asyncio.to_thread(writer.release)


async def test_curator_readers_share_lock_but_writers_do_not(server: Server, zk: Client) -> None:
    rw = ReadWriteLock(zk, "/rw", naming="curator", timeout=0.05)
    async with Client(server.hosts) as other:
        async with CuratorReadWrite(other, "/rw", write=False), rw.read():
            with pytest.raises(TimeoutError):
                async with rw.write():
                    pass
        async with CuratorReadWrite(other, "/rw", write=True):
            with pytest.raises(TimeoutError):
                async with rw.read():
                    pass


@pytest.mark.parametrize("leases", [1, 2])
async def test_semaphore_shares_leases_with_kazoo(server: Server, zk: Client, kazoo: KazooClient, leases: int) -> None:
    tally = TurnCounter(server, leases, side_count=3)
    async with Client(server.hosts) as third:
        await asyncio.gather(
            tally.run("zoolet", zk, lambda zk: Semaphore(zk, "/pool", leases)),
            tally.run("another", third, lambda zk: Semaphore(zk, "/pool", leases)),
            asyncio.to_thread(
                tally.run_kazoo, "kazoo", kazoo, lambda client: client.Semaphore("/pool", max_leases=leases)
            ),
        )
        tally.check()


async def test_semaphore_size_different_from_kazoo_raises(server: Server, zk: Client, kazoo: KazooClient) -> None:
    await asyncio.to_thread(kazoo.Semaphore("/pool", max_leases=3).acquire)
    with pytest.raises(ValueError, match="3"):
        await Semaphore(zk, "/pool", 2).acquire(DEADLINE_S)
    assert await asyncio.to_thread(kazoo.Semaphore("/pool", max_leases=3).acquire, timeout=DEADLINE_S)


async def test_kazoo_and_zoolet_candidates_elect_one_leader(server: Server, zk: Client, kazoo: KazooClient) -> None:
    election = Election(zk, "/leader", b"zoolet")
    entered, leave = threading.Event(), threading.Event()

    def lead() -> None:
        entered.set()
        leave.wait(DEADLINE_S)

    async with election:
        running = asyncio.create_task(asyncio.to_thread(kazoo.Election("/leader", "kazoo").run, lead))
        async with asyncio.timeout(DEADLINE_S):
            while await election.candidates() != [b"zoolet", b"kazoo"]:
                await asyncio.sleep(0.005)
        assert not entered.is_set()
    assert await asyncio.to_thread(entered.wait, DEADLINE_S)
    with pytest.raises(TimeoutError):
        await election.lead(0.05)
    assert await election.leader() == b"kazoo"
    leave.set()
    await running
    await (await election.lead(10)).release()
