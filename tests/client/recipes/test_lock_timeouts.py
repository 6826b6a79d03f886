"""Timeouts of locks are kept, their errors describe the holder and the waiters, and an attempt never waits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import Any, Final

import pytest
from support.leftovers import wait_until_clean
from support.simulation import Connect, simulate_clients

from zoolet.client import Client
from zoolet.client.recipes import Lock, MultiLock, ReadWriteLock, Semaphore, TryLock
from zoolet.testing import Server, Simulation, delay, lose_reply

# --- duration of timeouts and attempts ---

KINDS: Final[dict[str, Callable[[Client], Any]]] = {
    "lock": lambda zk: Lock(zk, "/l"),
    "both": lambda zk: Lock(zk, "/l", naming="both"),
    "multi": lambda zk: MultiLock(zk, ["/k", "/l"]),
    "read": lambda zk: ReadWriteLock(zk, "/l").read(),
    "write": lambda zk: ReadWriteLock(zk, "/l").write(),
    "semaphore": lambda zk: Semaphore(zk, "/l", 1),
    "try": lambda zk: TryLock(zk, "/l"),
}


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
@pytest.mark.parametrize("kind", KINDS)
def test_acquire_with_timeout_returns_despite_stall(kind: str, held: bool) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(timeout=30.0), await connect(timeout=30.0)
        for milliseconds in range(0, 60, 3):
            holder = KINDS["write" if kind == "read" else kind](one)
            lease = await holder.acquire() if held else None
            loop = asyncio.get_running_loop()
            began = loop.time()
            loop.call_later(milliseconds / 1000, server.pause, two)
            acquired = None
            with contextlib.suppress(TimeoutError):
                acquired = await KINDS[kind](two).acquire(timeout=1)
            assert loop.time() - began <= 1.5
            assert not (held and acquired)
            await asyncio.sleep(1.5 - (loop.time() - began))
            server.resume(two)
            for taken in (acquired, lease):
                if taken is not None:
                    await taken.release()
            await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize("kind", KINDS)
def test_attempt_at_held_lock_creates_no_node(kind: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        holder, other = KINDS["write" if kind == "read" else kind](one), KINDS[kind](two)
        lease = await holder.attempt()
        assert lease is not None
        await asyncio.sleep(1)
        before = server.zxid()

        assert await other.attempt() is None
        assert kind == "try" or server.zxid() == before  # an attempt at a TryLock is a failing transaction
        await lease.release()
        again = await other.attempt()
        assert again is not None
        await again.release()
        await wait_until_clean(server)

    simulate_clients(main)


def test_at_most_one_of_concurrent_attempts_succeeds() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        clients = [await connect() for _ in range(4)]
        for _ in range(20):
            for kind in ("lock", "both", "multi", "write", "semaphore", "try"):
                leases = await asyncio.gather(*[KINDS[kind](zk).attempt() for zk in clients])
                assert sum(lease is not None for lease in leases) <= 1
                for lease in leases:
                    if lease is not None:
                        await lease.release()
                await wait_until_clean(server)

    simulate_clients(main)


def test_concurrent_attempts_of_readers_all_succeed() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        first, second = await KINDS["read"](one).attempt(), await KINDS["read"](two).attempt()
        assert first is not None
        assert second is not None
        async with first, second:
            assert await KINDS["write"](one).attempt() is None

    simulate_clients(main)


# --- messages of timeouts ---


def test_lock_timeout_reports_holder_and_number_of_waiters() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two, three = await connect(), await connect(), await connect()
        async with Lock(one, "/locks/p", data=b"host-1:4711"):
            await asyncio.sleep(180)
            waiting = asyncio.ensure_future(three.lock("/locks/p").acquire())
            await asyncio.sleep(1)
            with pytest.raises(TimeoutError) as caught:
                await two.lock("/locks/p").acquire(timeout=1)
            waiting.cancel()

        assert str(caught.value) == (
            f"/locks/p was not free within 1 s: held by host-1:4711 (session {one.session_id:#x}, "
            "requested 182 s ago), 1 waiting"
        )

    simulate_clients(main)


@pytest.mark.parametrize("data", [b"\xff\x00", b""])
def test_lock_timeout_shows_binary_data_of_holder(data: bytes) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with Lock(one, "/l", data=data):
            with pytest.raises(TimeoutError, match=r"held by (b'\\xff\\x00'|an unnamed client) \(session"):
                await two.lock("/l").acquire(timeout=1)

    simulate_clients(main)


def test_error_of_outer_timeout_is_not_extended_by_lock() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with one.lock("/l"):
            began = sim.time()
            with pytest.raises(TimeoutError) as caught:
                async with asyncio.timeout(1):
                    await two.lock("/l").acquire(timeout=100)
            assert sim.time() - began < 1.3
            assert str(caught.value) == ""

    simulate_clients(main)


def test_default_data_of_lock_identifies_process() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with zk.lock("/l") as lease:
            assert server.tree()[lease.path].data == f"{socket.gethostname()}:{os.getpid()}".encode()

    simulate_clients(main)


def test_failed_attempt_at_multilock_creates_no_node() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk, other = await connect(), await connect()
        async with Lock(other, "/l", naming="curator"), Lock(other, "/m"):
            before = server.zxid()

            assert await Lock(zk, "/l", naming="both").attempt() is None
            assert await MultiLock(zk, ["/k", "/m"]).attempt() is None

            assert server.zxid() == before

    simulate_clients(main)


def test_lock_timeout_reports_wait_after_lost_create_reply() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk, other = await connect(), await connect()
        async with Lock(other, "/l"):
            with server.fault(lose_reply(), "create2", client=zk, times=1, strict=True):
                with pytest.raises(TimeoutError, match=r"requested \d s ago"):
                    await Lock(zk, "/l").acquire(timeout=3)

    simulate_clients(main)


def test_lock_timeout_before_create_reply_omits_waiting_time() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk, other = await connect(), await connect()
        async with Lock(other, "/l", data=b"host-1"):
            with server.fault(delay(0.55), "create2", client=zk, times=1, strict=True):
                with pytest.raises(TimeoutError, match=r"held by host-1 \(session 0x[0-9a-f]+\), 0 waiting"):
                    await Lock(zk, "/l").acquire(timeout=0.5)

    simulate_clients(main)
