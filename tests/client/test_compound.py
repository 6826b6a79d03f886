"""Calls of several requests are started and cancelled like calls of one request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest
from support.simulation import with_client

from zoolet.client import Client, ClosedError, NodeExistsError, State
from zoolet.client.aio.call import Call
from zoolet.testing import Server

COMPOUND_CALLS: Final[dict[str, Callable[[Client], Call[Any]]]] = {
    "create with parents": lambda zk: zk.create("/p/q", parents=True),
    "create protected": lambda zk: zk.create("/top/new-", ephemeral=True, sequential=True, protected=True),
    "create protected with parents": lambda zk: zk.create("/p/new", protected=True, parents=True),
    "delete recursively": lambda zk: zk.delete("/top", recursive=True),
    "ensure_path": lambda zk: zk.ensure_path("/p/q"),
    "update": lambda zk: zk.update("/top", lambda old: old + b"!"),
}
SEARCH_REQUESTS: Final = {name: {"sync", "getChildren"} for name in COMPOUND_CALLS if "protected" in name}
"""A cancelled protected create searches for its node, because the request may have been applied."""
every_compound_call = pytest.mark.parametrize("name", COMPOUND_CALLS)


def run_with_nodes(main: Callable[[Server, Client], Any], **options: Any) -> None:
    """Run with a server that has a few nodes, and a client."""

    async def run(server: Server, zk: Client) -> None:
        server.populate({"/top": {"a": b"", "b": b""}})
        await main(server, zk)

    with_client(run, **options)


def requests(server: Server) -> list[str]:
    """Return the names of the requests that the server has received."""
    return [entry.op for entry in server.ops() if entry.op not in ("connect", "ping")]


@every_compound_call
def test_compound_call_sends_first_request_immediately(name: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        before = zk.statistics()

        call = COMPOUND_CALLS[name](zk)
        made = zk.statistics()
        zk._core.flush()
        sent = zk.statistics()

        assert isinstance(call, Call)
        assert made.waiting == before.waiting + 1
        assert (sent.waiting, sent.in_flight, sent.requests_sent) == (0, before.in_flight + 1, before.requests_sent + 1)
        await call

    run_with_nodes(main)


@every_compound_call
def test_compound_call_cancelled_early_is_not_sent(name: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        before = set(server.tree())

        call = COMPOUND_CALLS[name](zk)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await zk.sync()

        assert call.cancelled()
        assert set(requests(server)) == SEARCH_REQUESTS.get(name, {"sync"})
        assert set(server.tree()) == before

    run_with_nodes(main)


@every_compound_call
def test_cancelled_compound_call_cancels_its_request(name: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        before = set(server.tree())
        server.refuse_connections()
        server.drop(zk)
        await zk.wait_for(State.SUSPENDED)
        call = COMPOUND_CALLS[name](zk)
        await asyncio.sleep(0.1)

        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        server.accept_connections()
        await zk.sync()

        assert call.cancelled()
        assert set(requests(server)) == SEARCH_REQUESTS.get(name, {"sync"})
        assert set(server.tree()) == before

    run_with_nodes(main)


def test_node_of_cancelled_protected_create_is_deleted() -> None:
    async def main(server: Server, zk: Client) -> None:
        call = zk.create("/lock-", ephemeral=True, sequential=True, protected=True)
        zk._core.flush()
        call.cancel()
        await asyncio.sleep(1)

        assert requests(server)[0] == "create"
        assert not server.tree()
        assert zk.statistics().idle

    with_client(main)


@every_compound_call
def test_compound_call_timing_out_early_cleans_up(name: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        before = set(server.tree())

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await COMPOUND_CALLS[name](zk)
        await asyncio.sleep(1)

        assert set(server.tree()) == before
        assert zk.statistics().idle

    run_with_nodes(main)


def test_cancelled_compound_call_logs_no_error() -> None:
    async def main(server: Server, zk: Client) -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        call = zk.create("/top", parents=True)
        zk._core.flush()

        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await zk.sync()

        assert complaints == []

    run_with_nodes(main)


def test_compound_call_fails_with_error_of_any_of_its_requests() -> None:
    async def main(server: Server, zk: Client) -> None:
        with pytest.raises(NodeExistsError) as caught:
            await zk.create("/top", parents=True)

        assert caught.value.path == "/top"

    run_with_nodes(main)


@every_compound_call
def test_close_fails_compound_calls(name: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        server.refuse_connections()
        server.drop(zk)
        await zk.wait_for(State.SUSPENDED)
        call = COMPOUND_CALLS[name](zk)

        await zk.aclose()

        with pytest.raises(ClosedError):
            await call

    run_with_nodes(main)


def test_compound_calls_work_with_gather_and_tasks() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(zk.create("/x/y", parents=True))
        paths = await asyncio.gather(zk.create("/x/z/1", parents=True), zk.create("/x/z/2", parents=True))

        assert [task.result(), *paths] == ["/x/y", "/x/z/1", "/x/z/2"]

    with_client(main)
