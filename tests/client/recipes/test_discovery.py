"""Discovery: instances are registered in Curator's format, in every session, found, and selected by strategy."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from support.cancellation import cancel_everywhere
from support.leftovers import leftovers, nodes_below
from support.simulation import eventually, make_client, with_client

from zoolet.client import Client
from zoolet.client.recipes import Discovery, Instance
from zoolet.testing import Server, lose_reply

WEB_INSTANCES = [Instance("web", f"web-{number}", "10.0.0.1", 8000 + number) for number in range(3)]


def test_instance_is_found_until_unregistered() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other, Discovery(other, "/s") as seeker:
            async with Discovery(zk, "/s") as offerer:
                assert await seeker.instances("web") == []
                for instance in WEB_INSTANCES:
                    await offerer.register(instance)
                await asyncio.sleep(1)
                assert await seeker.instances("web") == WEB_INSTANCES
                await offerer.unregister(WEB_INSTANCES[1])
                await offerer.unregister(WEB_INSTANCES[1])
                await asyncio.sleep(1)
                assert await seeker.instances("web") == [WEB_INSTANCES[0], WEB_INSTANCES[2]]
            await asyncio.sleep(1)
            assert await seeker.instances("web") == []
            assert nodes_below(server, "/s") == {"web": b""}
        assert not leftovers(server, zk)

    with_client(main)


def test_instance_node_matches_curator_bytes() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Discovery(zk, "/s") as discovery:
            await discovery.register(Instance("web", "w-1", "10.0.0.1", 8080, registrationTimeUTC=1700000000000))
            view = server.tree()["/s/web/w-1"]
            assert view.ephemeral_owner == zk.session_id
            assert view.data == (
                b'{"name":"web","id":"w-1","address":"10.0.0.1","port":8080,"sslPort":null,"payload":null,'
                b'"registrationTimeUTC":1700000000000,"serviceType":"DYNAMIC","uriSpec":null,"enabled":true}'
            )

    with_client(main)


def test_curator_instances_are_read() -> None:
    curator = (
        '{"name":"web","id":"u-1","address":"10.1.1.1","port":80,"sslPort":443,"payload":{"@class":"com.x.P","load":3},'
        '"registrationTimeUTC":1,"serviceType":"DYNAMIC","uriSpec":{"parts":[{"value":"scheme","variable":true}]},'
        '"enabled":true,"somethingNew":1}'
    )
    old = '{"name":"web","id":"u-2","address":"10.1.1.1","port":80,"sslPort":null,"payload":null}'
    off = '{"name":"web","id":"u-3","address":"a","port":80,"enabled":false}'

    async def main(server: Server, zk: Client) -> None:
        server.populate({"/s/web": {"u-1": curator, "u-2": old, "u-3": off}})
        async with Discovery(zk, "/s") as discovery:
            one, two = await discovery.instances("web")
            assert (one.id, one.sslPort, one.payload["load"]) == ("u-1", 443, 3)
            assert (two.id, two.enabled) == ("u-2", True)

    with_client(main)


@pytest.mark.parametrize(
    "rubbish",
    ["", "{", "[]", "7", pytest.param("{}"), pytest.param('{"name":"web"}')],
)
def test_invalid_instance_node_is_skipped(rubbish: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        server.populate({"/s/web": {"rubbish": rubbish}})
        async with Discovery(zk, "/s") as discovery:
            await discovery.register(WEB_INSTANCES[0])
            await asyncio.sleep(1)
            assert await discovery.instances("web") == [WEB_INSTANCES[0]]

    with_client(main)


@pytest.mark.parametrize(
    "instance",
    [
        Instance("", "x"),
        Instance("web", ""),
        pytest.param(Instance("web", "a/b")),
        Instance("..", "x"),
    ],
)
def test_instance_with_invalid_name_is_refused(instance: Instance) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Discovery(zk, "/s") as discovery:
            with pytest.raises(ValueError):
                await discovery.register(instance)
        assert not server.tree()

    with_client(main)


def test_repeated_registration_updates_instance() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Discovery(zk, "/s") as discovery:
            await discovery.register(WEB_INSTANCES[0])
            await discovery.register(Instance("web", "web-0", "10.9.9.9", 1))
            await asyncio.sleep(1)
            (found,) = await discovery.instances("web")
            assert found.address == "10.9.9.9"
            server.expire(zk)
            await asyncio.sleep(5)
            (found,) = await discovery.instances("web")
            assert found.address == "10.9.9.9"

    with_client(main)


def test_concurrent_registration_creates_one_node() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Discovery(zk, "/s") as discovery:
            await asyncio.gather(discovery.register(WEB_INSTANCES[0]), discovery.register(WEB_INSTANCES[0]))
        await asyncio.sleep(5)
        assert not leftovers(server, zk)

    with_client(main)


def test_instance_is_registered_in_every_session() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other, Discovery(zk, "/s") as one, Discovery(other, "/s") as two:
            await one.register(WEB_INSTANCES[0])
            await asyncio.sleep(1)
            assert await two.instances("web") == [WEB_INSTANCES[0]]
            server.expire("all")
            await asyncio.sleep(10)
            assert await two.instances("web") == [WEB_INSTANCES[0]]
            assert server.tree()["/s/web/web-0"].ephemeral_owner == zk.session_id

    with_client(main)


# --- choosing an instance ---


def choose_ids(ask: Callable[[Discovery], Any], *instances: Instance, turns: int = 30) -> list[str]:
    """Return the ids of the instances that a strategy picks in *turns* calls."""
    found: list[str] = []

    async def main(server: Server, zk: Client) -> None:
        async with Discovery(zk, "/s") as discovery:
            for instance in instances or WEB_INSTANCES:
                await discovery.register(instance)
            await asyncio.sleep(1)
            for _ in range(turns):
                found.append((await ask(discovery)).id)  # noqa: PERF401

    with_client(main)
    return found


def test_round_robin_picks_each_instance_in_turn() -> None:
    assert choose_ids(lambda d: d.pick("web"), turns=6) == ["web-0", "web-1", "web-2"] * 2


def test_random_picks_every_instance() -> None:
    assert set(Counter(choose_ids(lambda d: d.pick("web", "random")))) == {"web-0", "web-1", "web-2"}


def test_least_loaded_strategy_picks_instance_with_smallest_load() -> None:
    loads = [Instance("web", f"w-{n}", payload={"load": load}) for n, load in enumerate((3, 0.5, 2))]
    assert set(choose_ids(lambda d: d.pick("web", "least_loaded"), *loads, Instance("web", "w-9"))) == {"w-1"}


def test_sticky_strategy_picks_same_instance_every_time() -> None:
    assert len(set(choose_ids(lambda d: d.pick("web", "sticky")))) == 1


def test_function_chooses_instance() -> None:
    assert set(choose_ids(lambda d: d.pick("web", lambda found: found[-1]))) == {"web-2"}


def test_keys_keep_their_instances_when_other_instance_leaves() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Discovery(zk, "/s") as discovery:
            for instance in WEB_INSTANCES:
                await discovery.register(instance)
            await asyncio.sleep(1)
            before = {key: (await discovery.pick("web", "sticky", key=str(key))).id for key in range(60)}
            await discovery.unregister(WEB_INSTANCES[2])
            await asyncio.sleep(1)
            after = {key: (await discovery.pick("web", "sticky", key=str(key))).id for key in range(60)}
            assert set(before.values()) == {"web-0", "web-1", "web-2"}
            assert all(after[key] == before[key] for key in before if before[key] != "web-2")

    with_client(main)


def test_sticky_choice_changes_when_chosen_instance_leaves() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Discovery(zk, "/s") as discovery:
            for instance in WEB_INSTANCES:
                await discovery.register(instance)
            await asyncio.sleep(1)
            first = await discovery.pick("web", "sticky")
            await discovery.unregister(first)
            await asyncio.sleep(1)
            second = await discovery.pick("web", "sticky")
            assert second.id != first.id
            assert await discovery.pick("web", "sticky") == second

    with_client(main)


def test_pick_raises_without_instance_or_with_unknown_strategy() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Discovery(zk, "/s") as discovery:
            with pytest.raises(LookupError, match="no instance of 'web' is registered at "):
                await discovery.pick("web")
            with pytest.raises(ValueError, match="strategy must be one of"):
                await discovery.pick("web", "best")

    with_client(main)


# --- faults ---


def test_discovery_works_despite_lost_replies() -> None:
    async def main(server: Server, zk: Client) -> None:
        with server.fault(lose_reply(), probability=0.3, times=10, strict=True):
            async with Discovery(zk, "/s") as discovery:
                await discovery.register(WEB_INSTANCES[0])
                await eventually(lambda: "/s/web/web-0" in server.tree())
                await discovery.instances("web")
                await asyncio.sleep(5)
                assert await discovery.instances("web") == [WEB_INSTANCES[0]]
        await asyncio.sleep(5)
        assert not leftovers(server, zk)

    with_client(main)


def test_cancelled_discovery_block_cleans_up() -> None:
    async def use(zk: Client) -> None:
        async with Discovery(zk, "/s") as discovery:
            await discovery.register(WEB_INSTANCES[0])
            await discovery.pick("web", "random")
            await discovery.unregister(WEB_INSTANCES[0])

    cancel_everywhere(use)
