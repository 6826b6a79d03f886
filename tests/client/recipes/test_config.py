"""A published value reaches all followers, and no client overwrites a value that it has not seen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.cancellation import cancel_everywhere
from support.leftovers import leftovers
from support.simulation import eventually, make_client, with_client

from zoolet.client import BadVersionError, Client, ConnectionLossError, NodeExistsError, NoNodeError, serializers
from zoolet.client.recipes import Config
from zoolet.testing import Server, hold, lose_reply


def test_published_value_reaches_all_followers() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other:
            async with Config(zk, "/up/c", default={"d": 1}) as one, Config(other, "/up/c") as two:
                assert (one.value, two.value) == ({"d": 1}, None)
                assert one.version == -1
                await two.publish({"n": 1, "ü": None})
                await eventually(lambda: one.value == {"n": 1, "ü": None} == two.value)
                assert server.tree()["/up/c"].data == '{"n":1,"ü":null}'.encode()
                assert one.version == 0
                await one.publish(2)
                await eventually(lambda: two.value == 2 and two.version == 1)
                await zk.delete("/up/c")
                await eventually(lambda: one.value == {"d": 1} and one.version == -1)
        assert not leftovers(server, zk)

    with_client(main)


def test_publisher_sees_its_value_immediately() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Config(zk, "/c") as config:
            for value in (1, 2):
                await config.publish(value)
                assert (config.value, config.version) == (value, value - 1)

    with_client(main)


def test_invalid_serializer_is_refused() -> None:
    with pytest.raises(TypeError):
        Config(Client("127.0.0.1:1"), "/c", serializer="json")  # type: ignore[arg-type]


def test_config_accepts_custom_serializer() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Config(zk, "/c", serializer=serializers.msgpack) as config:
            await config.publish({"b": b"\xff"})
            await eventually(lambda: config.value == {"b": b"\xff"})

    with_client(main)


def test_version_argument_prevents_overwriting_unseen_value() -> None:
    async def main(server: Server, zk: Client) -> None:
        config = Config(zk, "/c")
        with pytest.raises(NoNodeError):
            await config.publish(0, version=3)
        await config.publish(1, version=-1)
        with pytest.raises(NodeExistsError):
            await config.publish(2, version=-1)
        with pytest.raises(BadVersionError):
            await config.publish(2, version=5)
        await config.publish(2, version=0)
        assert server.tree()["/c"].data == b"2"

    with_client(main)


def test_concurrent_updates_are_all_applied() -> None:
    async def main(server: Server, zk: Client) -> None:
        config = Config(zk, "/c")
        await config.publish(0)
        await asyncio.gather(*[config.update(lambda value: value + 1) for _ in range(10)])
        assert server.tree()["/c"].data == b"10"

    with_client(main)


def test_changes_yield_default_for_missing_node() -> None:
    async def main(server: Server, zk: Client) -> None:
        seen: list[Any] = []
        async with Config(zk, "/c", default="d") as config:

            async def follow() -> None:
                async for value in config.changes():
                    seen.append(value)  # noqa: PERF401

            job = asyncio.ensure_future(follow())
            for act in (lambda: config.publish(1), lambda: config.publish(2), lambda: zk.delete("/c")):
                await asyncio.sleep(1)
                await act()
            await asyncio.sleep(1)
            job.cancel()
        assert seen == ["d", 1, 2, "d"]

    with_client(main)


def test_value_published_while_offline_is_read_later() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other, Config(zk, "/c") as config:
            for number, how in enumerate((server.drop, server.expire)):
                server.pause(zk)
                await Config(other, "/c").publish(number)
                with_session = zk.session_id
                how(zk)
                if how == server.drop:
                    server.resume(with_session)
                await eventually(lambda number=number: config.value == number)

    with_client(main)


def test_config_delivers_value_after_undecodable_value() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Config(zk, "/c") as config:
            await config.publish(1)
            await zk.set("/c", b"{rubbish")
            await asyncio.sleep(1)
            await config.publish(3)
            await eventually(lambda: config.value == 3, 20)

    with_client(main)


def test_publication_without_reply_raises() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Config(zk, "/c") as config:
            await config.publish(1)
            with server.fault(lose_reply(), "setData", times=1, strict=True):
                with pytest.raises(ConnectionLossError):
                    await config.publish(2)
            await eventually(lambda: config.value == 2)

    with_client(main)


def test_publish_overwrites_concurrently_created_node() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other:
            with server.fault(hold(), "create", client=zk, nth=1) as held:
                publishing = asyncio.ensure_future(Config(zk, "/c").publish("mine"))
                await eventually(lambda: held.hits)
                await other.create("/c", b'"other"')
                held.release()
                await publishing
            assert server.tree()["/c"].data == b'"mine"'

    with_client(main)


def test_cancelled_config_block_cleans_up() -> None:
    async def use(zk: Client) -> None:
        async with Config(zk, "/up/c") as config:
            await config.publish(1)
            await config.update(lambda value: value + 1)

    cancel_everywhere(use)
