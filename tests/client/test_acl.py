"""ACLs: they are set and read, open unless said otherwise, and refused when they have no entries."""

from __future__ import annotations

import pytest

from zoolet.client import Client, NoAuthError
from zoolet.protocol.acl import ACL, ANYONE, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE
from zoolet.protocol.enums import Perm
from zoolet.protocol.errors import InvalidACLError


async def test_an_acl_is_set_and_read(zk: Client) -> None:
    await zk.create("/a")
    acl = (ACL(Perm.READ | Perm.ADMIN, ANYONE),)

    stat = await zk.set_acl("/a", acl, version=0)

    assert stat.aversion == 1
    assert await zk.get_acl("/a") == (acl, stat)


async def test_a_new_node_is_open_to_everybody_unless_set_otherwise(zk: Client) -> None:
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
