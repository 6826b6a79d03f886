"""A failing background task fails its recipe: its block is cancelled, or its changes raise the error."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import pytest
from support.crew import double
from support.leftovers import leftovers
from support.simulation import eventually, with_client

from zoolet.client import AuthFailedError, Client, ClosedError, NoAuthError, serializers
from zoolet.client.aio.core import ClientCore
from zoolet.client.recipes import (
    ChildrenCache,
    Config,
    Discovery,
    Election,
    Instance,
    Lock,
    LockLostError,
    Master,
    NodeCache,
    NodeElection,
    Party,
    PersistentEphemeral,
    TreeCache,
    Worker,
)
from zoolet.client.serializers import Serializer
from zoolet.protocol.acl import READ_ACL_UNSAFE
from zoolet.testing import Server, delay, drop_request, error


def _decode_or_break(data: bytes) -> Any:
    if data == b"broken":
        raise KeyError("broken")
    return data


FRAGILE_SERIALIZER = Serializer("fragile", bytes, _decode_or_break)
"""A defective serializer, which raises unexpected errors."""
CACHES: dict[str, Callable[[Client, str], Any]] = {
    "node": lambda zk, path: NodeCache(zk.with_serializer(FRAGILE_SERIALIZER), path),
    "tree": lambda zk, path: TreeCache(zk.with_serializer(FRAGILE_SERIALIZER), path),
    "children": lambda zk, path: ChildrenCache(zk.with_serializer(FRAGILE_SERIALIZER), path),
    "config": lambda zk, path: Config(zk, path, serializer=FRAGILE_SERIALIZER),
}

LONGER_THAN_TEST_S: Final = 1000.0
"""More virtual seconds than any test takes."""


async def wait_forever() -> None:
    """Wait for an event that never happens."""
    await asyncio.wait_for(asyncio.Event().wait(), LONGER_THAN_TEST_S)


# --- caches ---


@pytest.mark.parametrize("kind", CACHES)
def test_changes_of_failed_cache_raise_error(kind: str) -> None:
    seen: list[Any] = []

    async def main(server: Server, zk: Client) -> None:
        await zk.create("/a", b"fine")
        async with CACHES[kind](zk, "/a") as cache:

            async def follow() -> None:
                async for change in cache.changes():
                    seen.append(change)  # noqa: PERF401

            following = asyncio.ensure_future(follow())
            await asyncio.sleep(1)
            await zk.set("/a", b"broken")
            with pytest.raises(KeyError, match="broken"):
                await asyncio.wait_for(following, 60)
            with pytest.raises(KeyError, match="broken"):  # the error is raised again for a later call
                await anext(cache.changes())
        assert not leftovers(server, zk)

    with_client(main)

    assert len(seen) == 1


@pytest.mark.parametrize("kind", ["node", "tree", "children"])
def test_reentered_cache_waits_for_its_first_read(kind: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        loop = asyncio.get_running_loop()
        await zk.create("/a", b"fine")
        cache = CACHES[kind](zk, "/a")
        async with cache:
            pass
        with server.fault(delay(5.0)):
            began = loop.time()
            async with cache:
                assert loop.time() - began >= 5.0

    with_client(main)


@pytest.mark.parametrize("kind", CACHES)
def test_block_of_cache_with_failing_first_read_is_not_entered(kind: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.create("/a", b"broken")

        with pytest.raises(KeyError, match="broken"):
            await CACHES[kind](zk, "/a").__aenter__()

        assert not leftovers(server, zk)

    with_client(main)


def test_failure_of_cache_in_background_is_logged_with_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with CACHES["node"](zk, "/a") as cache:
            await zk.create("/a", b"broken")

            async def use() -> None:
                async for _ in cache.changes():
                    continue

            with pytest.raises(KeyError):
                await use()

    with_client(main)

    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "background task" in record.getMessage()
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)


def test_repeated_server_error_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.create("/a", b"1")
        async with NodeCache(zk, "/a") as cache:
            for value in (b"2", b"3"):
                with server.fault(error(NoAuthError), "getData"):
                    await zk.set("/a", value)
                    await asyncio.sleep(10)
                await asyncio.sleep(10)
                assert cache.value == value

    with_client(main)

    messages = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(messages) == 2
    refused = "the ACL does not allow this operation"
    assert all("which will be repeated" in message and refused in message for message in messages), messages


# --- blocks of recipes with failing background tasks ---


def test_failed_recreation_of_ephemeral_fails_block() -> None:
    async def main(server: Server, zk: Client) -> None:
        async def use() -> None:
            value: dict[str, object] = {}
            async with PersistentEphemeral(zk.with_serializer(serializers.json), "/a", value):
                value["bad"] = object()
                server.expire(zk)
                await wait_forever()

        with pytest.raises(TypeError, match="value must be supported"):
            await use()
        assert not leftovers(server, zk)

    with_client(main)


def test_failed_recreation_of_party_node_fails_block() -> None:
    async def main(server: Server, zk: Client) -> None:
        async def use() -> None:
            async with Party(zk, "/p", b"me") as party:
                party._member._value = object()
                server.expire(zk)
                await wait_forever()

        with pytest.raises(TypeError, match="data must be bytes"):
            await use()
        assert not leftovers(server, zk)

    with_client(main)


def test_failed_reregistration_fails_discovery() -> None:
    async def main(server: Server, zk: Client) -> None:
        async def use() -> None:
            async with Discovery(zk, "/s") as discovery:
                registering = asyncio.ensure_future(discovery.register(Instance("web", "1")))
                await registering  # in a different task, but still in the block of the discovery
                discovery._nodes["/s/web/1"]._value = {"bad": object()}
                server.expire(zk)
                await wait_forever()

        with pytest.raises(TypeError, match="not JSON serializable"):
            await use()
        assert not leftovers(server, zk)

    with_client(main)


def test_failed_first_registration_does_not_fail_discovery() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Discovery(zk, "/s") as discovery:
            with pytest.raises(TypeError, match="not JSON serializable"):
                await discovery.register(Instance("web", "1", payload=object()))
            await discovery.register(Instance("web", "1"))
            await asyncio.sleep(1)
            assert await discovery.instances("web") == [Instance("web", "1")]

    with_client(main)


def test_failing_heartbeat_fails_worker_block() -> None:
    async def main(server: Server, zk: Client) -> None:
        async def use() -> None:
            async with Worker(zk, "/jobs", "w", double):
                await zk.set_acl("/jobs/workers/w", READ_ACL_UNSAFE)
                await wait_forever()

        with pytest.raises(NoAuthError):
            await use()
        assert not leftovers(server, zk)

    with_client(main)


def test_worker_block_fails_without_write_permission() -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.ensure_path("/jobs/results")
        await zk.set_acl("/jobs/results", READ_ACL_UNSAFE)

        async def use() -> None:
            async with Worker(zk, "/jobs", "w", double):
                await zk.create("/jobs/tasks/t", b"1", parents=True)
                await zk.create("/jobs/assigned/w/t", b"1")
                await wait_forever()

        with pytest.raises(NoAuthError):
            await use()

    with_client(main)


def test_master_without_write_permission_fails_and_resigns() -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.ensure_path("/jobs/assigned/w")
        await zk.ensure_path("/jobs/workers/w")
        await zk.set("/jobs/workers/w", b"{}")
        await zk.set_acl("/jobs/assigned/w", READ_ACL_UNSAFE)

        master = Master(zk, "/jobs", "m-1")

        async def use() -> None:
            async with master:
                await master.submit("x")
                await wait_forever()

        with pytest.raises(NoAuthError):
            await use()
        await asyncio.sleep(1)
        assert master.leadership is None
        assert not leftovers(server, zk)

    with_client(main)


# --- cancellation, and closing the client ---


async def _await_cancelled_task(*_: object) -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel("by its owner")
    await future


def test_cancellation_in_worker_handler_becomes_task_error() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Master(zk, "/jobs", "m") as master, Worker(zk, "/jobs", "w", _await_cancelled_task):
            task = await master.submit("x")
            assert "awaited was cancelled by its owner" in str(await master.result(task, 60))

    with_client(main)


def test_command_awaiting_cancelled_task_is_answered() -> None:
    async def main(server: Server, zk: Client) -> None:
        worker = Worker(zk, "/jobs", "w", double, on_command=_await_cancelled_task)
        async with Master(zk, "/jobs", "m") as master, worker:
            await master.active
            for _ in range(2):
                (answer,) = (await master.command("go", timeout=60)).values()
                assert "awaited was cancelled" in str(answer)

    with_client(main)


def test_background_task_awaiting_cancelled_task_reports_failure() -> None:
    failures: list[Exception] = []

    async def main(server: Server, zk: Client) -> None:
        zk._core.spawn(_await_cancelled_task(), on_failure=failures.append)
        zk._core.spawn(wait_forever(), on_failure=failures.append).cancel()
        await asyncio.sleep(1)

    with_client(main)

    assert [str(error) for error in failures] == ["a future that the task awaited was cancelled"]


@pytest.mark.parametrize("kind", ["worker", "master", "ephemeral"])
def test_client_close_by_other_task_cancels_block(kind: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        blocks: dict[str, Callable[[], Any]] = {
            "worker": lambda: Worker(zk, "/jobs", "w", double),
            "master": lambda: Master(zk, "/jobs", "m"),
            "ephemeral": lambda: PersistentEphemeral(zk, "/a", b""),
        }

        async def use() -> None:
            async with blocks[kind]():
                await wait_forever()

        using = asyncio.ensure_future(use())
        await asyncio.sleep(1)
        await zk.aclose()

        with pytest.raises(ClosedError):
            await asyncio.wait_for(using, 10)

    with_client(main)


def test_client_can_be_closed_inside_block() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with PersistentEphemeral(zk, "/a", b""):
            await zk.aclose()

    with_client(main)


def test_closing_client_does_not_cancel_task_that_leaves_block() -> None:
    async def main(server: Server, zk: Client) -> None:
        async def use() -> None:
            async with PersistentEphemeral(zk, "/a", b""):
                await asyncio.sleep(1)
                asyncio.get_running_loop().call_soon(lambda: closing.append(asyncio.ensure_future(zk.aclose())))

        closing: list[asyncio.Future[None]] = []
        await use()
        await closing[0]

    with_client(main)


def test_follower_fails_if_credentials_are_refused() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with NodeCache(zk, "/a") as cache:

            async def use() -> None:
                async for _ in cache.changes():
                    continue

            using = asyncio.ensure_future(use())
            await asyncio.sleep(1)
            await zk.add_auth("digest", b"bob:secret")
            with server.fault(error(AuthFailedError), "auth"):  # the server no longer knows bob
                server.drop(zk)
                with pytest.raises(AuthFailedError):
                    await asyncio.wait_for(using, 10)

        with pytest.raises(AuthFailedError):
            await asyncio.wait_for(NodeCache(zk, "/b").__aenter__(), 10)

    with_client(main)


def test_block_of_lock_lost_during_acquire_is_not_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Lock(zk, "/lock"):
            pass
        # As if the process had been stopped while it acquired the lock.
        monkeypatch.setattr(ClientCore, "valid_for", lambda self: 0.0)

        with pytest.raises(LockLostError):
            async with Lock(zk, "/lock", on_lost="cancel"):
                pytest.fail("it was entered")

        await asyncio.sleep(1)
        assert not await zk.children("/lock")

    with_client(main)


# --- outages ---

CHANGE_ITERATORS: dict[str, Callable[[Client], Any]] = {
    "party": lambda zk: Party(zk, "/x").changes(),
    "election": lambda zk: Election(zk, "/x").observe(),
    "node election": lambda zk: NodeElection(zk, "/x/leader").observe(),
    "progress": lambda zk: Master(zk, "/x").progress("t"),
}
CHANGED_NODES: dict[str, tuple[str, bytes]] = {
    "party": ("/x/0__party__", b"me"),
    "election": (f"/x/{'0' * 32}__lock__0000000000", b"me"),
    "node election": ("/x/leader", b"me"),
    "progress": ("/x/progress/t", b'"me"'),
}


@pytest.mark.parametrize("expire", [False, True])
@pytest.mark.parametrize("kind", CHANGE_ITERATORS)
def test_change_iterators_continue_after_outage_over_timeout(kind: str, expire: bool) -> None:
    seen: list[Any] = []

    async def main(server: Server, zk: Client) -> None:
        view = zk.with_operation_timeout(0.5)
        await zk.ensure_path("/x")

        async def follow() -> None:
            async for change in CHANGE_ITERATORS[kind](view):
                seen.append(change)  # noqa: PERF401

        following = asyncio.ensure_future(follow())
        await asyncio.sleep(1)
        session_id = zk.session_id
        path, data = CHANGED_NODES[kind]
        with server.fault(drop_request(), path="/x*", client=zk, times=1) as fault:
            server.refuse_connections()
            server.populate({path: data})  # this causes a read, during which the connection is lost
            await eventually(lambda: fault.hits)
        await asyncio.sleep(5)
        if expire:
            server.expire(session_id)
        server.accept_connections()
        await eventually(lambda: "me" in str(seen[-1:]))
        following.cancel()

    with_client(main)


@pytest.mark.parametrize("kind", CHANGE_ITERATORS)
def test_follower_fails_on_close_of_client(kind: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        async def follow() -> None:
            async for _ in CHANGE_ITERATORS[kind](zk):
                continue

        following = asyncio.ensure_future(follow())
        await asyncio.sleep(1)
        await zk.aclose()
        with pytest.raises(ClosedError):
            await asyncio.wait_for(following, 10)

    with_client(main)


# --- recipes outside their block ---

UNENTERED_USES: dict[str, Callable[[Client], Any]] = {
    "the nodes of a tree cache": lambda zk: TreeCache(zk, "/a").nodes,
    "the errors of a tree cache": lambda zk: TreeCache(zk, "/a").errors,
    "the values of a children cache": lambda zk: ChildrenCache(zk, "/a").values,
    "the value of a node cache": lambda zk: NodeCache(zk, "/a").value,
    "the value of a configuration": lambda zk: Config(zk, "/a").value,
    "changes": lambda zk: anext(TreeCache(zk, "/a").changes()),
    "an event of a watch": lambda zk: zk.watch("/a").next(),
    "a registration": lambda zk: Discovery(zk, "/a").register(Instance("web", "1")),
    "an instance": lambda zk: Discovery(zk, "/a").pick("web"),
    "another value of an ephemeral node": lambda zk: PersistentEphemeral(zk, "/a").set(b"2"),
    "a report": lambda zk: Worker(zk, "/a", "w", double).report("t", 1),
}


@pytest.mark.parametrize("what", UNENTERED_USES)
def test_recipe_used_without_entering_its_block_raises(what: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        with pytest.raises(RuntimeError, match="was not entered; use it inside its `async with` block"):
            await UNENTERED_USES[what](zk)
        assert not leftovers(server)

    with_client(main)


def test_cache_is_not_readable_after_its_block() -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.create("/a", b"1")
        async with TreeCache(zk, "/a") as tree, NodeCache(zk, "/a") as node:
            assert tree.nodes["/a"].value == node.value == b"1"
        for read in (lambda: tree.nodes, lambda: tree.errors, lambda: node.value, lambda: node.stat):
            with pytest.raises(RuntimeError, match="not entered"):
                read()

    with_client(main)


def test_config_can_be_published_without_entering_its_block() -> None:
    async def main(server: Server, zk: Client) -> None:
        config = Config(zk, "/a")
        await config.publish({"x": 1})
        assert config.value == {"x": 1}
        await config.update(lambda value: {**value, "y": 2})
        assert config.version == 1

    with_client(main)
