"""A persistent ephemeral node exists in every session of its program, and is deleted at the end of its block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.cancellation import cancel_everywhere
from support.leftovers import leftovers
from support.simulation import eventually, make_client, with_client

from zoolet.client import Client, ClosedError, ConnectionLossError, State, serializers
from zoolet.client.recipes import PersistentEphemeral
from zoolet.testing import Server, delay, drop_request, hold, lose_reply


def test_node_exists_only_inside_block() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with PersistentEphemeral(zk, "/up/down/me", b"v") as node:
            view = server.tree()["/up/down/me"]
            assert (view.data, view.ephemeral_owner) == (b"v", zk.session_id)
            assert node.exists
        assert set(server.tree()) == {"/up", "/up/down"}
        assert not node.exists
        assert not leftovers(server, zk)

    with_client(main)


def test_non_text_path_is_refused() -> None:
    with pytest.raises(TypeError):
        PersistentEphemeral(Client("127.0.0.1:1"), b"/a")  # type: ignore[arg-type]


def test_closed_client_raises_on_entry() -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.aclose()
        with pytest.raises(ClosedError):
            async with PersistentEphemeral(zk, "/a"):
                pass

    with_client(main)


def test_node_is_recreated_in_every_session() -> None:
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


def test_ephemeral_node_is_reported_missing_between_sessions() -> None:
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


def test_deleted_node_is_recreated() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server) as other, PersistentEphemeral(zk, "/a", b"v") as node:
            first = server.tree()["/a"].czxid
            await other.delete("/a")
            await eventually(lambda: "/a" in server.tree() and node.exists)
            assert server.tree()["/a"].czxid > first

    with_client(main)


def test_block_is_entered_after_node_of_other_client_ends() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server) as old:
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


def test_value_of_persistent_ephemeral_is_kept_in_next_session() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with PersistentEphemeral(zk, "/a", b"1") as node:
            await node.set(b"2")
            assert server.tree()["/a"].data == b"2"
            server.expire(zk)
            await eventually(lambda: "/a" in server.tree())
            assert server.tree()["/a"].data == b"2"

    with_client(main)


def test_value_set_between_sessions_is_written_in_next_session() -> None:
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


def test_last_value_set_during_node_recreation_remains() -> None:
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
def test_node_is_created_despite_lost_messages(action: Callable[[], Any]) -> None:
    async def main(server: Server, zk: Client) -> None:
        with server.fault(action(), "create", "/up/me", times=2, strict=True):
            async with PersistentEphemeral(zk, "/up/me", b"v"):
                assert server.tree()["/up/me"].data == b"v"
        assert not leftovers(server, zk)

    with_client(main)


@pytest.mark.parametrize("action", [lose_reply, drop_request])
def test_node_is_deleted_despite_lost_messages(action: Callable[[], Any]) -> None:
    async def main(server: Server, zk: Client) -> None:
        with server.fault(action(), "delete", times=2, strict=True):
            async with PersistentEphemeral(zk, "/a"):
                pass
            await asyncio.sleep(5)
        assert not leftovers(server, zk)

    with_client(main)


def test_dropped_connection_keeps_node() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with PersistentEphemeral(zk, "/a") as node:
            before = server.tree()["/a"].czxid
            server.drop(zk)
            await asyncio.sleep(5)
            assert node.exists
            assert server.tree()["/a"].czxid == before

    with_client(main)


def test_cancelled_persistent_ephemeral_cleans_up() -> None:
    async def stay(zk: Client) -> None:
        async with PersistentEphemeral(zk, "/up/me"):
            pass

    cancel_everywhere(stay)


def test_leaving_block_during_node_recreation_deletes_node() -> None:
    async def main(server: Server, zk: Client) -> None:
        with server.fault(hold(), "create", "/a", nth=2) as creating:
            async with PersistentEphemeral(zk, "/a"):
                await zk.delete("/a")
                await eventually(lambda: creating.hits)
            creating.release()
            await asyncio.sleep(10)
        assert not leftovers(server, zk)

    with_client(main)


def test_second_program_waits_for_node_of_first() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other:
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


def test_node_creation_succeeds_if_old_node_is_just_deleted() -> None:
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


# --- a new value ---


@pytest.mark.parametrize("action", [lose_reply, drop_request])
@pytest.mark.parametrize("limited", [False, True], ids=["without limit", "with limit"])
def test_value_set_with_lost_request_or_reply_is_written_later(action: Any, limited: bool) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with PersistentEphemeral(zk, "/up/me", b"old") as node:
            with server.fault(action(), "setData", times=1, strict=True) as fault:
                setting = asyncio.create_task(node.set(b"new"))
                await asyncio.sleep(0.0001)
                if limited:
                    setting.cancel()
                (error,) = await asyncio.gather(setting, return_exceptions=True)
                await eventually(lambda: fault.hits)

            await eventually(lambda: server.tree()["/up/me"].data == b"new", 5)
            assert isinstance(error, asyncio.CancelledError if limited else ConnectionLossError)
            await eventually(lambda: node.exists)

    with_client(main)


def test_value_set_without_server_is_written_later() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with PersistentEphemeral(zk.with_operation_timeout(0.5), "/up/me", b"old") as node:
            owner = server.tree()["/up/me"].ephemeral_owner
            server.refuse_connections()
            server.drop(zk)
            await zk.wait_for(State.SUSPENDED)
            with pytest.raises(ConnectionLossError):
                await node.set(b"new")
            server.accept_connections()

            await eventually(lambda: server.tree()["/up/me"].data == b"new", 5)
            assert server.tree()["/up/me"].ephemeral_owner == owner

    with_client(main)


@pytest.mark.parametrize("value", [5, bytes(2_000_000)], ids=["wrong type", "too large"])
def test_unsendable_value_does_not_replace_ephemeral_node_value(value: Any) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with PersistentEphemeral(zk, "/up/me", b"old") as node:
            with pytest.raises((TypeError, ValueError)):
                await node.set(value)
            await asyncio.sleep(1)
            assert server.tree()["/up/me"].data == b"old"
            server.expire(zk)
            await zk.wait_for(State.LOST)
            await eventually(lambda: node.exists)

            assert server.tree()["/up/me"].data == b"old"

    with_client(main)


def test_value_object_mutated_during_recreation_is_written() -> None:
    async def main(server: Server, zk: Client) -> None:
        value = {"n": 0}
        async with PersistentEphemeral(zk.with_serializer(serializers.json), "/up/me", value) as node:
            with server.fault(delay(1.0), "create"):
                server.expire(zk)
                await zk.wait_for(State.LOST)
                await zk.wait_for(State.CONNECTED)
                await asyncio.sleep(0.5)
                value["n"] = 1
                await node.set(value)
                await eventually(lambda: node.exists)

            assert server.tree()["/up/me"].data == b'{"n":1}'

    with_client(main)
