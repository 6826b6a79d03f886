"""Release of a lock: requests, waiting, errors, and the parent node."""

from __future__ import annotations

import asyncio

import pytest
from support.leftovers import ephemerals, wait_until_clean
from support.simulation import Connect, simulate_clients

from zoolet.client import Client
from zoolet.client.recipes import Lock, LockLostError, MultiLock
from zoolet.protocol.errors import ErrorCode, NoAuthError
from zoolet.testing import Server, Simulation, drop_request, error, lose_reply

# --- releases ---


def test_refused_release_of_lock_is_retried_with_backoff(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        refused = error(NoAuthError)
        with server.fault(refused, "delete", "/lock/*", client=zk) as fault:
            async with zk.lock("/lock") as lease:
                pass
            await asyncio.sleep(60)
            assert isinstance(lease.release_error, NoAuthError)
            assert fault.hits < 25  # 950 attempts without growing pauses
        await wait_until_clean(server)

    simulate_clients(main)

    assert len([record for record in caplog.records if "could not be released" in record.getMessage()]) == 1


@pytest.mark.parametrize("naming", ["kazoo", "curator", "both"])
def test_end_of_multilock_block_sends_all_releases_together(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with Lock(zk, "/lock", naming=naming):
            await asyncio.sleep(1)
            nodes = len(ephemerals(server))
        now = zk.statistics()
        assert (now.in_flight, now.waiting) == (nodes, 0)
        await wait_until_clean(server)

    simulate_clients(main)


def test_lease_is_released_at_end_of_its_block() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with await zk.lock("/lock").acquire() as lease:
            assert lease.valid_for() > 0
        assert lease.valid_for() == 0
        await wait_until_clean(server)

    simulate_clients(main)


# --- the parent node ---


def test_lock_node_disappears_after_last_contender() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with zk.lock("/locks/p"):
            await asyncio.sleep(200)
            assert "/locks/p" in server.tree()
        await asyncio.sleep(200)
        assert set(server.tree()) == {"/locks"}
        async with zk.lock("/locks/p"):
            pass

    simulate_clients(main)


@pytest.mark.parametrize("op", ["createContainer", "create"])
@pytest.mark.parametrize("action", [lose_reply, drop_request])
def test_lock_works_after_lost_create_of_parent(op: str, action: type) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with server.fault(action(), op, nth={1, 3}):
            async with zk.lock("/locks/p"):
                assert "/locks/p" in server.tree()
        await wait_until_clean(server)

    simulate_clients(main)


def test_lock_node_is_persistent_without_containers() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        unknown = ErrorCode.UNIMPLEMENTED
        with server.fault(error(unknown), "createContainer"), server.fault(error(unknown), "multi"):
            async with zk.lock("/locks/p"):
                pass
        await asyncio.sleep(200)
        assert "/locks/p" in server.tree()

    simulate_clients(main)


@pytest.mark.parametrize("naming", ["kazoo", "both"])
def test_block_with_release_wait_ends_after_server_released_lock(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with Lock(zk, "/lock", naming=naming, release="wait"):
            assert ephemerals(server)
        assert not ephemerals(server)

        with pytest.raises(LockLostError):  # noqa: PT012
            async with Lock(zk, "/lock", naming=naming, release="wait"):
                server.expire(zk)
                await asyncio.sleep(60)

    simulate_clients(main)


def test_unknown_release_option_is_refused() -> None:
    with pytest.raises(ValueError, match="release"):
        Lock(Client("127.0.0.1:1"), "/lock", release="never")


def test_multilock_reports_refused_partial_release() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        lease = await MultiLock(zk, ["/l", "/m"]).acquire()
        with server.fault(error(NoAuthError), "delete", "/m/*", client=zk, times=2):
            await lease.release()
        assert isinstance(lease.release_error, NoAuthError)
        await wait_until_clean(server)

    simulate_clients(main)


def test_released_lease_cancels_its_timer() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        lease = await Lock(await connect(), "/a").acquire()
        await lease.release()

        assert lease._timer.cancelled()

    simulate_clients(main)
