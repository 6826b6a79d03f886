"""Caches converge to the tree: a node, its children by name, or everything below it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.cancellation import cancel_everywhere
from support.leftovers import leftovers
from support.simulation import eventually, make_client, with_client

from zoolet.client import AuthFailedError, Client, ClosedError, serializers
from zoolet.client.recipes import ChildrenCache, Config, NodeCache, TreeCache
from zoolet.testing import Server, delay, drop_request, hold, lose_reply

CACHE_CLASSES = [NodeCache, ChildrenCache, TreeCache]


# --- every cache ---


@pytest.mark.parametrize("kind", CACHE_CLASSES)
def test_cache_of_closed_client_raises(kind: Any) -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.aclose()
        with pytest.raises(ClosedError):
            async with kind(zk, "/a"):
                pass

    with_client(main)


@pytest.mark.parametrize("kind", CACHE_CLASSES)
def test_cancelled_cache_entry_cleans_up(kind: Any) -> None:
    async def enter(zk: Client) -> None:
        async with kind(zk, "/a"):
            await asyncio.sleep(1)

    cancel_everywhere(enter, nodes={"/a": {"b": "1", "c": {"d": "2"}}})


@pytest.mark.parametrize("how", ["drop", "expire"])
def test_cache_finds_changes_made_while_disconnected(how: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other:
            server.populate({"/a": {"gone": "1", "changed": "1", "again": "1", "same": "1"}})
            async with (
                NodeCache(zk, "/a/changed") as node,
                TreeCache(zk, "/a") as tree,
                ChildrenCache(zk, "/a") as names,
            ):
                server.pause(zk)
                await other.delete("/a/gone")
                await other.set("/a/changed", b"2")
                await other.delete("/a/again")
                await other.create("/a/again", b"2")
                await other.create("/a/new", b"2")
                await other.create("/a/new/deep", b"3")
                await asyncio.sleep(1)
                if how == "expire":
                    server.expire(zk)
                else:
                    server.resume(zk)
                    server.drop(zk)
                await asyncio.sleep(20)
                assert node.value == b"2"
                known = {path: cached.value for path, cached in tree.nodes.items()}
                assert known == {path: view.data for path, view in server.tree("/a").items()}
                assert names.values == {"changed": b"2", "again": b"2", "new": b"2", "same": b"1"}
            assert not leftovers(server, zk)

    with_client(main, timeout=30.0)


@pytest.mark.parametrize("kind", [NodeCache, TreeCache])
def test_cache_continues_after_unreadable_value(kind: Any) -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.create("/a", b"1")
        async with kind(zk.with_serializer(serializers.json), "/a") as cache:
            await zk.set("/a", b"{")
            await asyncio.sleep(1)
            await zk.set("/a", b"3")
            await asyncio.sleep(1)
            assert (cache.value if kind is NodeCache else cache.nodes["/a"].value) == 3

    with_client(main)


@pytest.mark.parametrize("action", [lose_reply, drop_request])
@pytest.mark.parametrize("kind", CACHE_CLASSES)
def test_cache_converges_despite_lost_messages(kind: Any, action: Any) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other:
            await other.create("/a", b"1")
            with server.fault(action(), client=zk, probability=0.3, times=10, strict=True):
                async with kind(zk, "/a") as cache:
                    for number in range(20):
                        await other.set("/a", b"%d" % number)
                        await asyncio.sleep(0.5)
                    await asyncio.sleep(10)
                    assert (cache.value if kind is NodeCache else cache.nodes["/a"].value) == b"19"
            await asyncio.sleep(10)
            assert not leftovers(server, zk)

    with_client(main)


# --- NodeCache ---


def test_node_cache_follows_creation_and_deletion() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other, NodeCache(zk, "/a") as cache:
            assert (cache.value, cache.stat) == (None, None)
            await other.create("/a", b"1")
            await eventually(lambda: cache.value == b"1")
            await other.set("/a", b"2")
            await eventually(lambda: cache.value == b"2")
            assert cache.stat is not None
            assert cache.stat.version == 1
            await other.delete("/a")
            await eventually(lambda: cache.stat is None)
            assert cache.value is None
        assert not leftovers(server, zk)

    with_client(main)


def test_node_cache_delivers_changes_in_order() -> None:
    async def main(server: Server, zk: Client) -> None:
        seen: list[Any] = []
        await zk.create("/a", b"0")
        async with NodeCache(zk, "/a") as cache:

            async def follow() -> None:
                async for value in cache.changes():
                    seen.append(value)  # noqa: PERF401

            job = asyncio.ensure_future(follow())
            for number in range(1, 5):
                await asyncio.sleep(1)
                await zk.set("/a", b"%d" % number)
            await asyncio.sleep(1)
            job.cancel()
        assert seen == [b"0", b"1", b"2", b"3", b"4"]

    with_client(main)


# --- ChildrenCache ---


def test_children_cache_maps_child_names_to_values() -> None:
    async def main(server: Server, zk: Client) -> None:
        server.populate({"/a": {"x": "1", "y": {"deep": "2"}}})
        async with ChildrenCache(zk, "/a") as cache:
            assert cache.values == {"x": b"1", "y": b""}
            await zk.delete("/a/x")
            await eventually(lambda: set(cache.values) == {"y"})

    with_client(main)


def test_undecodable_value_is_omitted_until_readable() -> None:
    async def main(server: Server, zk: Client) -> None:
        server.populate({"/a": {"good": "1", "bad": "{"}})
        async with ChildrenCache(zk.with_serializer(serializers.json), "/a") as cache:
            assert cache.values == {"good": 1}
            await zk.set("/a/bad", b"2")
            await eventually(lambda: cache.values == {"good": 1, "bad": 2})

    with_client(main)


# --- TreeCache ---


def values_by_path(cache: TreeCache) -> dict[str, Any]:
    """Return the values of a cache by path."""
    return {path: cached.value for path, cached in cache.nodes.items()}


def test_tree_cache_follows_changes() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other, TreeCache(zk, "/a") as cache:
            assert values_by_path(cache) == {}
            await other.create("/a/b/c", b"1", parents=True)
            await eventually(lambda: values_by_path(cache) == {"/a": b"", "/a/b": b"", "/a/b/c": b"1"})
            await other.set("/a/b", b"2")
            await other.create("/ab", b"outside")
            await eventually(lambda: values_by_path(cache) == {"/a": b"", "/a/b": b"2", "/a/b/c": b"1"})
            await other.delete("/a", recursive=True)
            await eventually(lambda: values_by_path(cache) == {})
        assert not leftovers(server, zk)

    with_client(main)


def test_tree_cache_can_follow_root_of_server() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with TreeCache(zk, "/") as cache:
            await zk.create("/a", b"1")
            await eventually(lambda: "/a" in cache.nodes)
            await zk.delete("/a")
            await eventually(lambda: "/a" not in cache.nodes)

    with_client(main)


def test_cache_paths_exclude_chroot() -> None:
    async def main(server: Server, zk: Client) -> None:
        server.populate({"/root/a/b": "1"})
        inside = Client(server.hosts + "/root")
        async with inside, TreeCache(inside, "/a") as cache:
            await inside.create("/a/c", b"2")
            await eventually(lambda: set(cache.nodes) == {"/a", "/a/b", "/a/c"})

    with_client(main)


def test_cached_values_are_read_only() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with TreeCache(zk, "/a") as cache:
            with pytest.raises(TypeError):
                cache.nodes["/a"] = None  # type: ignore[index]

    with_client(main)


def test_cache_converges_after_event_overflow() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other, TreeCache(zk, "/a", limit=3) as cache:
            await other.create("/a")
            with server.fault(hold(), "getData", client=zk) as held:
                for number in range(20):
                    await other.create(f"/a/{number}", b"x")
                await other.delete("/a/3")
                held.release()
            await eventually(lambda: set(cache.nodes) == set(server.tree("/a")))

    with_client(main)


def test_tree_cache_rereads_tree_after_session_loss() -> None:
    async def main(server: Server, zk: Client) -> None:
        server.populate({"/a": {str(number): "x" for number in range(30)}})
        for op in ("getChildren", "getChildren2", "getData", "addWatch"):
            with server.fault(hold(), op, client=zk, nth=1) as held:
                cache = TreeCache(zk, "/a")
                entering = asyncio.ensure_future(cache.__aenter__())
                await eventually(lambda held=held: held.hits)
                server.expire(zk)
                await asyncio.wait_for(entering, 30)
            assert len(cache.nodes) == 31
            await cache.__aexit__(None, None, None)
        await asyncio.sleep(1)
        assert not leftovers(server, zk)

    with_client(main)


# --- caches of closed or failed clients ---


def _read_cache(cache: Any) -> Any:
    return cache.value if isinstance(cache, NodeCache) else cache.nodes


@pytest.mark.parametrize("kind", [*CACHE_CLASSES, Config])
def test_reading_entered_cache_of_closed_client_raises(kind: Any) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with kind(zk, "/a") as cache:
            _read_cache(cache)
            await zk.aclose()
            await asyncio.sleep(0)

            with pytest.raises(ClosedError):
                _read_cache(cache)

    with_client(main)


@pytest.mark.parametrize("kind", CACHE_CLASSES)
def test_reading_cache_of_failed_client_raises_error_of_client(kind: Any) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with kind(zk, "/a") as cache:
            zk._core.session.close("rejected", AuthFailedError(detail="rejected"))
            await asyncio.sleep(0.1)

            with pytest.raises(AuthFailedError):
                _read_cache(cache)

    with_client(main)


# --- bursts of changes ---


def test_burst_of_changes_does_not_delay_other_nodes() -> None:
    async def main(server: Server, zk: Client) -> None:
        server.populate({"/a": {"busy": "0", "quiet": "0"}})
        async with TreeCache(zk, "/a") as cache:
            with server.fault(delay(0.005), "getData"):
                for number in range(1000):
                    server.set("/a/busy", b"%d" % number)
                server.set("/a/quiet", b"1")
                await eventually(lambda: cache.nodes["/a/quiet"].value == b"1", 0.1)
            assert cache.nodes["/a/busy"].value == b"999"

    with_client(main)


def test_tree_cache_has_latest_state_after_burst_with_deletions() -> None:
    async def main(server: Server, zk: Client) -> None:
        server.populate({"/a": {"gone": "0", "again": "0"}})
        async with TreeCache(zk, "/a") as cache:
            server.set("/a/gone", b"1")
            server.delete("/a/gone")
            server.delete("/a/again")
            server.create("/a/again", b"1")
            await eventually(lambda: set(cache.nodes) == {"/a", "/a/again"})

            assert cache.nodes["/a/again"].value == b"1"

    with_client(main)
