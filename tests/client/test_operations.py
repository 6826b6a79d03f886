"""Every operation against both servers: what it gives, what it refuses, and that a chroot shows in no reply."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from zoolet.client import (
    BadVersionError,
    Client,
    ConnectionLossError,
    EventType,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Stat,
    ZooKeeperError,
    serializers,
)
from zoolet.client.serializers import Serializer, UndecodableError
from zoolet.protocol.acl import ACL, ANYONE, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE
from zoolet.protocol.enums import MAX_FRAME, Perm, WatcherType
from zoolet.protocol.errors import (
    InvalidACLError,
    NoChildrenForEphemeralsError,
    NoWatcherError,
    RuntimeInconsistencyError,
)
from zoolet.server import Server

Connect = Callable[..., Awaitable[Client]]
Do = Callable[[Client], Any]


def root_of(hosts: str) -> tuple[str, str]:
    """Take a connect string apart: the address, and the chroot."""
    address, slash, chroot = hosts.partition("/")
    return address, slash + chroot


# --- reading ---


async def test_get_gives_the_value_and_the_stat(zk: Client) -> None:
    await zk.create("/a", b"value")

    value, stat = await zk.get("/a")

    assert value == b"value"
    assert isinstance(stat, Stat)
    assert (stat.version, stat.dataLength, stat.numChildren, stat.ephemeralOwner) == (0, 5, 0, 0)
    assert stat.czxid == stat.mzxid == stat.pzxid > 0


async def test_exists_gives_the_stat_or_none(zk: Client) -> None:
    await zk.create("/a", b"value")

    there, missing = await zk.exists("/a"), await zk.exists("/b")

    assert there == (await zk.get("/a"))[1]
    assert missing is None


async def test_children_gives_names_not_paths(zk: Client) -> None:
    await zk.create("/a/x", parents=True)
    await zk.create("/a/y")

    assert sorted(await zk.children("/a")) == ["x", "y"]
    assert await zk.children("/a/x") == []


async def test_children_and_stat_agree(zk: Client) -> None:
    await zk.create("/a/x", parents=True)

    names, stat = await zk.children_and_stat("/a")

    assert names == ["x"]
    assert (stat.numChildren, stat.cversion) == (1, 1)


async def test_count_below_counts_at_any_depth(zk: Client) -> None:
    await zk.create("/a/b/c", parents=True)
    await zk.create("/ab")

    assert await zk.count_below("/a") == 2
    assert await zk.count_below("/") == 4


async def test_sync_returns_nothing_for_nodes_there_and_missing(zk: Client) -> None:
    assert await zk.sync() is None
    assert await zk.sync("/nowhere") is None


async def test_who_am_i_names_the_address_and_every_credential(zk: Client) -> None:
    await zk.add_auth("digest", b"bob:secret")

    found = {(one.scheme, one.user) for one in await zk.who_am_i()}

    assert ("ip", "127.0.0.1") in found
    assert ("digest", "bob") in found


async def test_several_reads_go_in_one_request_and_each_has_its_own_outcome(zk: Client) -> None:
    await zk.create("/a", b"1")
    await zk.create("/a/x")

    (value, stat), names, missing = await zk.multi_read(("get", "/a"), ("children", "/a"), ("get", "/nowhere"))

    assert (value, names) == (b"1", ["x"])
    assert stat == await zk.exists("/a")
    assert isinstance(missing, NoNodeError)
    assert missing.path == "/nowhere"


async def test_get_config_reads_the_ensemble_s_configuration_whatever_the_chroot(zk: Client) -> None:
    value, stat = await zk.get_config()

    assert isinstance(value, bytes)
    assert isinstance(stat, Stat)


async def test_a_server_that_stands_alone_refuses_to_be_reconfigured(zk: Client) -> None:
    with pytest.raises(ZooKeeperError):
        await zk.reconfig(joining="server.5=127.0.0.1:1:2;3")


async def test_the_highest_zxid_grows_with_what_is_seen(zk: Client) -> None:
    stat = (await zk.create_and_stat("/a"))[1]

    assert zk.last_zxid == stat.czxid


# --- creating ---


async def test_create_gives_the_path(zk: Client) -> None:
    assert await zk.create("/a", b"value") == "/a"


async def test_a_node_without_a_value_is_empty(zk: Client) -> None:
    await zk.create("/a")

    assert (await zk.get("/a"))[0] == b""


async def test_create_and_stat_gives_both(zk: Client) -> None:
    path, stat = await zk.create_and_stat("/a", b"value")

    assert path == "/a"
    assert stat == await zk.exists("/a")


async def test_sequential_nodes_are_numbered_and_their_paths_told(zk: Client) -> None:
    first = await zk.create("/job-", sequential=True)
    second = await zk.create("/job-", sequential=True)

    assert first == "/job-0000000000"
    assert second == "/job-0000000001"


async def test_the_number_can_be_the_whole_name(zk: Client) -> None:
    await zk.create("/queue")

    assert await zk.create("/queue/", sequential=True) == "/queue/0000000000"
    assert (await zk.create_and_stat("/queue/", sequential=True))[0] == "/queue/0000000001"


async def test_an_ephemeral_node_belongs_to_the_session(zk: Client) -> None:
    await zk.create("/here", ephemeral=True)

    stat = await zk.exists("/here")

    assert stat is not None
    assert stat.ephemeralOwner == zk.session_id


async def test_an_ephemeral_node_ends_with_its_session(hosts: str, zk: Client, connect: Connect) -> None:
    owner = await connect(hosts)
    await owner.create("/here", ephemeral=True)
    assert await zk.exists("/here") is not None

    await owner.aclose()

    assert await zk.exists("/here") is None


async def test_ephemerals_lists_this_session_s_nodes_that_start_with_a_prefix(
    hosts: str, zk: Client, connect: Connect
) -> None:
    other = await connect(hosts)
    for path in ("/a/x", "/a/y", "/b"):
        await zk.create(path, ephemeral=True, parents=True)
    await other.create("/a/z", ephemeral=True)

    assert sorted(await zk.ephemerals()) == ["/a/x", "/a/y", "/b"]
    assert sorted(await zk.ephemerals("/a")) == ["/a/x", "/a/y"]
    assert await other.ephemerals() == ["/a/z"]


async def test_an_ephemeral_node_has_no_children(zk: Client) -> None:
    await zk.create("/here", ephemeral=True)

    with pytest.raises(NoChildrenForEphemeralsError) as caught:
        await zk.create("/here/below")

    assert caught.value.path == "/here/below"


async def test_a_container_is_made(zk: Client) -> None:
    assert await zk.create("/box", b"v", container=True) == "/box"
    assert (await zk.get("/box"))[0] == b"v"


async def test_a_node_with_a_ttl_is_made_numbered_or_not(zk: Client) -> None:
    assert await zk.create("/short", ttl=60.0) == "/short"
    assert await zk.create("/short-", ttl=60.0, sequential=True) == "/short-0000000001"


async def test_the_ttl_is_in_seconds(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)

    await zk.create("/short", ttl=1.5)

    assert server.tree()["/short"].ttl == 1.5


async def test_missing_parents_are_made_only_if_asked_for(zk: Client) -> None:
    with pytest.raises(NoNodeError):
        await zk.create("/a/b/c")
    assert await zk.create("/a/b/c", b"v", parents=True) == "/a/b/c"
    assert await zk.create("/a/b/d", b"v", parents=True) == "/a/b/d"
    assert (await zk.get("/a/b"))[0] == b""


async def test_a_protected_node_has_a_name_of_its_own(zk: Client) -> None:
    first = await zk.create("/locks/lock-", b"v", ephemeral=True, sequential=True, protected=True, parents=True)
    second = await zk.create("/locks/lock-", b"v", ephemeral=True, sequential=True, protected=True)

    for path, number in ((first, "0000000000"), (second, "0000000001")):
        name = path.removeprefix("/locks/")
        assert name.startswith("_c_")
        assert name[39:] == f"-lock-{number}"
    assert len(await zk.children("/locks")) == 2


async def test_a_protected_node_without_a_parent_is_refused(zk: Client) -> None:
    with pytest.raises(NoNodeError):
        await zk.create("/nowhere/lock-", protected=True)


async def test_ensure_path_makes_what_is_missing_and_leaves_what_is_there(zk: Client) -> None:
    await zk.create("/a", b"mine")

    await zk.ensure_path("/a/b/c")
    await zk.ensure_path("/a/b/c")

    assert (await zk.get("/a"))[0] == b"mine"
    assert await zk.exists("/a/b/c") is not None


async def test_many_who_ensure_the_same_path_do_not_disturb_each_other(zk: Client) -> None:
    await asyncio.gather(*[zk.ensure_path("/a/b/c/d") for _ in range(10)])

    assert await zk.children("/a/b/c") == ["d"]


# --- changing ---


async def test_set_replaces_the_value_and_gives_the_new_stat(zk: Client) -> None:
    await zk.create("/a", b"old")

    stat = await zk.set("/a", b"new", version=0)

    assert stat.version == 1
    assert await zk.get("/a") == (b"new", stat)


async def test_a_write_with_another_version_is_refused(zk: Client) -> None:
    await zk.create("/a")
    await zk.set("/a", b"1")

    for write in (zk.set("/a", b"2", version=0), zk.delete("/a", version=0), zk.set_acl("/a", OPEN_ACL_UNSAFE, 7)):
        with pytest.raises(BadVersionError) as caught:
            await write
        assert caught.value.path == "/a"


async def test_delete_removes_a_node(zk: Client) -> None:
    await zk.create("/a")

    assert await zk.delete("/a", version=0) is None

    assert await zk.exists("/a") is None


async def test_a_node_with_children_is_removed_only_recursively(zk: Client) -> None:
    await zk.create("/a/b/c", parents=True)
    await zk.create("/a/d")

    with pytest.raises(NotEmptyError) as caught:
        await zk.delete("/a")
    await zk.delete("/a", recursive=True)

    assert caught.value.path == "/a"
    assert await zk.exists("/a") is None


async def test_a_deep_tree_is_removed(zk: Client) -> None:
    await zk.ensure_path("/d" * 120)

    await zk.delete("/d", recursive=True)

    assert await zk.children("/") == []


async def test_what_others_make_during_a_recursive_delete_is_removed_too(hosts: str, connect: Connect) -> None:
    zk, other = await connect(hosts), await connect(hosts)
    await zk.create("/a/b", parents=True)
    deleting = asyncio.create_task(zk.delete("/a", recursive=True))

    async def disturb() -> None:
        for number in range(50):
            await other.create(f"/a/{number}")

    with suppress(NoNodeError):  # the delete may come after all of it
        await disturb()
    await deleting

    assert await zk.exists("/a") is None


async def test_an_acl_is_set_and_read(zk: Client) -> None:
    await zk.create("/a")
    acl = (ACL(Perm.READ | Perm.ADMIN, ANYONE),)

    stat = await zk.set_acl("/a", acl, version=0)

    assert stat.aversion == 1
    assert await zk.get_acl("/a") == (acl, stat)


async def test_a_new_node_is_open_to_everybody_unless_said_otherwise(zk: Client) -> None:
    await zk.create("/open")
    await zk.create("/closed", acl=READ_ACL_UNSAFE)

    assert (await zk.get_acl("/open"))[0] == OPEN_ACL_UNSAFE
    assert (await zk.get_acl("/closed"))[0] == READ_ACL_UNSAFE
    with pytest.raises(NoAuthError) as caught:
        await zk.set("/closed", b"")
    assert caught.value.path == "/closed"


async def test_an_acl_without_entries_is_refused_by_the_server(zk: Client) -> None:
    with pytest.raises(InvalidACLError):
        await zk.create("/a", acl=())


async def test_who_proves_who_he_is_may_do_what_others_may_not(hosts: str, zk: Client, connect: Connect) -> None:
    stranger = await connect(hosts)
    await zk.add_auth("digest", b"bob:secret")
    await zk.create("/mine", b"v", acl=CREATOR_ALL_ACL)

    with pytest.raises(NoAuthError):
        await stranger.get("/mine")
    await stranger.add_auth("digest", b"bob:secret")

    assert (await stranger.get("/mine"))[0] == b"v"


async def test_credentials_can_be_given_beforehand(hosts: str, connect: Connect) -> None:
    zk = await connect(hosts, auth=(("digest", b"bob:secret"), ("digest", b"eve:other")))

    users = {one.user for one in await zk.who_am_i() if one.scheme == "digest"}

    assert users == {"bob", "eve"}


# --- updating ---


async def test_update_gives_the_new_value_and_stat(zk: Client) -> None:
    await zk.create("/n", b"1")

    value, stat = await zk.update("/n", lambda old: old + b"!")

    assert value == b"1!"
    assert await zk.get("/n") == (b"1!", stat)


async def test_update_awaits_what_the_function_gives(zk: Client) -> None:
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


async def test_an_update_whose_function_fails_writes_nothing(zk: Client) -> None:
    await zk.create("/n", b"1")

    def fail(old: bytes) -> bytes:
        raise KeyError("no")

    with pytest.raises(KeyError):
        await zk.update("/n", fail)
    assert (await zk.get("/n"))[1].version == 0


async def test_an_update_of_a_missing_node_says_so(zk: Client) -> None:
    with pytest.raises(NoNodeError):
        await zk.update("/n", lambda old: old)


# --- transactions ---


async def test_a_transaction_does_everything_and_gives_each_result(zk: Client) -> None:
    await zk.create("/old")

    async with zk.transaction() as t:
        t.check("/old", 0)
        t.create("/a", b"v")
        t.create("/job-", sequential=True)
        t.set("/a", b"w", version=0)
        t.delete("/old")

    check, path, job, stat, deleted = t.results
    assert (check, path, job, deleted) == (None, "/a", "/job-0000000002", None)
    assert await zk.get("/a") == (b"w", stat)
    assert len(t) == 5


async def test_a_transaction_makes_every_kind_of_node(zk: Client) -> None:
    async with zk.transaction() as t:
        t.create("/here", ephemeral=True)
        t.create("/box", container=True)
        t.create("/short", ttl=60.0)
        t.create("/box/", sequential=True)

    assert t.results == ["/here", "/box", "/short", "/box/0000000000"]
    assert await zk.ephemerals() == ["/here"]


async def test_a_transaction_that_does_not_hold_does_nothing_and_says_which_operation(zk: Client) -> None:
    await zk.create("/a")

    t = zk.transaction()
    t.create("/b")
    t.check("/a", 7)
    t.create("/c")
    with pytest.raises(BadVersionError) as caught:
        await t.commit()

    assert caught.value.path == "/a"
    assert caught.value.__notes__ == ["operation 2 of 3 of a transaction; none was done"]
    assert [type(result) for result in t.results] == [type(None), BadVersionError, RuntimeInconsistencyError]
    assert await zk.children("/") == ["a"]


async def test_the_error_of_a_transaction_comes_out_of_its_block(zk: Client) -> None:
    async def make_twice() -> None:
        async with zk.transaction() as t:
            t.create("/a")
            t.create("/a")

    with pytest.raises(NodeExistsError) as caught:
        await make_twice()

    assert caught.value.path == "/a"


async def test_a_block_that_raises_sends_no_transaction(zk: Client) -> None:
    async def fail() -> None:
        async with zk.transaction() as t:
            t.create("/a")
            raise KeyError

    with pytest.raises(KeyError):
        await fail()

    assert await zk.exists("/a") is None


async def test_an_empty_transaction_is_nothing(zk: Client) -> None:
    before = zk._session._xid

    async with zk.transaction() as t:
        pass

    assert t.results == []
    assert zk._session._xid == before


@pytest.mark.parametrize(
    "add",
    [
        lambda t: t.check("/a/", 1),
        lambda t: t.create("/a/"),
        lambda t: t.set("/a/", b""),
        lambda t: t.delete("/a/"),
    ],
    ids=["check", "create", "set", "delete"],
)
async def test_a_transaction_refuses_a_path_that_ends_with_a_slash_at_the_call(add: Callable[[Any], None]) -> None:
    with pytest.raises(ValueError, match="end with /"):
        add(Client("127.0.0.1:1").transaction())


async def test_a_transaction_refuses_other_bad_paths_at_the_call() -> None:
    t = Client("127.0.0.1:1").transaction()

    for path, error in BAD_PATHS:
        if path != "/a/":
            for add in (t.check, t.create, t.delete):
                with pytest.raises(error):
                    add(path)
            with pytest.raises(error):
                t.set(path, b"")
    assert len(t) == 0


# --- errors ---


@pytest.mark.parametrize(
    "do",
    [
        lambda zk: zk.get("/nowhere"),
        lambda zk: zk.children("/nowhere"),
        lambda zk: zk.children_and_stat("/nowhere"),
        lambda zk: zk.count_below("/nowhere"),
        lambda zk: zk.get_acl("/nowhere"),
        lambda zk: zk.set("/nowhere", b""),
        lambda zk: zk.set_acl("/nowhere", OPEN_ACL_UNSAFE),
        lambda zk: zk.delete("/nowhere"),
        lambda zk: zk.delete("/nowhere", recursive=True),
        lambda zk: zk.update("/nowhere", lambda old: old),
    ],
    ids="get children children_and_stat count_below get_acl set set_acl delete delete_recursive update".split(),
)
async def test_an_error_names_the_path_as_the_caller_named_it(zk: Client, do: Do) -> None:
    with pytest.raises(NoNodeError) as caught:
        await do(zk)

    assert caught.value.path == "/nowhere"
    assert str(caught.value) == "/nowhere: the node does not exist"


async def test_a_node_that_exists_is_not_made_again(zk: Client) -> None:
    await zk.create("/a", b"first")

    for again in (zk.create("/a"), zk.create_and_stat("/a"), zk.create("/a", parents=True)):
        with pytest.raises(NodeExistsError) as caught:
            await again
        assert caught.value.path == "/a"
    assert (await zk.get("/a"))[0] == b"first"


# --- watches as operations ---


async def test_check_watches_says_whether_the_server_has_one(zk: Client) -> None:
    async with zk.watch_children("/"):
        assert await zk.check_watches("/", WatcherType.CHILDREN)
    assert not await zk.check_watches("/", WatcherType.CHILDREN)
    assert not await zk.check_watches("/nowhere")


async def test_a_watch_that_is_not_there_cannot_be_removed(zk: Client) -> None:
    with pytest.raises(NoWatcherError) as caught:
        await zk.remove_watches("/a")

    assert caught.value.path == "/a"


async def test_a_watch_can_be_removed_at_the_server(zk: Client) -> None:
    async with zk.watch_children("/"):
        await zk.remove_watches("/", WatcherType.CHILDREN)

        assert not await zk.check_watches("/", WatcherType.CHILDREN)


# --- chroot ---


async def test_paths_are_below_the_chroot(hosts: str, zk: Client, connect: Connect) -> None:
    address, chroot = root_of(hosts)
    outside = await connect(address)

    made = await zk.create("/a/b", b"v", parents=True)

    assert made == "/a/b"
    assert (await outside.get(f"{chroot}/a/b"))[0] == b"v"


async def test_the_root_of_a_chroot_is_the_chroot(hosts: str, zk: Client, connect: Connect) -> None:
    address, chroot = root_of(hosts)
    outside = await connect(address)

    await zk.set("/", b"top")
    await zk.create("/a")

    assert (await outside.get(chroot))[0] == b"top"
    assert await zk.children("/") == ["a"]


async def test_no_reply_shows_the_chroot(hosts: str, zk: Client) -> None:
    chroot = root_of(hosts)[1]
    paths = [
        await zk.create("/s-", sequential=True, ephemeral=True),
        (await zk.create_and_stat("/c"))[0],
        await zk.create("/p", protected=True),
        *await zk.ephemerals(),
    ]
    async with zk.transaction() as t:
        t.create("/t")
        t.create("/t/", sequential=True)
    async with zk.watch("/", recursive=True) as events:
        await zk.set("/c", b"")
        event = await events.next()
    async with zk.watch_children("/t") as watch:
        await zk.create("/t/x")
        once = await watch.next()

    assert not [path for path in [*paths, *t.results, event.path, once.path] if chroot[1:] in path]
    assert (event.type, event.path) == (EventType.NODE_DATA_CHANGED, "/c")
    assert (once.type, once.path) == (EventType.NODE_CHILDREN_CHANGED, "/t")


async def test_an_event_at_the_chroot_itself_is_at_the_root(zk: Client) -> None:
    async with zk.watch_data("/") as watch:
        await zk.set("/", b"v")

        assert (await watch.next()).path == "/"


async def test_errors_of_a_transaction_do_not_show_the_chroot(zk: Client) -> None:
    with pytest.raises(NoNodeError) as caught:
        async with zk.transaction() as t:
            t.set("/nowhere", b"")

    assert caught.value.path == "/nowhere"


async def test_a_chroot_that_is_missing_is_made_by_ensure_path_and_by_parents(hosts: str, connect: Connect) -> None:
    deep, deeper = await connect(hosts + "/x/y"), await connect(hosts + "/x/z")

    with pytest.raises(NoNodeError):
        await deep.create("/a")
    await deep.ensure_path("/")
    await deeper.create("/a/b", parents=True)

    assert await deep.children("/") == []
    assert await deeper.children("/a") == ["b"]


def test_a_path_is_located_and_localized() -> None:
    zk = Client("a:1/app")

    assert [zk.add_chroot("/"), zk.add_chroot("/x")] == ["/app", "/app/x"]
    assert [zk.strip_chroot("/app"), zk.strip_chroot("/app/x")] == ["/", "/x"]


# --- values ---


@pytest.mark.parametrize("serializer", [serializers.json, serializers.msgpack], ids=lambda serializer: serializer.name)
async def test_a_codec_writes_and_reads_values_everywhere(hosts: str, connect: Connect, serializer: Serializer) -> None:
    zk = await connect(hosts, serializer=serializer)
    value = {"name": "käse", "numbers": [1, 2.5, None, True]}

    await zk.create("/a", value)
    async with zk.transaction() as t:
        t.create("/b", [1])
        t.set("/b", [2])
    ((read, _),) = await zk.multi_read(("get", "/b"))
    updated, _ = await zk.update("/a", lambda old: {**old, "more": 1})
    async with zk.watch_data("/a") as watch:
        found = watch.initial[0]

    assert read == [2]
    assert updated == found == (await zk.get("/a"))[0] == {**value, "more": 1}


@pytest.mark.parametrize("serializer", [serializers.json, serializers.msgpack], ids=lambda serializer: serializer.name)
async def test_an_empty_node_is_none_to_a_codec(hosts: str, connect: Connect, serializer: Serializer) -> None:
    zk = await connect(hosts, serializer=serializer)

    await zk.create("/a")

    assert (await zk.get("/a"))[0] is None


@pytest.mark.parametrize(
    "read",
    [
        lambda zk: zk.get("/a"),
        lambda zk: zk.multi_read(("get", "/a")),
        lambda zk: zk.update("/a", lambda old: old),
        lambda zk: zk.watch_data("/a").__aenter__(),
    ],
    ids=["get", "multi_read", "update", "watch_data"],
)
async def test_data_that_the_codec_cannot_read_is_a_clear_error(
    hosts: str, zk: Client, connect: Connect, read: Do
) -> None:
    typed = await connect(hosts, serializer=serializers.json)
    await zk.create("/a", b"\xff{")

    with pytest.raises(UndecodableError) as caught:
        await read(typed)

    assert (caught.value.path, caught.value.serializer, caught.value.data) == ("/a", "JSON", b"\xff{")
    assert str(caught.value).startswith("/a: the data is no JSON: ")
    assert await typed.children("/") == ["a"]


async def test_a_value_that_the_codec_cannot_write_is_refused_at_the_call(hosts: str, connect: Connect) -> None:
    zk = await connect(hosts, serializer=serializers.json)

    with pytest.raises(TypeError):
        zk.create("/a", object())
    with pytest.raises(ValueError):
        zk.set("/a", float("nan"))


async def test_a_codec_that_gives_no_bytes_is_refused_by_name(hosts: str, connect: Connect) -> None:
    zk = await connect(hosts, serializer=Serializer("broken", lambda value: value, bytes))

    with pytest.raises(TypeError, match="broken"):
        await zk.create("/a", "text")


# --- how calls go out ---


async def test_calls_made_together_go_out_in_one_write_and_are_answered_in_order(
    zk: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert zk._connection is not None
    assert zk._connection._link is not None
    transport: Any = zk._connection._link.transport
    writes: list[bytes] = []
    answered: list[int] = []
    write = transport.write
    monkeypatch.setattr(transport, "write", lambda data: (writes.append(data), write(data)))

    calls = [zk.create("/a"), *[zk.set("/a", b"%d" % number) for number in range(100)], zk.get("/a")]
    for number, call in enumerate(calls):
        call.add_done_callback(lambda _, number=number: answered.append(number))  # type: ignore[attr-defined]
    results = await asyncio.gather(*calls)

    assert len(writes) == 1
    assert answered == list(range(102))
    assert [stat.version for stat in results[1:101]] == list(range(1, 101))
    assert results[101][0] == b"99"


async def test_a_call_is_under_way_before_it_is_awaited(zk: Client) -> None:
    call = zk.create("/a")

    assert await zk.exists("/a") is not None
    assert await call == "/a"


async def test_a_call_can_be_given_to_whatever_takes_awaitables(zk: Client) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(zk.create("/a"))
    shielded = await asyncio.shield(zk.exists("/a"))
    waited = await asyncio.wait_for(zk.get("/a"), 5)

    assert task.result() == "/a"
    assert shielded == waited[1]


async def test_the_longest_request_is_sent_and_one_byte_more_is_refused_with_both_sizes(zk: Client) -> None:
    await zk.create("/a")
    room = MAX_FRAME - 8 - len(zk._encoded("/a")) - 4 - 4
    before = zk._session._xid

    with pytest.raises(ValueError, match=rf"/a: .*{MAX_FRAME + 1} bytes.*{MAX_FRAME}"):
        zk.set("/a", bytes(room + 1))

    assert zk._session._xid == before
    assert (await zk.set("/a", bytes(room))).dataLength == room


async def test_a_lower_limit_for_requests_can_be_said(hosts: str, connect: Connect) -> None:
    zk = await connect(hosts, max_request=500)

    with pytest.raises(ValueError, match="500 is the limit"):
        zk.create("/a", bytes(500))
    with pytest.raises(ValueError, match="500 is the limit"):
        async with zk.transaction() as t:
            t.create("/a", bytes(500))
    assert await zk.create("/a", bytes(300)) == "/a"


# --- bad input ---

BAD_PATHS: list[tuple[Any, type[Exception]]] = [
    ("", ValueError),
    ("a", ValueError),
    ("/a/", ValueError),
    ("//", ValueError),
    ("/a//b", ValueError),
    ("/a/./b", ValueError),
    ("/a/../b", ValueError),
    ("/a\0", ValueError),
    ("/\ud800", ValueError),
    (None, TypeError),
    (5, TypeError),
    (b"/a", TypeError),
    (["/a"], TypeError),
]
TAKE_PATHS: dict[str, Callable[[Client, Any], Any]] = {
    "get": lambda zk, path: zk.get(path),
    "exists": lambda zk, path: zk.exists(path),
    "children": lambda zk, path: zk.children(path),
    "children_and_stat": lambda zk, path: zk.children_and_stat(path),
    "count_below": lambda zk, path: zk.count_below(path),
    "ephemerals": lambda zk, path: zk.ephemerals(path),
    "get_acl": lambda zk, path: zk.get_acl(path),
    "sync": lambda zk, path: zk.sync(path),
    "multi_read": lambda zk, path: zk.multi_read(("get", "/"), ("children", path)),
    "create": lambda zk, path: zk.create(path),
    "create protected": lambda zk, path: zk.create(path, protected=True),
    "create parents": lambda zk, path: zk.create(path, parents=True),
    "create_and_stat": lambda zk, path: zk.create_and_stat(path),
    "set": lambda zk, path: zk.set(path, b""),
    "delete": lambda zk, path: zk.delete(path),
    "delete recursive": lambda zk, path: zk.delete(path, recursive=True),
    "set_acl": lambda zk, path: zk.set_acl(path, OPEN_ACL_UNSAFE),
    "check_watches": lambda zk, path: zk.check_watches(path),
    "remove_watches": lambda zk, path: zk.remove_watches(path),
    "watch": lambda zk, path: zk.watch(path),
    "watch_data": lambda zk, path: zk.watch_data(path),
    "watch_exists": lambda zk, path: zk.watch_exists(path),
    "watch_children": lambda zk, path: zk.watch_children(path),
}


@pytest.fixture
async def embedded(server: Server, connect: Connect) -> Client:
    """A client of the embedded server, for what no server is to hear of."""
    return await connect(server.hosts)


@pytest.mark.parametrize("name", TAKE_PATHS)
async def test_a_bad_path_is_refused_at_the_call(embedded: Client, name: str) -> None:
    before = embedded._session._xid

    for path, error in BAD_PATHS:
        with pytest.raises(error):
            TAKE_PATHS[name](embedded, path)

    assert embedded._session._xid == before
    assert not embedded._session.waiting


async def test_a_bad_path_is_refused_though_its_parent_was_found_good_before(embedded: Client) -> None:
    for path in ("/", "/a"):
        await embedded.exists(path)

    for path, error in [*BAD_PATHS, ("/a/\0", ValueError), ("/a/..", ValueError), ("/a/b/", ValueError)]:
        for name in TAKE_PATHS:
            with pytest.raises(error):
                TAKE_PATHS[name](embedded, path)


@pytest.mark.parametrize("name", ["update", "ensure_path"])
async def test_a_bad_path_is_refused_before_anything_is_sent(embedded: Client, name: str) -> None:
    before = embedded._session._xid
    args = (lambda old: old,) if name == "update" else ()

    for path, error in BAD_PATHS:
        with pytest.raises(error):
            await getattr(embedded, name)(path, *args)

    assert embedded._session._xid == before


@pytest.mark.parametrize(
    ("do", "error"),
    [
        (lambda zk: zk.set("/a", b"", version="1"), TypeError),
        (lambda zk: zk.set("/a", b"", version=1.0), TypeError),
        (lambda zk: zk.set("/a", b"", version=True), TypeError),
        (lambda zk: zk.set("/a", b"", version=None), TypeError),
        (lambda zk: zk.set("/a", b"", version=1 << 31), ValueError),
        (lambda zk: zk.delete("/a", version=1 << 31), ValueError),
        (lambda zk: zk.delete("/a", version="x", recursive=True), TypeError),
        (lambda zk: zk.set_acl("/a", OPEN_ACL_UNSAFE, version="x"), TypeError),
        (lambda zk: zk.transaction().check("/a", "x"), TypeError),
        (lambda zk: zk.transaction().set("/a", b"", -(1 << 32)), ValueError),
        (lambda zk: zk.transaction().delete("/a", None), TypeError),
        (lambda zk: zk.create("/a", "text"), TypeError),
        (lambda zk: zk.create("/a", None), TypeError),
        (lambda zk: zk.set("/a", 5), TypeError),
        (lambda zk: zk.transaction().create("/a", "text"), TypeError),
        (lambda zk: zk.create("/a", ttl=0), ValueError),
        (lambda zk: zk.create("/a", ttl=-1), ValueError),
        (lambda zk: zk.create("/a", ttl=float("nan")), ValueError),
        (lambda zk: zk.create("/a", ttl=1e12), ValueError),
        (lambda zk: zk.create("/a", ttl="1"), TypeError),
        (lambda zk: zk.create("/a", ttl=1, ephemeral=True), ValueError),
        (lambda zk: zk.create("/a", container=True, ephemeral=True), ValueError),
        (lambda zk: zk.create("/a", container=True, sequential=True), ValueError),
        (lambda zk: zk.create("/a", container=True, ttl=1), ValueError),
        (lambda zk: zk.transaction().create("/a", ttl=1, ephemeral=True), ValueError),
        (lambda zk: zk.create("/a", acl=5), TypeError),
        (lambda zk: zk.multi_read(("write", "/a")), ValueError),
        (lambda zk: zk.watch("/a", limit=0), ValueError),
        (lambda zk: zk.watch("/a", limit="x"), ValueError),
        (lambda zk: zk.with_operation_timeout(-1), ValueError),
        (lambda zk: zk.with_operation_timeout(float("nan")), ValueError),
        (lambda zk: zk.with_operation_timeout("x"), ValueError),
        (lambda zk: zk.add_auth("digest", "bob:secret"), TypeError),
    ],
)
async def test_an_argument_that_makes_no_sense_is_refused_at_the_call(
    embedded: Client, do: Do, error: type[Exception]
) -> None:
    before = embedded._session._xid

    with pytest.raises(error):
        do(embedded)

    assert embedded._session._xid == before
    assert not embedded._session.waiting


@pytest.mark.parametrize(
    "do",
    [
        pytest.param(lambda zk: zk.create("/a", acl="world:anyone"), id="acl is text"),
        pytest.param(lambda zk: zk.create("/a", acl=("world:anyone",)), id="acl of texts"),
        pytest.param(lambda zk: zk.set_acl("/a", "x"), id="set_acl of text"),
        pytest.param(lambda zk: zk.check_watches("/a", "data"), id="kind is text"),
        pytest.param(lambda zk: zk.add_auth(5, b"bob:secret"), id="scheme is a number"),
    ],
)
async def test_an_argument_of_the_wrong_type_is_refused_at_the_call(embedded: Client, do: Do) -> None:
    with pytest.raises(TypeError):
        do(embedded)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"timeout": 0}, ValueError),
        ({"timeout": -1}, ValueError),
        ({"timeout": float("nan")}, ValueError),
        ({"timeout": 1e10}, ValueError),
        ({"timeout": "10"}, (TypeError, ValueError)),
        ({"operation_timeout": -1}, ValueError),
        ({"operation_timeout": "x"}, (TypeError, ValueError)),
        ({"codec": "json"}, TypeError),
        ({"hosts": ""}, ValueError),
        ({"hosts": None}, TypeError),
        ({"hosts": "a:1/x/"}, ValueError),
    ],
)
def test_a_client_with_options_that_make_no_sense_is_not_made(
    options: dict[str, Any], error: type[Exception] | tuple[type[Exception], ...]
) -> None:
    with pytest.raises(error):
        Client(**{"hosts": "127.0.0.1:1", **options})


@pytest.mark.parametrize(
    "options",
    [
        {"auth": (("digest", "bob:secret"),)},
        {"auth": ((5, b"bob:secret"),)},
        {"login": "bob:secret"},
        {"login": ("bob", b"secret")},
        {"max_request": "1"},
        {"backoff": 0.5},
    ],
    ids=["auth is text", "scheme is a number", "login is text", "password is bytes", "max_request", "backoff"],
)
def test_a_client_with_options_of_the_wrong_type_is_not_made(options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        Client("127.0.0.1:1", **options)


def test_a_call_on_a_client_that_was_not_started_says_how_to_start_it() -> None:
    with pytest.raises(RuntimeError, match="async with Client"):
        Client("127.0.0.1:1").get("/")


async def test_a_client_starts_once(embedded: Client) -> None:
    with pytest.raises(RuntimeError, match="started before"):
        await embedded.start()


# --- trying again ---


async def test_retry_tries_again_as_often_as_it_may_and_only_after_a_lost_connection(embedded: Client) -> None:
    from zoolet.client import Backoff

    tries: list[int] = []

    async def lose() -> None:
        tries.append(1)
        raise ConnectionLossError

    async def fail() -> None:
        tries.append(1)
        raise NoNodeError

    with pytest.raises(ConnectionLossError):
        await embedded.retry(lose, Backoff(first=0, tries=3))
    assert len(tries) == 3
    with pytest.raises(NoNodeError):
        await embedded.retry(fail)
    assert len(tries) == 4


async def test_retry_gives_what_the_last_try_gave(embedded: Client) -> None:
    from zoolet.client import Backoff

    outcomes: list[Any] = [ConnectionLossError(), ConnectionLossError(), "done"]

    async def do() -> str:
        if isinstance(outcomes[0], Exception):
            raise outcomes.pop(0)
        return str(outcomes[0])

    assert await embedded.retry(do, Backoff(first=0)) == "done"
