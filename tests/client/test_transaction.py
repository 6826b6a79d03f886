"""Transactions: all operations or none, a result or an error for each, and bad paths refused at the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.bad_paths import BAD_PATHS

from zoolet.client import BadVersionError, Client, NodeExistsError
from zoolet.protocol.errors import RuntimeInconsistencyError


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
    before = zk.statistics().requests_sent

    async with zk.transaction() as t:
        pass

    assert t.results == []
    assert zk.statistics().requests_sent == before


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
