"""A lost lease releases its nodes automatically, and a session that the client has abandoned is closed."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.leftovers import ephemerals, wait_until_clean
from support.lock_kinds import KINDS, acquire
from support.simulation import SESSION_S, Connect, simulate_clients

from zoolet.client import Client, State
from zoolet.client.recipes import DurableLock, Lock, LockingQueue, MultiLock, Semaphore
from zoolet.testing import Server, Simulation

SESSION_LEASES = [kind for kind in KINDS if kind != "DurableLock"]


async def outlast_deadline(server: Server, zk: Client) -> None:
    """Stop the server long enough for the leases to be lost, but not long enough for the session to expire."""
    session_id = zk.session_id
    await asyncio.sleep(SESSION_S * 0.3)  # the next ping is due only after a third of the timeout
    server.restart(downtime=SESSION_S * 0.9)
    await asyncio.sleep(SESSION_S)
    assert (zk.state, zk.session_id) == (State.CONNECTED, session_id)


@pytest.mark.parametrize("other", [False, True], ids=["the same client", "another client"])
@pytest.mark.parametrize("kind", SESSION_LEASES)
def test_lost_lease_frees_lock_while_session_lives(kind: str, other: bool) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        lease = await acquire(kind, zk)
        await outlast_deadline(server, zk)
        assert lease.lost.is_set()

        again = await acquire(kind, await connect() if other else zk, 0.5)

        assert again.token > lease.token
        await again.release()
        await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize("kind", KINDS)
def test_previous_session_is_closed_when_next_one_connects(kind: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        lease, former = await acquire(kind, zk), zk.session_id
        server.restart(downtime=4 * SESSION_S)
        await asyncio.sleep(3 * SESSION_S)
        assert (zk.state, lease.lost.is_set()) == (State.LOST, kind != "DurableLock")

        await zk.wait_for(State.CONNECTED)
        await asyncio.sleep(0.1)
        if kind == "DurableLock":  # a durable lease is lost after its TTL, and also deletes its nodes
            await server.until(lambda: not server.tree("/l"))
            await lease.lost

        assert list(server.sessions()) == [zk.session_id] != [former]
        assert not ephemerals(server)
        await (await acquire(kind, await connect(), 0.5)).release()

    simulate_clients(main)


def test_session_resumption_after_client_deadline_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        await outlast_deadline(server, await connect())

    simulate_clients(main)

    (text,) = [text for text in caplog.messages if "was resumed" in text]
    assert "after its timeout had passed; leases may be lost" in text


async def _acquire_both_namings(zk: Client) -> Any:
    return await Lock(zk, "/l", naming="both").acquire()


async def _acquire_several_leases(zk: Client) -> Any:
    return await Semaphore(zk, "/l", 3).acquire(count=3)


async def _acquire_multilock(zk: Client) -> Any:
    return await MultiLock(zk, ["/l", "/m", "/n"]).acquire()


@pytest.mark.parametrize("make", [_acquire_both_namings, _acquire_several_leases, _acquire_multilock])
def test_loss_of_one_lease_node_deletes_remaining_nodes(make: Callable[[Client], Awaitable[Any]]) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        lease = await make(await connect())
        await asyncio.sleep(1)

        server.delete(ephemerals(server)[1])
        await lease.lost

        await wait_until_clean(server)

    simulate_clients(main)


def test_queue_entry_of_lost_lease_is_redelivered_immediately() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk, other = await connect(), await connect()
        await LockingQueue(zk, "/q").put(b"v")
        entry = await LockingQueue(zk, "/q").acquire()
        await outlast_deadline(server, zk)

        again = await LockingQueue(other, "/q").acquire(timeout=1)

        assert (entry.lease.lost.is_set(), again.attempts) == (True, 2)
        await again.acknowledge()

    simulate_clients(main)


def test_durable_lock_is_free_after_its_lease_exceeds_ttl() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        lease = await DurableLock(zk, "/l", "me", ttl=2.0).acquire()
        server.restart(downtime=3.0)
        await asyncio.sleep(4)
        assert lease.lost.is_set()

        await (await DurableLock(await connect(), "/l", "you").acquire(timeout=0.5)).release()

    simulate_clients(main)


# --- a loss that is not noticed ---


def test_dropping_lost_lease_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    async def lose(server: Server, zk: Client) -> None:
        lease = await Lock(zk, "/l", on_lost="flag").acquire()
        server.expire(zk)
        await zk.wait_for(State.LOST)
        assert "lost" in repr(lease)

    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with pytest.warns(ResourceWarning, match="was dropped without release") as caught:
            await lose(server, zk)
        assert len(caught) == 1

    with caplog.at_level(logging.WARNING):
        simulate_clients(main)

    assert sum("dropped without release" in text for text in caplog.messages) == 1


@pytest.mark.parametrize("how", ["released", "read", "awaited", "closed"])
def test_dropping_lease_does_not_warn_if_program_knows_of_loss(how: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        lease = await Lock(zk, "/l", on_lost="flag").acquire()
        server.expire(zk)
        await zk.wait_for(State.LOST)
        if how == "released":
            await lease.release()
        elif how == "read":
            assert lease.lost
        elif how == "awaited":
            await lease.lost
        else:
            await zk.aclose()
        del lease
        gc.collect()

    simulate_clients(main)
