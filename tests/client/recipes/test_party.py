"""A client is a member of a party while it is inside the block, in each of its sessions."""

from __future__ import annotations

import asyncio
import re

import pytest
from support.cancellation import cancel_everywhere
from support.kazoo_clients import kazoo_client
from support.leftovers import leftovers, nodes_below
from support.simulation import eventually, make_client, with_client

from zoolet.client import Client, SessionExpiredError, serializers
from zoolet.client.recipes import Party
from zoolet.testing import Server, hold, lose_reply

NAMINGS = ["kazoo", "curator"]


@pytest.mark.parametrize("naming", NAMINGS)
def test_member_is_listed_until_it_leaves(naming: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        assert await Party(zk, "/up/p", b"x", naming=naming).members() == []
        async with make_client(server, seed=6) as other, Party(zk, "/up/p", b"a", naming=naming) as party:
            async with Party(other, "/up/p", b"b", naming=naming):
                assert sorted(await party.members()) == [b"a", b"b"]
            assert await party.members() == [b"a"]
        assert await party.members() == []
        assert not leftovers(server, zk)

    with_client(main)


def test_party_nodes_match_kazoo_and_curator() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Party(zk, "/k", b"me"), Party(zk, "/c", b"me", naming="curator"):
            ((name, data),) = nodes_below(server, "/k").items()
            assert re.fullmatch("[0-9a-f]{32}__party__", name)
            assert data == b"me"
            assert nodes_below(server, "/c") == {"me": b"me"}

    with_client(main)


def test_unknown_naming_is_refused() -> None:
    with pytest.raises(ValueError, match="one of kazoo, curator"):
        Party(Client("127.0.0.1:1"), "/p", naming="zk")


@pytest.mark.parametrize(
    "name",
    [
        b"",
        pytest.param(b"a/b"),
        b"..",
        b"\xff",
        b"\0",
    ],
)
def test_invalid_name_is_refused_with_curator_naming(name: bytes) -> None:
    with pytest.raises(ValueError):
        Party(Client("127.0.0.1:1"), "/p", name, naming="curator")


def test_foreign_node_is_not_a_party_member() -> None:
    async def main(server: Server, zk: Client) -> None:
        server.populate({"/p": {"other": "x"}})
        async with Party(zk, "/p", b"me") as party:
            assert await party.members() == [b"me"]

    with_client(main)


def test_party_ignores_client_serializer() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Party(zk.with_serializer(serializers.json), "/p", b"me") as party:
            assert await party.members() == [b"me"]

    with_client(main)


@pytest.mark.parametrize("naming", NAMINGS)
def test_member_rejoins_in_next_session(naming: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other, Party(zk, "/p", b"me", naming=naming):
            server.expire(zk)
            assert await Party(other, "/p", b"x", naming=naming).members() == []
            await eventually(lambda: nodes_below(server, "/p"))
            assert await Party(other, "/p", b"x", naming=naming).members() == [b"me"]

    with_client(main)


def test_party_changes_are_delivered_despite_session_loss() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other:
            seen: list[list[bytes]] = []

            async def follow() -> None:
                async for members in Party(zk, "/p").changes():
                    seen.append(members)  # noqa: PERF401

            job = asyncio.ensure_future(follow())
            await eventually(lambda: seen)
            async with Party(other, "/p", b"a"):
                await eventually(lambda: len(seen) == 2)
                server.expire(zk)
                await asyncio.sleep(5)
            await eventually(lambda: len(seen) == 3)
            job.cancel()
            await asyncio.wait((job,))
            assert seen == [[], [b"a"], []]
            await asyncio.sleep(1)
            assert not leftovers(server, zk)

    with_client(main)


@pytest.mark.parametrize("naming", NAMINGS)
def test_member_rejoins_after_node_deletion(naming: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other, Party(zk, "/p", b"me", naming=naming) as party:
            (name,) = nodes_below(server, "/p")
            await other.delete(f"/p/{name}")
            await eventually(lambda: nodes_below(server, "/p"))
            assert await party.members() == [b"me"]

    with_client(main)


def test_party_changes_continue_after_deletion_of_its_node() -> None:
    async def main(server: Server, zk: Client) -> None:
        seen: list[list[bytes]] = []

        async def follow() -> None:
            async for members in Party(zk, "/p").changes():
                seen.append(members)  # noqa: PERF401

        job = asyncio.ensure_future(follow())
        await eventually(lambda: seen)
        for _ in range(2):
            async with Party(zk, "/p", b"a"):
                await asyncio.sleep(1)
            await zk.delete("/p")
            await asyncio.sleep(1)
        job.cancel()
        await asyncio.wait((job,))
        assert seen == [[], [b"a"], [], [b"a"], []]
        assert job.cancelled()

    with_client(main)


def test_session_end_while_listing_party_raises_one_error() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other, Party(other, "/p", b"a"), Party(other, "/p", b"b"):
            with server.fault(hold(), "getData", client=zk) as held:
                asking = asyncio.ensure_future(Party(zk, "/p").members())
                await eventually(lambda: held.hits)
                server.expire(zk)
                with pytest.raises(SessionExpiredError):
                    await asking
            del asking

    with_client(main)  # fails for unretrieved errors


def test_party_works_despite_lost_replies() -> None:
    async def main(server: Server, zk: Client) -> None:
        with server.fault(lose_reply(), probability=0.3, times=10, strict=True):
            async with Party(zk, "/up/p", b"me") as party:
                assert await party.members() == [b"me"]
        await asyncio.sleep(5)
        assert not leftovers(server, zk)

    with_client(main)


def test_cancelled_party_block_cleans_up() -> None:
    async def join(zk: Client) -> None:
        async with Party(zk, "/up/p", b"me") as party:
            await party.members()

    cancel_everywhere(join)


async def test_party_interoperates_with_kazoo() -> None:
    async with Server() as server, make_client(server) as zk, kazoo_client(server) as kazoo:
        theirs = kazoo.Party("/p", "k")
        await asyncio.to_thread(theirs.join)
        async with Party(zk, "/p", b"z") as ours:
            assert sorted(await ours.members()) == [b"k", b"z"]
            assert sorted(await asyncio.to_thread(lambda: list(theirs))) == ["k", "z"]
            assert await asyncio.to_thread(lambda: len(theirs)) == 2
            await asyncio.to_thread(theirs.leave)
            assert await ours.members() == [b"z"]
