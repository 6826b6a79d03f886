"""Request hooks: their arguments, the times of their calls, and the isolation of their errors."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import Any

import pytest
from support.simulation import make_client, simulate, with_client

from zoolet.client import Client, NodeExistsError, RequestInfo, blocking
from zoolet.testing import Server, Simulation, delay

CALLER_NAME: contextvars.ContextVar[str] = contextvars.ContextVar("CALLER_NAME", default="nobody")


class Recorder:
    """A hook that records the start and the end of each request."""

    def __init__(self) -> None:
        self.began: list[tuple[str, str | None, str]] = []
        self.ended: list[tuple[str, type[BaseException] | None]] = []

    def __call__(self, request: RequestInfo) -> Any:
        """Record a request."""
        self.began.append((request.operation, request.path, CALLER_NAME.get()))
        return lambda error: self.ended.append((request.operation, type(error) if error is not None else None))


def test_errors_that_recipes_handle_are_marked_as_expected() -> None:
    unexpected: list[BaseException] = []

    def hook(request: RequestInfo) -> Any:
        return lambda error: unexpected.append(error) if error and not isinstance(error, request.expected) else None

    async def main(server: Server, zk: Client) -> None:
        async with zk.lock("/first/lock"):
            await zk.create("/a/b/c", parents=True)
        await zk.ensure_path("/a/b/c")
        await zk.delete("/a", recursive=True)
        with pytest.raises(NodeExistsError):
            await zk.create("/first")

    with_client(main, on_request=hook)

    assert [type(error) for error in unexpected] == [NodeExistsError]


def test_request_hook_is_called_at_start_and_end_of_request() -> None:
    hook = Recorder()

    async def main(server: Server, zk: Client) -> None:
        CALLER_NAME.set("me")
        await zk.create("/a", b"1")
        with pytest.raises(NodeExistsError):
            await zk.create("/a")
        async with zk.transaction() as transaction:
            transaction.set("/a", b"2")
        with server.fault(delay(5), "getData", times=1, strict=True):
            reading = asyncio.ensure_future(zk.get("/a"))
            await asyncio.sleep(1)
            assert hook.ended == [("create", None), ("create", NodeExistsError), ("multi", None)]
            reading.cancel()
            await asyncio.sleep(0)

        assert hook.began == [
            ("create", "/a", "me"),
            ("create", "/a", "me"),
            ("multi", None, "me"),
            ("getData", "/a", "me"),
        ]
        assert hook.ended[-1] == ("getData", asyncio.CancelledError)

    with_client(main, on_request=hook)


def test_hook_reports_requests_of_recipes_and_views() -> None:
    hook = Recorder()

    async def main(server: Server, zk: Client) -> None:
        async with zk.with_operation_timeout(1).lock("/lock"):
            pass
        assert [operation for operation, _, _ in hook.began][:2] == ["create2", "getChildren"]

    with_client(main, on_request=hook)


@pytest.mark.parametrize("when", ["beginning", "end"])
def test_error_of_request_hook_is_logged_and_isolated(when: str, caplog: pytest.LogCaptureFixture) -> None:
    def hook(request: RequestInfo) -> Any:
        def ended(error: BaseException | None) -> None:
            raise KeyError(when)

        return {}["begin"] if when == "beginning" else ended

    async def main(server: Server, zk: Client) -> None:
        assert await zk.create("/a") == "/a"

    with caplog.at_level(logging.ERROR):
        with_client(main, on_request=hook)
    assert "the hook on_request <function" in caplog.text


def test_unawaited_call_error_is_reported_despite_request_hook() -> None:
    async def run(sim: Simulation, server: Server) -> None:
        async with make_client(server, on_request=Recorder()) as zk:
            zk.delete("/nothing")
            await asyncio.sleep(1)

    # The simulation raises this error; other event loops log it.
    with pytest.raises(RuntimeError, match="exception was never retrieved"):
        simulate(run)


def test_request_hook_runs_in_context_of_calling_thread() -> None:
    hook = Recorder()
    with Server() as server, blocking.Client(server.hosts, on_request=hook) as zk:
        CALLER_NAME.set("a thread")
        zk.create("/a")

    assert ("create", "/a", "a thread") in hook.began


def test_request_hook_gets_paths_without_chroot() -> None:
    hook = Recorder()

    async def run(sim: Simulation, server: Server) -> None:
        server.populate({"/app": {"x": {"y": b""}}})
        async with Client(server.hosts + "/app", on_request=hook) as zk:
            async with zk.watch("/x", recursive=True) as events:
                while events.resyncing:
                    await asyncio.sleep(0.01)
        assert {path for _, path, _ in hook.began} == {"/x", "/x/y"}

    simulate(run)


def test_error_of_request_hook_is_logged_once_per_minute(caplog: pytest.LogCaptureFixture) -> None:
    def hook(request: RequestInfo) -> Any:
        raise ValueError("no metrics")

    async def main(server: Server, zk: Client) -> None:
        for minute in range(3):
            for _ in range(100):
                await zk.exists("/")
            failed = [record.getMessage() for record in caplog.records if "hook" in record.getMessage()]
            assert len(failed) == minute + 1
            await asyncio.sleep(60)
        assert failed[0].endswith("> failed")
        assert failed[1].endswith("> failed; 99 earlier errors were not logged")

    with_client(main, on_request=hook)
