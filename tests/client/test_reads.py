"""Reads: get, exists, children, counts, several reads in one request, the configuration, and the last seen zxid."""

from __future__ import annotations

import pytest

from zoolet.client import Client, NoNodeError, Stat, ZooKeeperError


async def test_get_returns_value_and_stat(zk: Client) -> None:
    await zk.create("/a", b"value")

    value, stat = await zk.get("/a")

    assert value == b"value"
    assert isinstance(stat, Stat)
    assert (stat.version, stat.dataLength, stat.numChildren, stat.ephemeralOwner) == (0, 5, 0, 0)
    assert stat.czxid == stat.mzxid == stat.pzxid > 0


async def test_exists_returns_stat_or_none(zk: Client) -> None:
    await zk.create("/a", b"value")

    there, missing = await zk.exists("/a"), await zk.exists("/b")

    assert there == (await zk.get("/a"))[1]
    assert missing is None


async def test_children_returns_names_not_paths(zk: Client) -> None:
    await zk.create("/a/x", parents=True)
    await zk.create("/a/y")

    assert sorted(await zk.children("/a")) == ["x", "y"]
    assert await zk.children("/a/x") == []


async def test_children_and_stat_returns_names_and_matching_stat(zk: Client) -> None:
    await zk.create("/a/x", parents=True)

    names, stat = await zk.children_and_stat("/a")

    assert names == ["x"]
    assert (stat.numChildren, stat.cversion) == (1, 1)


async def test_count_below_includes_all_levels(zk: Client) -> None:
    await zk.create("/a/b/c", parents=True)
    await zk.create("/ab")

    assert await zk.count_below("/a") == 2
    assert await zk.count_below("/") == 4


async def test_sync_returns_none_for_any_path(zk: Client) -> None:
    assert await zk.sync() is None
    assert await zk.sync("/nowhere") is None


async def test_whoami_names_address_and_credentials(zk: Client) -> None:
    await zk.add_auth("digest", b"bob:secret")

    found = {(one.scheme, one.user) for one in await zk.who_am_i()}

    assert ("ip", "127.0.0.1") in found
    assert ("digest", "bob") in found


async def test_multi_read_returns_result_of_each_read(zk: Client) -> None:
    await zk.create("/a", b"1")
    await zk.create("/a/x")

    (value, stat), names, missing = await zk.multi_read(("get", "/a"), ("children", "/a"), ("get", "/nowhere"))

    assert (value, names) == (b"1", ["x"])
    assert stat == await zk.exists("/a")
    assert isinstance(missing, NoNodeError)
    assert missing.path == "/nowhere"


async def test_get_config_works_with_chroot_of_client(zk: Client) -> None:
    value, stat = await zk.get_config()

    assert isinstance(value, bytes)
    assert isinstance(stat, Stat)


async def test_standalone_server_refuses_reconfiguration(zk: Client) -> None:
    with pytest.raises(ZooKeeperError):
        await zk.reconfig(joining="server.5=127.0.0.1:1:2;3")


async def test_last_zxid_grows_with_replies(zk: Client) -> None:
    stat = (await zk.create_and_stat("/a"))[1]

    assert zk.last_zxid == stat.czxid
