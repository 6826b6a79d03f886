"""The end of a lock: what is sent, what is waited for, what it means if it is refused, and the node above."""

from __future__ import annotations

import asyncio

import pytest
from support.leftovers import ephemerals, nothing_left
from support.simulation import Connect, simulate_clients

from zoolet.client import Client
from zoolet.client.recipes import Lock, LockLostError, MultiLock
from zoolet.protocol.errors import ErrorCode, NoAuthError
from zoolet.server import Server
from zoolet.server.testing import Simulation, drop_request, error, lose_reply

# --- releases ---


def test_a_refused_release_is_an_error_and_is_tried_with_growing_pauses(
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
            assert fault.hits < 25  # 950 without growing pauses
        await nothing_left(server)

    simulate_clients(main)

    assert len([record for record in caplog.records if "could not be released" in record.getMessage()]) == 1


@pytest.mark.parametrize("naming", ["kazoo", "curator", "both"])
def test_the_release_of_every_node_is_sent_when_the_block_ends(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with Lock(zk, "/lock", naming=naming):
            await asyncio.sleep(1)
            nodes = len(ephemerals(server))
        now = zk.statistics()
        assert (now.in_flight, now.waiting) == (nodes, 0)
        await nothing_left(server)

    simulate_clients(main)


def test_a_lease_ends_with_a_block_of_its_own() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with await zk.lock("/lock").acquire() as lease:
            assert lease.valid_for() > 0
        assert lease.valid_for() == 0
        await nothing_left(server)

    simulate_clients(main)


# --- the node above ---


def test_the_node_of_a_lock_goes_some_time_after_its_last_contender() -> None:
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
def test_a_lost_reply_to_the_create_of_the_node_above_makes_no_difference(op: str, action: type) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with server.fault(action(), op, nth={1, 3}):
            async with zk.lock("/locks/p"):
                assert "/locks/p" in server.tree()
        await nothing_left(server)

    simulate_clients(main)


def test_where_the_server_has_no_containers_the_node_of_a_lock_is_persistent() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with server.fault(error(ErrorCode.UNIMPLEMENTED), "createContainer"):
            async with zk.lock("/locks/p"):
                pass
        await asyncio.sleep(200)
        assert "/locks/p" in server.tree()

    simulate_clients(main)


@pytest.mark.parametrize("naming", ["kazoo", "both"])
def test_a_block_can_wait_until_the_server_has_released_it(naming: str) -> None:
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


def test_how_a_lock_is_released_is_one_of_two() -> None:
    with pytest.raises(ValueError, match="release"):
        Lock(Client("127.0.0.1:1"), "/lock", release="never")


def test_a_multilock_says_that_the_release_of_a_part_is_refused() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        lease = await MultiLock(zk, ["/l", "/m"]).acquire()
        with server.fault(error(NoAuthError), "delete", "/m/*", client=zk, times=2):
            await lease.release()
        assert isinstance(lease.release_error, NoAuthError)
        await nothing_left(server)

    simulate_clients(main)


def test_a_lease_that_was_released_wakes_nobody_up() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        lease = await Lock(await connect(), "/a").acquire()
        await lease.release()

        assert lease._timer.cancelled()

    simulate_clients(main)
