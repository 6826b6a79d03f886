"""Subtrees in the console over HTTP: order of children, counts, export, and deletion."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Final

import pytest
from support.calls import connect_peer, engine_with_settings
from support.console import BEARER, STRETCH_S, Console, create_together, longest_stretch
from support.effort import effort

from zoolet.__main__ import main
from zoolet.client import Client
from zoolet.console.remote_source import RemoteSource
from zoolet.console.source import MAX_SUBTREE
from zoolet.testing import Server, Znode

LOCK_NODE: Final = "9c7e980a02c6499346ac9bf4e550501a__lock__"
THOUSANDS_OF_NODES: Final = effort(15, 50)
"""Size of a large folder, in thousands of nodes."""


def console_with_sizes() -> Console:
    """Return the console of a server with children of different sizes and times."""
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/s", b"")
    for name, size in (("b", 5), ("a", 9), ("c", 1)):
        console.engine.set_time(console.engine.now + 1000, console.engine.monotonic_ms + 1000)
        peer.create(f"/s/{name}", b"x" * size)
    return console


@pytest.mark.parametrize(("sort", "names"), [("name", "abc"), ("time", "cab"), ("size", "abc")])
async def test_children_are_sorted_by_requested_order(sort: str, names: str) -> None:
    answer = await console_with_sizes().facts(f"children?path=/s&sort={sort}&name=c")

    assert [row[0] for row in answer["rows"]] == list(names)
    assert answer["at"] == names.index("c")
    assert (await console_with_sizes().refusal("/console/api/children?path=/s&sort=acl")).status == 400


async def test_order_of_children_by_size_is_cached_until_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/s", b"")
    create_together(peer, [f"/s/{number:04}" for number in range(1_001)])
    for sort in ("size", "time", "name"):
        assert (await console.facts(f"children?path=/s&sort={sort}&limit=1"))["rows"][0][0] == "0000"
    await console.facts("children?path=/s&sort=size&limit=1")
    peer.set("/s/0500", b"x")
    kept = await console.facts("children?path=/s&sort=size&limit=1")
    monkeypatch.setattr("zoolet.console.engine_source.perf_counter", lambda: 1e12)

    assert kept["rows"][0][0] == "0000"
    assert (await console.facts("children?path=/s&sort=size&limit=1"))["rows"][0][0] == "0500"


@pytest.mark.slow
async def test_large_subtree_is_processed_in_slices() -> None:
    console = Console(engine_with_settings(max_frame=4 << 20))
    peer = connect_peer(console.engine)
    peer.create("/s", b"")
    for batch in range(THOUSANDS_OF_NODES):
        create_together(peer, [f"/s/{batch:02}{number:04}" for number in range(1_000)])

    for query in ("children?path=/s&sort=time&limit=5", "subtree?path=/s", "export?path=/s"):
        assert await longest_stretch(lambda query=query: console.ask(f"/console/api/{query}", **BEARER)) < STRETCH_S  # type: ignore[misc]
        console.source._sorted = None

    async def delete() -> None:
        if console.engine.tree.get("/s") is not None:
            await console.change("delete_all", path="/s", nodes=THOUSANDS_OF_NODES * 1_000 + 1)

    deleting, longest = asyncio.ensure_future(delete()), 0
    while not deleting.done():
        before = console.engine.zxid
        await asyncio.sleep(0)
        longest = max(longest, console.engine.zxid - before)
    assert await deleting is None
    assert console.engine.tree.get("/s") is None
    assert 0 < longest < 2_000  # the largest number of nodes deleted in one slice


async def test_subtree_is_counted_with_held_locks() -> None:
    console = console_with_sizes()
    peer = connect_peer(console.engine)
    peer.create("/s/a/lock", b"")
    peer.create(f"/s/a/lock/{LOCK_NODE}", b"me", 3)
    peer.create("/sibling", b"")
    peer.create(f"/sibling/{LOCK_NODE}", b"me", 3)

    counted = await console.facts("subtree?path=/s")

    assert counted == {"nodes": 6, "more": False, "bytes": 17, "ephemerals": 1, "held": 1, "locks": ["/s/a/lock"]}


async def test_subtree_is_deleted_and_watches_fire() -> None:
    console = console_with_sizes()
    peer = connect_peer(console.engine)
    peer.create("/s/a/deep", b"")
    peer.create("/other", b"")
    before = console.engine.zxid

    answer = await console.change("delete_all", path="/s", nodes=5)

    assert (answer["deleted"], console.engine.zxid) == (5, before + 5)
    assert console.engine.tree.get("/s") is None
    assert console.engine.tree.get("/other") is not None
    entries = (await console.facts("history?path=/s&below=1&kind=delete"))["entries"]
    assert {entry["why"] for entry in entries} == {"in the console"}


@pytest.mark.parametrize(("path", "nodes"), [("/s", 0), ("/s", "5"), ("/s", True), ("/s", MAX_SUBTREE + 1), ("/", 1)])
async def test_invalid_subtree_deletion_is_refused(path: str, nodes: object) -> None:
    body = json.dumps({"path": path, "nodes": nodes}).encode()
    console = console_with_sizes()

    assert (await console.refusal("/console/api/change/delete_all", "POST", body, **BEARER)).status == 400
    assert console.engine.tree.get("/s/a") is not None


async def test_deletion_stops_if_subtree_has_grown() -> None:
    console = console_with_sizes()
    body = json.dumps({"path": "/s", "nodes": 2}).encode()

    error = await console.refusal("/console/api/change/delete_all", "POST", body, **BEARER)

    assert (error.status, "stopped" in str(error)) == (409, True)
    assert console.engine.tree.get("/s") is not None


async def test_subtree_export_requires_token_and_has_limited_size() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/s", b"")
    for number in range(9):
        peer.create(f"/s/{number}", bytes(1_000_000))

    assert (await console.refusal("/console/api/export?path=/s")).status == 401
    assert "zoolet dump" in str(await console.refusal("/console/api/export?path=/s", **BEARER))


async def test_load_command_accepts_export_of_console(tmp_path: Path) -> None:
    console = console_with_sizes()
    peer = connect_peer(console.engine)
    peer.create("/s/bytes", b"\xff")
    peer.create("/s/mine", b"", 1)
    peer.delete("/s/b")
    body = (await console.ask("/console/api/export?path=/s", **BEARER)).body
    file = tmp_path / "s.json"
    file.write_bytes(body)
    nodes = json.loads(body)

    assert list(nodes) == ["/s", "/s/a", "/s/c", "/s/bytes"]
    assert nodes["/s"] == {"$data": "", "$children_created": 2}
    async with Server() as server:
        assert await asyncio.to_thread(main, ["load", server.hosts, str(file)]) == 0
        assert server.tree("/s/bytes")["/s/bytes"].data == b"\xff"


async def test_full_export_includes_root_only_if_changed() -> None:
    console = console_with_sizes()
    before = json.loads((await console.ask("/console/api/export?path=/", **BEARER)).body)
    connect_peer(console.engine).set("/", b"of the root")
    after = json.loads((await console.ask("/console/api/export?path=/", **BEARER)).body)

    assert "/" not in before
    assert after == {"/": "of the root", **before}


async def test_remote_source_supports_subtree_operations() -> None:
    async with Server() as server, Client(server.hosts) as zk:
        await zk.create("/s", b"")
        for name, size in (("b", 5), ("a", 9), ("c", 1)):
            await zk.create(f"/s/{name}", b"x" * size)
        await zk.create(f"/s/a/{LOCK_NODE}", b"me", ephemeral=True, sequential=True)
        source = RemoteSource(zk, (), None, 1.0)
        for sort, names in (("size", "abc"), ("name", "abc")):
            answer = await source.children("/s", 0, 10, sort, "b")
            assert ([row[0] for row in answer["rows"]], answer["at"]) == (list(names), 1)
        counted = await source.subtree("/s", trusted=True)
        assert (counted["nodes"], counted["bytes"], counted["ephemerals"], counted["locks"]) == (5, 17, 1, ["/s/a"])
        exported = {path: node.data async for path, node in source.export("/s")}
        assert exported == {"/s": b"", "/s/a": b"x" * 9, "/s/b": b"x" * 5, "/s/c": b"x"}
        await source.change("delete_all", {"path": "/s", "version": -1, "nodes": 5})
        assert await zk.exists("/s") is None


@pytest.mark.parametrize("used", [None, "count=1,bytes=0"])
async def test_local_and_remote_consoles_show_same_quota(used: str | None) -> None:
    nodes = {"/q": b"", "/zookeeper/quota/q/zookeeper_limits": b"count=3,bytes=-1"}
    if used is not None:
        nodes["/zookeeper/quota/q/zookeeper_stats"] = used.encode()
    async with Server() as server, Client(server.hosts) as zk:
        server.populate(nodes)
        of_any = await RemoteSource(zk, (), None, 1.0).node("/q", trusted=True, whole=False)
        of_own = await Console(server.daemon.engine).facts("node?path=/q")

    assert of_any["quota"] == of_own["quota"] == {"limits": "count=3,bytes=-1", "used": used or ""}


@pytest.mark.parametrize("creates", [2, 2**30 + 5, 2**31 - 1])
async def test_remote_source_shows_next_sequence_number(creates: int) -> None:
    async with Server() as server, Client(server.hosts) as zk:
        server.populate({"/a": Znode(children_created=creates)})
        node = await RemoteSource(zk, (), None, 1.0).node("/a", trusted=True, whole=False)

        assert await zk.create("/a/n", sequential=True) == f"/a/n{node['stat']['next_sequence']}"
