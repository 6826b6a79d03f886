"""Calls of several requests: under way when the method returns, as calls of one are, and cancelled as those are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest
from support.simulation import with_client

from zoolet.client import Client, ClosedError, NodeExistsError, State
from zoolet.client.aio.call import Call
from zoolet.server import Server

COMPOUND: Final[dict[str, Callable[[Client], Call[Any]]]] = {
    "create with parents": lambda zk: zk.create("/p/q", parents=True),
    "create protected": lambda zk: zk.create("/top/new-", ephemeral=True, sequential=True, protected=True),
    "create protected with parents": lambda zk: zk.create("/p/new", protected=True, parents=True),
    "delete recursively": lambda zk: zk.delete("/top", recursive=True),
    "ensure_path": lambda zk: zk.ensure_path("/p/q"),
    "update": lambda zk: zk.update("/top", lambda old: old + b"!"),
}
LOOKS_FOR: Final = {name: {"sync", "getChildren"} for name in COMPOUND if "protected" in name}
"""A protected create that is cancelled looks for its node: the request may have been applied, for all it knows."""
compound = pytest.mark.parametrize("name", COMPOUND)


def with_top(main: Callable[[Server, Client], Any], **options: Any) -> None:
    """Run with a server that has a few nodes, and a client."""

    async def run(server: Server, zk: Client) -> None:
        server.populate({"/top": {"a": b"", "b": b""}})
        await main(server, zk)

    with_client(run, **options)


def requests(server: Server) -> list[str]:
    """Return the names of the requests that the server has received."""
    return [entry.op for entry in server.ops() if entry.op not in ("connect", "ping")]


@compound
def test_the_first_request_of_a_compound_call_is_made_when_the_method_returns(name: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        before = zk.statistics()

        call = COMPOUND[name](zk)
        made = zk.statistics()
        zk.flush()
        sent = zk.statistics()

        assert isinstance(call, Call)
        assert made.waiting == before.waiting + 1
        assert (sent.waiting, sent.in_flight, sent.requests_sent) == (0, before.in_flight + 1, before.requests_sent + 1)
        await call

    with_top(main)


@compound
def test_a_call_of_several_requests_that_is_cancelled_at_once_sends_none_of_them(name: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        before = set(server.tree())

        call = COMPOUND[name](zk)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await zk.sync()

        assert call.cancelled()
        assert set(requests(server)) == LOOKS_FOR.get(name, {"sync"})
        assert set(server.tree()) == before

    with_top(main)


@compound
def test_cancelling_a_call_of_several_requests_cancels_the_one_that_waits(name: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        before = set(server.tree())
        server.refuse_connections()
        server.drop(zk)
        await zk.wait_for(State.SUSPENDED)
        call = COMPOUND[name](zk)
        await asyncio.sleep(0.1)

        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        server.accept_connections()
        await zk.sync()

        assert call.cancelled()
        assert set(requests(server)) == LOOKS_FOR.get(name, {"sync"})
        assert set(server.tree()) == before

    with_top(main)


def test_a_protected_node_whose_create_is_cancelled_at_once_is_deleted() -> None:
    async def main(server: Server, zk: Client) -> None:
        call = zk.create("/lock-", ephemeral=True, sequential=True, protected=True)
        zk.flush()
        call.cancel()
        await asyncio.sleep(1)

        assert requests(server)[0] == "create"
        assert not server.tree()
        assert zk.statistics().idle

    with_client(main)


@compound
def test_a_call_of_several_requests_whose_time_is_up_before_it_began_leaves_nothing(name: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        before = set(server.tree())

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await COMPOUND[name](zk)
        await asyncio.sleep(1)

        assert set(server.tree()) == before
        assert zk.statistics().idle

    with_top(main)


def test_a_request_of_a_call_that_was_cancelled_complains_to_nobody() -> None:
    async def main(server: Server, zk: Client) -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        call = zk.create("/top", parents=True)
        zk.flush()

        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await zk.sync()

        assert complaints == []

    with_top(main)


def test_an_error_of_any_request_is_the_error_of_the_call() -> None:
    async def main(server: Server, zk: Client) -> None:
        with pytest.raises(NodeExistsError) as caught:
            await zk.create("/top", parents=True)

        assert caught.value.path == "/top"

    with_top(main)


@compound
def test_closing_the_client_ends_a_call_of_several_requests(name: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        server.refuse_connections()
        server.drop(zk)
        await zk.wait_for(State.SUSPENDED)
        call = COMPOUND[name](zk)

        await zk.aclose()

        with pytest.raises(ClosedError):
            await call

    with_top(main)


def test_calls_of_several_requests_can_be_gathered_and_given_to_tasks() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(zk.create("/x/y", parents=True))
        paths = await asyncio.gather(zk.create("/x/z/1", parents=True), zk.create("/x/z/2", parents=True))

        assert [task.result(), *paths] == ["/x/y", "/x/z/1", "/x/z/2"]

    with_client(main)
