"""Closing a client: its session ends immediately, earlier calls are answered, and closing takes at most a second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Self

import pytest
from support.simulation import Connect, make_client, simulate

from zoolet.client import Client, ClosedError, State, recipes
from zoolet.client.wire.requests import copy_error
from zoolet.testing import Server, Simulation, hold


async def test_close_removes_session_immediately(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    await zk.create("/here", ephemeral=True)

    await zk.aclose()

    assert not server.sessions()
    assert not server.tree()


async def test_close_answers_earlier_calls_and_refuses_later(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    call = zk.create("/a")

    await zk.aclose()

    assert await call == "/a"
    for late in (lambda: zk.get("/a"), lambda: zk.create("/b"), lambda: zk.add_auth("digest", b"a:b")):
        with pytest.raises(ClosedError):
            late()


async def test_close_fails_calls_waiting_for_connection(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    server.refuse_connections()
    server.drop(zk)
    await zk.wait_for(State.SUSPENDED)
    calls = [zk.get("/a"), zk.create("/a"), zk.add_auth("digest", b"bob:secret")]

    await zk.aclose()

    for call in calls:
        with pytest.raises(ClosedError):
            await call


async def test_close_is_repeatable_and_works_before_start(server: Server, connect: Connect) -> None:
    zk, never = await connect(server.hosts), Client(server.hosts)

    await asyncio.gather(zk.aclose(), zk.aclose())
    await zk.aclose()
    await never.aclose()

    assert never.state is State.CLOSED
    with pytest.raises(ClosedError):
        never.get("/")


async def test_traceback_of_closed_client_does_not_grow_with_each_call(embedded: Client) -> None:
    await embedded.aclose()
    depths = set()

    for _ in range(5):
        with pytest.raises(ClosedError) as caught:
            embedded.get("/")
        depths.add(len(caught.traceback))

    assert len(depths) == 1


def test_client_close_takes_at_most_one_second_on_any_network() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        took = {}
        for how in ("connected", "stalled", "paused", "cut", "refused"):
            zk = make_client(server)
            await zk.start()
            if how == "stalled":
                sim.network.pause()
            elif how == "paused":
                server.pause(zk)
            elif how == "cut":
                sim.network.drop()
            elif how == "refused":
                server.refuse_connections()
                server.drop("all")
                await zk.wait_for(State.SUSPENDED)
            began = sim.time()
            await zk.aclose()
            took[how] = sim.time() - began
            sim.network.resume()
            server.accept_connections()

        assert took["connected"] < 0.1
        assert max(took.values()) <= 1.0

    simulate(main)


def test_close_limit_includes_wait_for_earlier_request() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        with server.fault(hold(), "getData"):
            zk = make_client(server)
            await zk.start()
            reading = asyncio.ensure_future(zk.get("/"))
            await asyncio.sleep(0.7)
            start = sim.time()
            await zk.aclose()
            assert sim.time() - start < 0.21
            with pytest.raises(ClosedError):
                await reading

    simulate(main)


def test_close_waits_for_cleanup_of_background_task() -> None:
    ended: list[str] = []

    async def job(seconds: float) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(seconds)
            ended.append(f"after {seconds} s")

    async def main(sim: Simulation, server: Server) -> None:
        zk = make_client(server)
        await zk.start()
        for seconds in (1, 600):
            zk._core.spawn(job(seconds))
        await asyncio.sleep(0)
        begun = asyncio.get_running_loop().time()
        await zk.aclose()
        assert ended == ["after 1 s"]
        assert asyncio.get_running_loop().time() - begun <= 2.1

    simulate(main)


def test_background_task_can_close_its_client() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        zk = make_client(server)
        await zk.start()
        await zk._core.spawn(zk.aclose())
        assert zk.state is State.CLOSED

    simulate(main)


async def test_each_caller_of_closed_client_gets_own_error_object(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    await zk.aclose()
    errors: list[BaseException] = []
    for use in (lambda: zk.get("/"), lambda: zk.add_auth("digest", b"a:b"), lambda: zk.wait_for(State.CONNECTED)) * 2:
        try:
            await use()
        except ClosedError as error:
            error.add_note("of this caller")
            errors.append(error)

    assert len({id(error) for error in errors}) == 6
    assert all(error.__notes__ == ["of this caller"] for error in errors)
    assert all(error.__context__ is None for error in errors)
    assert all(str(error) == str(zk.terminal_error) for error in errors)


async def test_each_reader_of_failed_cache_gets_own_error_object(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    async with recipes.NodeCache(zk, "/a") as cache:
        failure = ValueError("failed")
        cache._follower._error = failure
        raised = [await _raised_error(anext(cache.changes())) for _ in range(3)]

    assert len({id(error) for error in raised} - {id(failure)}) == 3
    assert [str(error) for error in raised] == ["failed"] * 3


async def _raised_error(awaitable: Awaitable[Any]) -> BaseException:
    try:
        await awaitable
    except ValueError as error:
        return error
    raise AssertionError("no error")


class UncopyableError(Exception):
    """An error that cannot be copied, because ``__new__`` and ``args`` disagree on the number of arguments."""

    def __new__(cls, one: int, two: int) -> Self:
        return super().__new__(cls, one)

    def __init__(self, one: int, two: int) -> None:
        super().__init__("text")


def test_error_that_cannot_be_copied_is_used_itself() -> None:
    peculiar = UncopyableError(1, 2)
    assert copy_error(peculiar) is peculiar


class FixedTextError(OSError):
    """An error whose text is not in the arguments of its constructor."""

    def __init__(self, text: str) -> None:
        super().__init__(5, text, "/file")


def test_copy_of_os_error_has_its_attributes() -> None:
    nameless = FixedTextError("no")
    copied = copy_error(nameless)
    assert (str(copied), copied.errno, copied.filename) == ("[Errno 5] no: '/file'", 5, "/file")


class FormattingError(Exception):
    """An error whose constructor formats its argument."""

    def __init__(self, code: int) -> None:
        super().__init__(f"bad code {code:d}")
        self.code = code


def test_copy_of_user_error_is_equal() -> None:
    original = FormattingError(7)
    original.add_note("one")
    original.__cause__ = KeyError("why")

    copied = copy_error(original)
    copied.add_note("two")

    assert copied is not original
    assert (str(copied), copied.code, copied.__cause__) == ("bad code 7", 7, original.__cause__)
    assert original.__notes__ == ["one"]
    assert copy_error(KeyError("k")).__suppress_context__ is False
