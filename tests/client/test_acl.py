"""ACLs: reading, setting and defaults, the accepted kinds of entries, and invalid lists."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.security import make_acl
from support.simulation import Connect

from zoolet.client import Client, NoAuthError, acl
from zoolet.client.recipes import Counter, Lock, PersistentEphemeral, Queue
from zoolet.protocol.acl import ACL, ANYONE, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Id
from zoolet.protocol.enums import Perm
from zoolet.protocol.errors import InvalidACLError
from zoolet.testing import Server


async def test_acl_is_set_and_read(zk: Client) -> None:
    await zk.create("/a")
    acl = (ACL(Perm.READ | Perm.ADMIN, ANYONE),)

    stat = await zk.set_acl("/a", acl, version=0)

    assert stat.aversion == 1
    assert await zk.get_acl("/a") == (acl, stat)


async def test_new_node_is_open_by_default(zk: Client) -> None:
    await zk.create("/open")
    await zk.create("/closed", acl=READ_ACL_UNSAFE)

    assert (await zk.get_acl("/open"))[0] == OPEN_ACL_UNSAFE
    assert (await zk.get_acl("/closed"))[0] == READ_ACL_UNSAFE
    with pytest.raises(NoAuthError) as caught:
        await zk.set("/closed", b"")
    assert caught.value.path == "/closed"


async def test_empty_acl_is_refused_by_server(zk: Client) -> None:
    with pytest.raises(InvalidACLError):
        await zk.create("/a", acl=())


# --- lists, and a default for all creates ---


def test_named_acl_lists_can_be_concatenated() -> None:
    assert acl.CREATOR_ALL + acl.READ_ONLY == (*CREATOR_ALL_ACL, *READ_ACL_UNSAFE)
    assert acl.digest("super", "admin") == (ACL(Perm.ALL, Id("digest", "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=")),)
    assert acl.ip("10.0.0.0/8", acl.READ | acl.WRITE) == (ACL(Perm.READ | Perm.WRITE, Id("ip", "10.0.0.0/8")),)


async def test_client_acl_applies_to_all_created_nodes(hosts: str, connect: Connect) -> None:
    mine = acl.digest("bob", "secret")
    zk = await connect(hosts, acl=mine, auth=(("digest", b"bob:secret"),))
    await zk.create("/a/b", parents=True)
    await zk.create_and_stat("/c")
    await zk.ensure_path("/d/e")
    async with zk.transaction() as transaction:
        transaction.create("/f")
        transaction.create("/g", acl=acl.OPEN)
    await zk.with_acl(acl.READ_ONLY + mine).create("/h")

    lists = {path: (await zk.get_acl(path))[0] for path in ("/a", "/a/b", "/c", "/d", "/d/e", "/f", "/g", "/h")}

    assert lists.pop("/g") == acl.OPEN
    assert lists.pop("/h") == acl.READ_ONLY + mine
    assert set(lists.values()) == {mine}


async def test_recipes_use_acl_of_client_view(hosts: str, connect: Connect) -> None:
    mine = acl.digest("bob", "secret")
    zk = await connect(hosts, auth=(("digest", b"bob:secret"),))
    stranger = await connect(hosts)
    view = zk.with_acl(mine)
    await Counter(view, "/n").add(1)
    await Queue(view, "/q").put(b"1")

    async with Lock(zk, "/lock", acl=mine) as lease, PersistentEphemeral(view, "/up/me", b"1"):
        for path in (lease.path, "/up/me", "/n", "/q"):
            assert (await zk.get_acl(path))[0] == mine
        with pytest.raises(NoAuthError):
            await stranger.get(lease.path)
    assert await Queue(view, "/q").get() == b"1"


async def test_acl_may_be_list_or_iterator_and_may_contain_kazoo_acl(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    wanted = [*acl.ip("10.0.0.0/8", acl.READ), *acl.OPEN]

    for given in (wanted, iter(wanted), [make_acl("ip", "10.0.0.0/8", read=True), *acl.OPEN]):
        await zk.create("/a", acl=given)
        assert (await zk.get_acl("/a"))[0] == tuple(wanted)
        await zk.delete("/a")


async def test_acl_with_nested_lists_is_flattened(zk: Client) -> None:
    bob, network = acl.digest("bob", "secret"), acl.ip("127.0.0.1")

    await zk.create("/a", acl=[bob, [network, acl.READ_ONLY]])  # type: ignore[list-item]

    assert (await zk.get_acl("/a"))[0] == (*bob, *network, *acl.READ_ONLY)


@pytest.mark.parametrize("wrong", ["open", [1], 7])
def test_invalid_acl_is_refused(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"zoolet\.client\.acl"):
        Client("127.0.0.1:1", acl=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("permissions", ["r", 0, 32, -1, None])
def test_invalid_permissions_are_refused(permissions: Any) -> None:
    for make in (lambda: acl.ip("10.0.0.0/8", permissions), lambda: acl.x509("CN=shop", permissions)):
        with pytest.raises(ValueError, match="permissions must be READ, WRITE"):
            make()


@pytest.mark.parametrize("name", ["shop", "cn=shop", "CN=shop, O=Example", ""])
def test_acl_with_invalid_x509_name_is_refused(name: str) -> None:
    with pytest.raises(
        ValueError, match="not in the server's notation for distinguished names: the most specific part first"
    ):
        acl.x509(name)


@pytest.mark.parametrize("network", ["300.1.1.1", "10.0.0.0/99", "localhost", ""])
def test_acl_with_invalid_network_is_refused(network: str) -> None:
    with pytest.raises(ValueError, match=f"network must be an address .*, not '{network}'"):
        acl.ip(network)
