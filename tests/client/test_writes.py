"""Writes: create with all kinds of nodes, set, delete and update, with their results and errors."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from support.simulation import Connect

from zoolet.client import BadVersionError, Client, NodeExistsError, NoNodeError, NotEmptyError, serializers
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.errors import NoChildrenForEphemeralsError
from zoolet.testing import Server

# --- creating ---


async def test_create_returns_path(zk: Client) -> None:
    assert await zk.create("/a", b"value") == "/a"


async def test_node_created_without_value_is_empty(zk: Client) -> None:
    await zk.create("/a")

    assert (await zk.get("/a"))[0] == b""


async def test_create_and_stat_returns_both(zk: Client) -> None:
    path, stat = await zk.create_and_stat("/a", b"value")

    assert path == "/a"
    assert stat == await zk.exists("/a")


async def test_sequential_create_returns_numbered_path(zk: Client) -> None:
    first = await zk.create("/job-", sequential=True)
    second = await zk.create("/job-", sequential=True)

    assert first == "/job-0000000000"
    assert second == "/job-0000000001"


async def test_sequence_number_can_be_whole_name(zk: Client) -> None:
    await zk.create("/queue")

    assert await zk.create("/queue/", sequential=True) == "/queue/0000000000"
    assert (await zk.create_and_stat("/queue/", sequential=True))[0] == "/queue/0000000001"


async def test_ephemeral_node_belongs_to_session(zk: Client) -> None:
    await zk.create("/here", ephemeral=True)

    stat = await zk.exists("/here")

    assert stat is not None
    assert stat.ephemeralOwner == zk.session_id


async def test_ephemeral_node_is_deleted_with_session(hosts: str, zk: Client, connect: Connect) -> None:
    owner = await connect(hosts)
    await owner.create("/here", ephemeral=True)
    assert await zk.exists("/here") is not None

    await owner.aclose()

    assert await zk.exists("/here") is None


async def test_ephemerals_lists_own_nodes_with_prefix(hosts: str, zk: Client, connect: Connect) -> None:
    other = await connect(hosts)
    for path in ("/a/x", "/a/y", "/b"):
        await zk.create(path, ephemeral=True, parents=True)
    await other.create("/a/z", ephemeral=True)

    assert sorted(await zk.ephemerals()) == ["/a/x", "/a/y", "/b"]
    assert sorted(await zk.ephemerals("/a")) == ["/a/x", "/a/y"]
    assert await other.ephemerals() == ["/a/z"]


async def test_ephemeral_node_has_no_children(zk: Client) -> None:
    await zk.create("/here", ephemeral=True)

    with pytest.raises(NoChildrenForEphemeralsError) as caught:
        await zk.create("/here/below")

    assert caught.value.path == "/here/below"


async def test_container_is_created(zk: Client) -> None:
    assert await zk.create("/box", b"v", container=True) == "/box"
    assert (await zk.get("/box"))[0] == b"v"


async def test_ttl_node_may_be_sequential(zk: Client) -> None:
    assert await zk.create("/short", ttl=60.0) == "/short"
    assert await zk.create("/short-", ttl=60.0, sequential=True) == "/short-0000000001"


async def test_ttl_is_in_seconds(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)

    await zk.create("/short", ttl=1.5)

    assert server.tree()["/short"].ttl == 1.5


async def test_missing_parents_are_created_only_on_request(zk: Client) -> None:
    with pytest.raises(NoNodeError):
        await zk.create("/a/b/c")
    assert await zk.create("/a/b/c", b"v", parents=True) == "/a/b/c"
    assert await zk.create("/a/b/d", b"v", parents=True) == "/a/b/d"
    assert (await zk.get("/a/b"))[0] == b""


async def test_protected_node_has_unique_name(zk: Client) -> None:
    first = await zk.create("/locks/lock-", b"v", ephemeral=True, sequential=True, protected=True, parents=True)
    second = await zk.create("/locks/lock-", b"v", ephemeral=True, sequential=True, protected=True)

    for path, number in ((first, "0000000000"), (second, "0000000001")):
        name = path.removeprefix("/locks/")
        assert name.startswith("_c_")
        assert name[39:] == f"-lock-{number}"
    assert len(await zk.children("/locks")) == 2


async def test_protected_node_without_parent_is_refused(zk: Client) -> None:
    with pytest.raises(NoNodeError):
        await zk.create("/nowhere/lock-", protected=True)


async def test_ensure_path_creates_only_missing_nodes(zk: Client) -> None:
    await zk.create("/a", b"mine")

    await zk.ensure_path("/a/b/c")
    await zk.ensure_path("/a/b/c")

    assert (await zk.get("/a"))[0] == b"mine"
    assert await zk.exists("/a/b/c") is not None


async def test_concurrent_ensure_path_calls_succeed(zk: Client) -> None:
    await asyncio.gather(*[zk.ensure_path("/a/b/c/d") for _ in range(10)])

    assert await zk.children("/a/b/c") == ["d"]


# --- changing ---


async def test_set_replaces_value_and_returns_stat(zk: Client) -> None:
    await zk.create("/a", b"old")

    stat = await zk.set("/a", b"new", version=0)

    assert stat.version == 1
    assert await zk.get("/a") == (b"new", stat)


async def test_write_with_wrong_version_is_refused(zk: Client) -> None:
    await zk.create("/a")
    await zk.set("/a", b"1")

    for write in (zk.set("/a", b"2", version=0), zk.delete("/a", version=0), zk.set_acl("/a", OPEN_ACL_UNSAFE, 7)):
        with pytest.raises(BadVersionError) as caught:
            await write
        assert caught.value.path == "/a"


async def test_delete_removes_node(zk: Client) -> None:
    await zk.create("/a")

    assert await zk.delete("/a", version=0) is None

    assert await zk.exists("/a") is None


async def test_node_with_children_requires_recursive_delete(zk: Client) -> None:
    await zk.create("/a/b/c", parents=True)
    await zk.create("/a/d")

    with pytest.raises(NotEmptyError) as caught:
        await zk.delete("/a")
    await zk.delete("/a", recursive=True)

    assert caught.value.path == "/a"
    assert await zk.exists("/a") is None


async def test_deep_tree_is_deleted(zk: Client) -> None:
    await zk.ensure_path("/d" * 120)

    await zk.delete("/d", recursive=True)

    assert await zk.children("/") == []


async def test_recursive_delete_removes_concurrent_creates(hosts: str, connect: Connect) -> None:
    zk, other = await connect(hosts), await connect(hosts)
    await zk.create("/a/b", parents=True)
    deleting = asyncio.create_task(zk.delete("/a", recursive=True))

    async def disturb() -> None:
        for number in range(50):
            await other.create(f"/a/{number}")

    with suppress(NoNodeError):  # the delete may run after all creates
        await disturb()
    await deleting

    assert await zk.exists("/a") is None


# --- updating ---


async def test_update_returns_new_value_and_stat(zk: Client) -> None:
    await zk.create("/n", b"1")

    value, stat = await zk.update("/n", lambda old: old + b"!")

    assert value == b"1!"
    assert await zk.get("/n") == (b"1!", stat)


async def test_update_awaits_async_function(zk: Client) -> None:
    await zk.create("/n", b"1")

    async def longer(old: bytes) -> bytes:
        return old + (await zk.get("/n"))[0]

    assert (await zk.update("/n", longer))[0] == b"11"


async def test_no_update_is_lost_under_contention(hosts: str, connect: Connect) -> None:
    clients = [await connect(hosts, serializer=serializers.json) for _ in range(3)]
    await clients[0].create("/n", 0)

    async def add(client: Client) -> None:
        for _ in range(10):
            await client.update("/n", lambda n: n + 1)

    await asyncio.gather(*[add(client) for client in clients])

    assert (await clients[0].get("/n"))[0] == 30


async def test_update_with_failing_function_writes_nothing(zk: Client) -> None:
    await zk.create("/n", b"1")

    def fail(old: bytes) -> bytes:
        raise KeyError("no")

    with pytest.raises(KeyError):
        await zk.update("/n", fail)
    assert (await zk.get("/n"))[1].version == 0


async def test_update_of_missing_node_raises(zk: Client) -> None:
    with pytest.raises(NoNodeError):
        await zk.update("/n", lambda old: old)


# --- creating ---


async def test_existing_node_is_not_created_again(zk: Client) -> None:
    await zk.create("/a", b"first")

    for again in (zk.create("/a"), zk.create_and_stat("/a"), zk.create("/a", parents=True)):
        with pytest.raises(NodeExistsError) as caught:
            await again
        assert caught.value.path == "/a"
    assert (await zk.get("/a"))[0] == b"first"


@pytest.mark.parametrize("path", ["/x/y", "/x/y/z", "/top/"])
async def test_create_below_missing_node_names_parent(embedded: Client, path: str) -> None:
    parent = path.rpartition("/")[0]
    creating = embedded.create(path, sequential=path.endswith("/"))
    error = rf"^{path}: parent {parent} does not exist; create it with parents=True or ensure_path\(\)$"

    with pytest.raises(NoNodeError, match=error) as caught:
        await creating
    assert caught.value.path == path


async def test_transaction_below_missing_node_names_parent(embedded: Client) -> None:
    transaction = embedded.transaction()
    transaction.create("/x")
    transaction.create("/y/z")

    with pytest.raises(NoNodeError, match=r"^/y/z: parent /y does not exist"):
        await transaction.commit()
