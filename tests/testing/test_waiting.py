"""``Server.wait_for``: in threads and in loops, in time and too late."""

from __future__ import annotations

import asyncio
import threading

import pytest
from support.wire import DEADLINE_S, Wire

from zoolet.server import Server


def test_wait_for_gives_what_the_predicate_returned(server: Server) -> None:
    server.populate({"/a": "x"})

    assert server.wait_for(lambda: "yes") == "yes"
    assert server.wait_for(lambda one: one.tree().get("/a")).data == b"x"


def test_wait_for_waits_for_what_others_do(server: Server, wire: Wire) -> None:
    looked = threading.Event()

    def there() -> bool:
        found = "/a" in server.tree()
        looked.set()
        return found

    def make() -> None:
        looked.wait(DEADLINE_S)
        wire.create("/a")

    maker = threading.Thread(target=make)
    maker.start()

    assert server.wait_for(there, DEADLINE_S) is True
    maker.join(DEADLINE_S)


def test_too_late_is_a_timeout_error_with_the_last_operations(server: Server, wire: Wire) -> None:
    wire.create("/some/where")

    def never() -> bool:
        return False

    with pytest.raises(TimeoutError) as failure:
        server.wait_for(never, 0.01)

    text = str(failure.value)
    assert "never" in text
    assert "0.01 s" in text
    assert "create /some/where" in text
    assert "NO_NODE" in text


def test_an_error_of_the_predicate_goes_through(server: Server) -> None:
    with pytest.raises(ZeroDivisionError):
        server.wait_for(lambda: 1 / 0)


async def test_in_its_own_loop_it_is_awaited_and_the_loop_goes_on() -> None:
    async with Server() as server:
        turns = 0

        def third() -> bool:
            nonlocal turns
            turns += 1
            return turns >= 3

        assert await server.wait_for(third) is True
        asyncio.get_running_loop().call_later(0.01, server.populate, {"/a": ""})
        assert await server.wait_for(lambda one: "/a" in one.tree(), DEADLINE_S) is True
        with pytest.raises(TimeoutError, match="the last operations"):
            await server.wait_for(lambda: False, 0.01)


async def test_an_await_can_be_cancelled() -> None:
    async with Server() as server:
        waiting = asyncio.ensure_future(server.wait_for(lambda: False))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
