"""A persistent ephemeral node is there whenever its program's session is, and goes with its block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.cancellation import cancel_everywhere
from support.leftovers import leftovers
from support.simulation import client_of, eventually, with_client

from zoolet.client import Client, ClosedError
from zoolet.client.recipes import PersistentEphemeral
from zoolet.server import Server
from zoolet.server.testing import drop_request, hold, lose_reply


def test_it_is_there_inside_the_block_and_gone_after() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with PersistentEphemeral(zk, "/up/down/me", b"v") as node:
            view = server.tree()["/up/down/me"]
            assert (view.data, view.ephemeral_owner) == (b"v", zk.session_id)
            assert node.exists
        assert set(server.tree()) == {"/up", "/up/down"}
        assert not node.exists
        assert not leftovers(server, zk)

    with_client(main)


@pytest.mark.parametrize("path", ["", "relative", "/a/", "/a//b", "/a/../b", "/a\0b"])
def test_an_illegal_path_is_refused_at_once(path: str) -> None:
    with pytest.raises(ValueError):
        PersistentEphemeral(Client("127.0.0.1:1"), path)


def test_a_path_that_is_no_text_is_refused_at_once() -> None:
    with pytest.raises(TypeError):
        PersistentEphemeral(Client("127.0.0.1:1"), b"/a")  # type: ignore[arg-type]


def test_a_closed_client_cannot_keep_a_node() -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.aclose()
        with pytest.raises(ClosedError):
            async with PersistentEphemeral(zk, "/a"):
                pass

    with_client(main)


def test_every_session_has_it_again() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with PersistentEphemeral(zk, "/a", b"v"):
            for _ in range(3):
                before = zk.session_id
                server.expire(zk)
                await eventually(lambda: "/a" in server.tree())
                assert server.tree()["/a"].ephemeral_owner == zk.session_id != before
                assert server.tree()["/a"].data == b"v"
        assert not leftovers(server, zk)

    with_client(main)


def test_between_sessions_it_says_that_it_is_not_there() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with PersistentEphemeral(zk, "/a") as node:
            server.refuse_connections()
            server.expire(zk)
            await asyncio.sleep(30)
            assert not node.exists
            server.accept_connections()
            await eventually(lambda: node.exists)
            assert "/a" in server.tree()

    with_client(main)


def test_a_node_that_somebody_deletes_is_made_again() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with client_of(server) as other, PersistentEphemeral(zk, "/a", b"v") as node:
            first = server.tree()["/a"].czxid
            await other.delete("/a")
            await eventually(lambda: "/a" in server.tree() and node.exists)
            assert server.tree()["/a"].czxid > first

    with_client(main)


def test_another_session_s_node_is_waited_out() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with client_of(server) as old:
            await old.create("/a", b"old", ephemeral=True)
            node = PersistentEphemeral(zk, "/a", b"new")
            entering = asyncio.ensure_future(node.__aenter__())
            await asyncio.sleep(60)
            assert not entering.done()
            assert server.tree()["/a"].data == b"old"
        await entering
        assert server.tree()["/a"].data == b"new"
        await node.__aexit__(None, None, None)

    with_client(main)


def test_a_new_value_is_there_now_and_in_the_next_session() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with PersistentEphemeral(zk, "/a", b"1") as node:
            await node.set(b"2")
            assert server.tree()["/a"].data == b"2"
            server.expire(zk)
            await eventually(lambda: "/a" in server.tree())
            assert server.tree()["/a"].data == b"2"

    with_client(main)


def test_a_value_that_is_set_between_sessions_is_that_of_the_next() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with PersistentEphemeral(zk, "/a", b"1") as node:
            server.refuse_connections()
            server.expire(zk)
            await asyncio.sleep(1)
            await node.set(b"2")
            server.accept_connections()
            await eventually(lambda: node.exists)
            assert server.tree()["/a"].data == b"2"

    with_client(main)


def test_values_that_are_set_while_it_is_made_again_end_with_the_last() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with PersistentEphemeral(zk, "/a", b"1") as node:
            with (
                server.fault(hold(), "create", "/a") as creating,
                server.fault(hold(), "setData", "/a") as setting,
            ):
                await zk.delete("/a")
                await eventually(lambda: creating.hits)
                await node.set(b"2")
                creating.release()
                await eventually(lambda: setting.hits)
                await node.set(b"3")
                setting.release()
            await eventually(lambda: node.exists)
            await asyncio.sleep(10)
            assert server.tree()["/a"].data == b"3"

    with_client(main)


@pytest.mark.parametrize("action", [lose_reply, drop_request])
def test_what_becomes_of_the_create_s_reply_makes_no_difference(action: Callable[[], Any]) -> None:
    async def main(server: Server, zk: Client) -> None:
        with server.fault(action(), "create", "/up/me", times=2, strict=True):
            async with PersistentEphemeral(zk, "/up/me", b"v"):
                assert server.tree()["/up/me"].data == b"v"
        assert not leftovers(server, zk)

    with_client(main)


@pytest.mark.parametrize("action", [lose_reply, drop_request])
def test_what_becomes_of_the_delete_s_reply_makes_no_difference(action: Callable[[], Any]) -> None:
    async def main(server: Server, zk: Client) -> None:
        with server.fault(action(), "delete", times=2, strict=True):
            async with PersistentEphemeral(zk, "/a"):
                pass
            await asyncio.sleep(5)
        assert not leftovers(server, zk)

    with_client(main)


def test_a_dropped_connection_does_not_touch_the_node() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with PersistentEphemeral(zk, "/a") as node:
            before = server.tree()["/a"].czxid
            server.drop(zk)
            await asyncio.sleep(5)
            assert node.exists
            assert server.tree()["/a"].czxid == before

    with_client(main)


def test_cancelled_anywhere_it_leaves_nothing() -> None:
    async def stay(zk: Client) -> None:
        async with PersistentEphemeral(zk, "/up/me"):
            pass

    cancel_everywhere(stay)


def test_left_while_it_is_being_made_again_it_leaves_nothing() -> None:
    async def main(server: Server, zk: Client) -> None:
        with server.fault(hold(), "create", "/a", nth=2) as creating:
            async with PersistentEphemeral(zk, "/a"):
                await zk.delete("/a")
                await eventually(lambda: creating.hits)
            creating.release()
            await asyncio.sleep(10)
        assert not leftovers(server, zk)

    with_client(main)


def test_two_programs_take_turns() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with client_of(server, seed=6) as other:
            second = PersistentEphemeral(other, "/a", b"2")
            async with PersistentEphemeral(zk, "/a", b"1"):
                entering = asyncio.ensure_future(second.__aenter__())
                await asyncio.sleep(10)
                assert not second.exists
            await entering
            assert server.tree()["/a"].data == b"2"
            await second.__aexit__(None, None, None)
        assert not leftovers(server, zk)

    with_client(main)


def test_a_former_session_s_node_that_goes_in_this_moment_is_no_obstacle() -> None:
    async def main(server: Server, zk: Client) -> None:
        server.create("/me", b"old", ephemeral=True)
        with server.fault(hold(limit=1000), "exists", client=zk, times=1) as fault:
            entering = asyncio.ensure_future(PersistentEphemeral(zk, "/me", b"new").__aenter__())
            await server.until(lambda: fault.hits, timeout=5)
            server.delete("/me")
            fault.release()
            kept = await entering
        assert server.tree()["/me"].data == b"new"
        await kept.__aexit__(None, None, None)

    with_client(main)
