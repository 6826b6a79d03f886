"""Transactions: all operations or none, a result or an error for each, and invalid paths rejected at the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.bad_paths import BAD_PATHS

from zoolet.client import BadVersionError, Client, NodeExistsError
from zoolet.protocol.errors import RuntimeInconsistencyError


async def test_transaction_returns_result_of_each_operation(zk: Client) -> None:
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


async def test_transaction_creates_every_kind_of_node(zk: Client) -> None:
    async with zk.transaction() as t:
        t.create("/here", ephemeral=True)
        t.create("/box", container=True)
        t.create("/short", ttl=60.0)
        t.create("/box/", sequential=True)

    assert t.results == ["/here", "/box", "/short", "/box/0000000000"]
    assert await zk.ephemerals() == ["/here"]


async def test_failed_transaction_names_operation(zk: Client) -> None:
    await zk.create("/a")

    t = zk.transaction()
    t.create("/b")
    t.check("/a", 7)
    t.create("/c")
    with pytest.raises(BadVersionError) as caught:
        await t.commit()

    assert caught.value.path == "/a"
    assert caught.value.__notes__ == ["operation 2 of 3 of the transaction failed; none was applied"]
    assert [type(result) for result in t.results] == [type(None), BadVersionError, RuntimeInconsistencyError]
    assert await zk.children("/") == ["a"]


async def test_transaction_error_is_raised_by_block(zk: Client) -> None:
    async def make_twice() -> None:
        async with zk.transaction() as t:
            t.create("/a")
            t.create("/a")

    with pytest.raises(NodeExistsError) as caught:
        await make_twice()

    assert caught.value.path == "/a"


async def test_failing_block_sends_no_transaction(zk: Client) -> None:
    async def fail() -> None:
        async with zk.transaction() as t:
            t.create("/a")
            raise KeyError

    with pytest.raises(KeyError):
        await fail()

    assert await zk.exists("/a") is None


async def test_empty_transaction_sends_nothing(zk: Client) -> None:
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
async def test_transaction_method_refuses_path_with_final_slash(add: Callable[[Any], None]) -> None:
    with pytest.raises(ValueError, match="end with /"):
        add(Client("127.0.0.1:1").transaction())


async def test_transaction_method_refuses_invalid_path() -> None:
    t = Client("127.0.0.1:1").transaction()

    for path, error in BAD_PATHS:
        if path != "/a/":
            for add in (t.check, t.create, t.delete):
                with pytest.raises(error):
                    add(path)
            with pytest.raises(error):
                t.set(path, b"")
    assert len(t) == 0


async def test_oversized_transaction_error_names_multi_and_limit(zk: Client) -> None:
    t = zk.transaction()
    t.create("/a", bytes(2_000_000))

    with pytest.raises(ValueError, match=r"^multi: the request has 2000\d\d\d bytes; the limit is \d+ \(max_request\)"):
        await t.commit()
