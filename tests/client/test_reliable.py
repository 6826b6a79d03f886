"""The common parts of recipes: repeating, waiting for the first of several events, following, supervised blocks."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Final

import pytest
from support.simulation import eventually, with_client

from zoolet.client import (
    Client,
    ClosedError,
    ConnectionLossError,
    NoNodeError,
    SessionExpiredError,
    State,
    WatchOverflowError,
)
from zoolet.client.aio.reliable import create_protected, repeat
from zoolet.client.aio.supervision import Follower, SupervisedBlock, first_event
from zoolet.client.aio.watcher import Watcher
from zoolet.testing import Server, lose_reply

DEFECT: Final = TypeError("a defect")


def request_with_outcomes(*outcomes: Any) -> Callable[[], Awaitable[Any]]:
    """Return a request that has these outcomes in turn: results are returned, errors are raised."""
    left = list(outcomes)

    async def attempt() -> Any:
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return attempt


# --- repeated requests ---


def test_request_is_repeated_until_answered() -> None:
    async def main(server: Server, zk: Client) -> None:
        assert (
            await repeat(
                request_with_outcomes(ConnectionLossError(), SessionExpiredError(), ConnectionLossError(), "v")
            )
            == "v"
        )

    with_client(main)


def test_repetition_returns_none_for_expected_error() -> None:
    async def main(server: Server, zk: Client) -> None:
        assert await repeat(request_with_outcomes(ConnectionLossError(), NoNodeError()), done=(NoNodeError,)) is None

    with_client(main)


@pytest.mark.parametrize("error", [NoNodeError("/a"), ClosedError(), DEFECT], ids=["an answer", "closed", "a defect"])
def test_unexpected_error_stops_repetition_of_request(error: Exception) -> None:
    async def main(server: Server, zk: Client) -> None:
        with pytest.raises(type(error)):
            await repeat(request_with_outcomes(ConnectionLossError(), error))

    with_client(main)


def test_delete_with_lost_replies_is_repeated() -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.create("/a")
        with server.fault(lose_reply(), "delete", times=1, strict=True):
            await repeat(lambda: zk.delete("/a"), done=(NoNodeError,))

        assert not server.tree()

    with_client(main)


# --- the first of several events ---


@pytest.mark.parametrize("which", ["/a", "/b"])
def test_first_event_returns_at_event_of_any_watch(which: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with zk.watch("/a") as a, zk.watch_exists("/b") as b:
            waiting = asyncio.create_task(first_event(a, b))
            await asyncio.sleep(1)
            waited = not waiting.done()
            await zk.create(which)

            await waiting
            assert waited

    with_client(main)


def test_client_close_stops_wait_for_events_of_several_watches() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with zk.watch("/a") as a, zk.watch("/b") as b:
            waiting = asyncio.create_task(first_event(a, b))
            await asyncio.sleep(1)

            await zk.aclose()

            with pytest.raises(ClosedError):
                await waiting

    with_client(main)


def test_watches_failing_together_leave_no_unretrieved_error() -> None:
    async def main(server: Server, zk: Client) -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        async with zk.watch("/a") as a, zk.watch("/b") as b:
            waiting = asyncio.create_task(first_event(a, b))
            await asyncio.sleep(1)
            a._fail(KeyError("a"))
            b._fail(KeyError("b"))
            with pytest.raises(KeyError):
                await waiting
        del waiting, a, b
        gc.collect()  # a deleted task with an unretrieved error would log that error
        assert complaints == []

    with_client(main)


def test_cancelled_wait_for_any_event_leaves_no_task() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with zk.watch("/a") as a, zk.watch("/b") as b:
            before = asyncio.all_tasks()
            waiting = asyncio.create_task(first_event(a, b))
            await asyncio.sleep(1)

            waiting.cancel()
            await asyncio.wait([waiting])
            await asyncio.sleep(0)

            assert asyncio.all_tasks() == before
            await zk.create("/a")
            assert (await a.next()).path == "/a"

    with_client(main)


# --- followers ---


class RecordingFollower:
    """A follower that records the data of a node. Single steps can be made to fail."""

    def __init__(self, client: Client, path: str = "/a") -> None:
        self.client = client
        self.path = path
        self.seen: list[bytes] = []
        self.fails: list[Exception] = []
        self.watcher: Watcher | None = None
        self.follower = Follower(client, self._step)

    async def _step(self) -> None:
        if self.fails:
            raise self.fails.pop(0)
        async with self.client.watch(self.path) as self.watcher:
            await self._read()
            self.follower.mark_ready()
            async for _ in self.watcher:
                await self._read()

    async def _read(self) -> None:
        if self.fails:
            raise self.fails.pop(0)
        self.seen.append((await self.client.get(self.path))[0])
        self.follower.mark_changed()

    async def __aenter__(self) -> RecordingFollower:
        await self.follower.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.follower.stop()


def following(main: Callable[[Server, Client], Coroutine[Any, Any, None]]) -> None:
    """Run with a node to follow; no task may be left."""

    async def run(server: Server, zk: Client) -> None:
        await zk.create("/a", b"0")
        before = asyncio.all_tasks()
        await main(server, zk)
        await asyncio.sleep(1)
        assert asyncio.all_tasks() <= before
        assert zk.statistics().registrations == zk.statistics().background_tasks == 0

    with_client(run)


def test_follower_has_first_value_after_start_and_gets_changes() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with RecordingFollower(zk) as it:
            seen = list(it.seen)
            changes = it.follower.changes()
            await anext(changes)
            await zk.set("/a", b"1")
            await anext(changes)

        assert (seen, it.seen) == ([b"0"], [b"0", b"1"])

    following(main)


@pytest.mark.parametrize("error", [ConnectionLossError(), SessionExpiredError(), WatchOverflowError("/a", 1)])
def test_failed_step_of_started_follower_is_repeated(error: Exception) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with RecordingFollower(zk) as it:
            it.fails = [error, error]
            await zk.set("/a", b"1")

            await eventually(lambda: it.seen[-1] == b"1")

    following(main)


def test_follower_start_raises_server_error_of_first_step() -> None:
    async def main(server: Server, zk: Client) -> None:
        with pytest.raises(NoNodeError):
            await RecordingFollower(zk, "/missing").follower.start()

    following(main)


def test_follower_start_raises_unexpected_error_of_first_step() -> None:
    async def main(server: Server, zk: Client) -> None:
        it = RecordingFollower(zk)
        it.fails = [DEFECT]

        with pytest.raises(TypeError, match="a defect"):
            await it.follower.start()

    following(main)


def test_follower_changes_raise_unexpected_error_of_later_step(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with RecordingFollower(zk) as it:
            changes = it.follower.changes()
            await anext(changes)
            waiting = asyncio.ensure_future(anext(changes))
            it.fails = [DEFECT]
            await zk.set("/a", b"1")

            with pytest.raises(TypeError, match="a defect"):
                async with asyncio.timeout(5):
                    await waiting
            with pytest.raises(TypeError, match="a defect"):
                await anext(it.follower.changes())

    following(main)

    assert "a background task of" in caplog.text
    assert "a defect" in caplog.text


def test_follower_changes_raise_if_client_closes() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with RecordingFollower(zk) as it:
            changes = it.follower.changes()
            await anext(changes)
            waiting = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(1)

            await zk.aclose()

            with pytest.raises(ClosedError):
                async with asyncio.timeout(5):
                    await waiting

    following(main)


def test_stopping_follower_ends_iteration_of_changes() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with RecordingFollower(zk) as it:
            changes = it.follower.changes()
            await anext(changes)
            waiting = asyncio.ensure_future(anext(changes, None))
            await asyncio.sleep(1)

        async with asyncio.timeout(5):
            assert await waiting is None

    following(main)


def test_cancelled_start_of_follower_cleans_up() -> None:
    async def main(server: Server, zk: Client) -> None:
        it = RecordingFollower(zk)
        starting = asyncio.create_task(it.follower.start())
        await asyncio.sleep(0.0005)
        starting.cancel()
        await asyncio.wait([starting])

        assert starting.cancelled()

    following(main)


# --- protected creates ---


def test_protected_create_uses_node_of_first_attempt() -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.create("/id-1")

        path = await create_protected(zk, "/", "id-1", lambda: zk.create("/id-1", ephemeral=True), create_parent=None)

        assert path == "/id-1"

    with_client(main)


def test_protected_create_without_lookup_is_maybe_applied() -> None:
    async def main(server: Server, zk: Client) -> None:
        with server.fault(lose_reply(), "create", times=1, strict=True):
            call = zk.with_operation_timeout(1).create("/a", ephemeral=True, protected=True)
            await asyncio.sleep(0.0001)
            server.refuse_connections()
            with pytest.raises(ConnectionLossError) as caught:
                await call

        assert caught.value.maybe_applied
        assert caught.value.path is not None
        assert caught.value.path.endswith("-a")

    with_client(main)


# --- supervised blocks ---


class Supervised:
    """An ``async with`` block with background tasks."""

    def __init__(self, client: Client) -> None:
        self.block = SupervisedBlock(client)

    async def __aenter__(self) -> SupervisedBlock:
        self.block.enter()
        return self.block

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.block.exit(kind)


async def fail(error: Exception = DEFECT) -> None:
    """Fail after a short delay."""
    await asyncio.sleep(0.1)
    raise error


def test_error_of_supervised_task_cancels_block_and_is_raised() -> None:
    async def main(server: Server, zk: Client) -> None:
        others: list[asyncio.Task[Any]] = []

        async def run() -> None:
            async with asyncio.timeout(5), Supervised(zk) as block:
                others.append(block.spawn(asyncio.Event().wait()))
                block.spawn(fail())
                await asyncio.Event().wait()

        with pytest.raises(TypeError, match="a defect"):
            await run()
        await asyncio.sleep(0.1)

        assert others[0].cancelled()
        task: Any = asyncio.current_task()
        assert task.cancelling() == 0
        assert zk.statistics().background_tasks == 0

    with_client(main)


def test_only_first_error_of_block_is_raised() -> None:
    async def main(server: Server, zk: Client) -> None:
        async def run() -> None:
            async with asyncio.timeout(5), Supervised(zk) as block:
                block.spawn(fail(KeyError("first")))
                block.spawn(fail(TypeError("second")))
                await asyncio.Event().wait()

        with pytest.raises(KeyError):
            await run()

    with_client(main)


def test_end_of_supervised_block_cancels_its_tasks() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Supervised(zk) as block:
            task = block.spawn(asyncio.Event().wait())
            await asyncio.sleep(0)
        await asyncio.wait([task])

        assert task.cancelled()

    with_client(main)


def test_error_of_supervised_block_precedes_error_of_its_task() -> None:
    async def main(server: Server, zk: Client) -> None:
        async def run() -> None:
            async with Supervised(zk) as block:
                block.spawn(fail())
                try:
                    await asyncio.Event().wait()
                finally:
                    raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            await run()

    with_client(main)


@pytest.mark.parametrize("fails", [False, True], ids=["alone", "with a failing task"])
def test_external_cancellation_of_supervised_block_propagates(fails: bool) -> None:
    async def main(server: Server, zk: Client) -> None:
        async def run() -> None:
            async with Supervised(zk) as block:
                block.spawn(fail() if fails else asyncio.Event().wait())
                await asyncio.Event().wait()

        outer = asyncio.create_task(run())
        timer = zk._core.spawn(asyncio.sleep(0.1))  # finishes in the same iteration as the failure
        timer.add_done_callback(lambda _: outer.cancel())
        await asyncio.wait([outer])

        assert outer.cancelled()

    with_client(main)


def test_expired_timeout_of_block_raises_timeout_error() -> None:
    async def main(server: Server, zk: Client) -> None:
        async def run() -> None:
            async with asyncio.timeout(1), Supervised(zk) as block:
                block.spawn(asyncio.Event().wait())
                await asyncio.Event().wait()

        with pytest.raises(TimeoutError):
            await run()

    with_client(main)


def test_task_ended_by_session_does_not_cancel_block() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Supervised(zk) as block:
            block.spawn(fail(SessionExpiredError()))
            await asyncio.sleep(1)

        assert zk.state is State.CONNECTED

    with_client(main)


def test_supervised_block_left_in_different_task_raises_failure() -> None:
    async def main(server: Server, zk: Client) -> None:
        supervised = Supervised(zk)
        block = await asyncio.create_task(supervised.__aenter__())
        block.spawn(fail())
        await asyncio.sleep(1)

        with pytest.raises(TypeError, match="a defect"):
            await supervised.__aexit__(None, None, None)

    with_client(main)


def test_failure_before_entry_cancels_supervised_block() -> None:
    async def main(server: Server, zk: Client) -> None:
        block = SupervisedBlock(zk)
        block.fail(DEFECT)
        block.enter()

        with pytest.raises(asyncio.CancelledError) as caught:
            await asyncio.sleep(100)
        with pytest.raises(TypeError, match="a defect"):
            block.exit(caught.type)

    with_client(main)
