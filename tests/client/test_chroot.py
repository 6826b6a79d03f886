"""Chroots: all paths are below the chroot, and no reply, event or error reveals it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.simulation import Connect

from zoolet.client import Client, EventType, NoNodeError
from zoolet.protocol.acl import OPEN_ACL_UNSAFE

ClientCall = Callable[[Client], Any]


def split_chroot(hosts: str) -> tuple[str, str]:
    """Split a connection string into the address and the chroot."""
    address, slash, chroot = hosts.partition("/")
    return address, slash + chroot


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
async def test_error_names_path_without_chroot(zk: Client, do: ClientCall) -> None:
    with pytest.raises(NoNodeError) as caught:
        await do(zk)

    assert caught.value.path == "/nowhere"
    assert str(caught.value) == "/nowhere: the node does not exist"


# --- chroot ---


async def test_paths_are_below_chroot(hosts: str, zk: Client, connect: Connect) -> None:
    address, chroot = split_chroot(hosts)
    outside = await connect(address)

    made = await zk.create("/a/b", b"v", parents=True)

    assert made == "/a/b"
    assert (await outside.get(f"{chroot}/a/b"))[0] == b"v"


async def test_root_path_refers_to_chroot(hosts: str, zk: Client, connect: Connect) -> None:
    address, chroot = split_chroot(hosts)
    outside = await connect(address)

    await zk.set("/", b"top")
    await zk.create("/a")

    assert (await outside.get(chroot))[0] == b"top"
    assert await zk.children("/") == ["a"]


async def test_replies_do_not_show_chroot(hosts: str, zk: Client) -> None:
    chroot = split_chroot(hosts)[1]
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


async def test_event_at_chroot_has_root_path(zk: Client) -> None:
    async with zk.watch_data("/") as watch:
        await zk.set("/", b"v")

        assert (await watch.next()).path == "/"


async def test_transaction_errors_do_not_show_chroot(zk: Client) -> None:
    with pytest.raises(NoNodeError) as caught:
        async with zk.transaction() as t:
            t.set("/nowhere", b"")

    assert caught.value.path == "/nowhere"


async def test_missing_chroot_is_created_on_request(hosts: str, connect: Connect) -> None:
    deep, deeper = await connect(hosts + "/x/y"), await connect(hosts + "/x/z")

    with pytest.raises(NoNodeError):
        await deep.create("/a")
    await deep.ensure_path("/")
    await deeper.create("/a/b", parents=True)

    assert await deep.children("/") == []
    assert await deeper.children("/a") == ["b"]


def test_add_chroot_and_strip_chroot_convert_paths() -> None:
    zk = Client("a:1/app")

    assert [zk.add_chroot("/"), zk.add_chroot("/x")] == ["/app", "/app/x"]
    assert [zk.strip_chroot("/app"), zk.strip_chroot("/app/x")] == ["/", "/x"]
