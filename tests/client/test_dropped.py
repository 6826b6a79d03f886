"""Clients that a program drops without closing them, and operations, which leave nothing for the garbage collector."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from zoolet.client import AuthFailedError, Client, ZooKeeperError, blocking, recipes
from zoolet.testing import Server

# --- clients ---


async def start_client(hosts: str) -> Client:
    """Return a started client."""
    zk = Client(hosts)
    await zk.start()
    return zk


async def test_garbage_collected_client_warns_and_closes_session(server: Server) -> None:
    zk = await start_client(server.hosts)
    await zk.create("/ephemeral", ephemeral=True)

    with pytest.warns(ResourceWarning, match="was dropped without being closed, so it ends; use"):
        del zk

    await server.until(lambda: not server.sessions())
    await asyncio.sleep(0)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("zoolet-client")]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_call_of_dropped_client_is_answered(server: Server) -> None:
    assert await (await start_client(server.hosts)).get("/")


CLIENT_USERS: Final[dict[str, Callable[[Client], Any]]] = {
    "view": lambda zk: zk.with_operation_timeout(1.0),
    "watch": lambda zk: zk.watch("/"),
    "states": lambda zk: zk.states(),
    "lock": lambda zk: zk.lock("/lock"),
    "transaction": lambda zk: zk.transaction(),
    "recipe": lambda zk: recipes.Counter(zk, "/counter"),
}


@pytest.mark.parametrize("user", CLIENT_USERS)
async def test_client_is_not_collected_while_any_object_uses_it(server: Server, user: str) -> None:
    zk = await start_client(server.hosts)
    using = CLIENT_USERS[user](zk)
    del zk
    await asyncio.sleep(0.01)
    assert server.sessions()

    with pytest.warns(ResourceWarning):
        del using

    await server.until(lambda: not server.sessions())


def test_dropped_blocking_client_warns_and_stops(zoolet: Server) -> None:
    threads = threading.active_count()
    zk = blocking.Client(zoolet.hosts)
    zk.start()
    lock = zk.lock("/lock")
    del zk
    with lock:
        assert zoolet.sessions()

    with pytest.warns(ResourceWarning, match="was dropped without being closed"):  # noqa: PT031
        del lock
        zoolet.wait_for(lambda: not zoolet.sessions() and threading.active_count() == threads)


def test_dropping_closed_or_unused_client_does_not_warn(zoolet: Server) -> None:
    Client(zoolet.hosts)
    blocking.Client(zoolet.hosts)
    with blocking.Client(zoolet.hosts):
        pass


# --- operations ---


async def fail_transaction(zk: Client) -> None:
    """Commit a transaction that fails, because the parent is missing."""
    async with zk.transaction() as transaction:
        transaction.create("/missing/a")


async def wait_for_held_lock(zk: Client) -> None:
    """Wait in a task for a lock that the current task holds, until a timeout."""
    async with zk.lock("/lock"):
        with contextlib.suppress(TimeoutError):
            await asyncio.create_task(zk.lock("/lock", timeout=0.001).acquire())


async def watch(zk: Client) -> None:
    """Watch a subtree."""
    async with zk.watch("/", recursive=True):
        pass


async def get_with_expired_timeout(zk: Client) -> None:
    """Make a call that times out."""
    async with asyncio.timeout(0):
        await zk.get("/")


OPERATIONS: Final[dict[str, Callable[[Client], Any]]] = {
    "get": lambda zk: zk.get("/"),
    "failed get": lambda zk: zk.get("/missing"),
    "limited get": get_with_expired_timeout,
    "failed transaction": fail_transaction,
    "failed update": lambda zk: zk.update("/missing", lambda value: value),
    "failed recursive delete": lambda zk: zk.delete("/missing", recursive=True),
    "failed ensure_path": lambda zk: zk.ensure_path("/zookeeper/quota/a"),
    "failed create with parents": lambda zk: zk.create("/zookeeper/quota/a/b", parents=True),
    "watch": watch,
    "lock": wait_for_held_lock,
}


@contextlib.contextmanager
def garbage() -> Iterator[list[str]]:
    """Collect the types of the objects that only the garbage collector frees."""
    gc.collect()
    gc.disable()
    found: list[str] = []
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += [type(one).__name__ for one in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_operation_creates_no_reference_cycle(server: Server, operation: str) -> None:
    async with Client(server.hosts) as zk:

        async def do() -> None:
            with contextlib.suppress(ZooKeeperError, TimeoutError):
                await OPERATIONS[operation](zk)
            await asyncio.sleep(0.01)  # lets the background tasks of the operation end

        await do()
        with garbage() as found:
            await do()
    assert found == []


@pytest.mark.parametrize("operation", ["get", "failed get", "limited call", "lock"])
def test_blocking_operation_creates_no_reference_cycle(zoolet: Server, operation: str) -> None:
    with blocking.Client(zoolet.hosts) as zk:

        def do() -> None:
            with contextlib.suppress(ZooKeeperError, TimeoutError):
                if operation == "lock":
                    with zk.lock("/lock"):
                        pass
                elif operation == "limited call":
                    zk.run(lambda: asyncio.sleep(10), timeout=0.001)
                else:
                    zk.get("/" if operation == "get" else "/missing")

        do()
        with garbage() as found:
            do()
            zk.exists("/")  # returns only after the loop has finished the previous call
    assert found == []


async def test_dropped_client_stops_if_warnings_are_errors(server: Server) -> None:
    zk = await start_client(server.hosts)
    with warnings.catch_warnings(), collect_ignored_errors() as errors:
        warnings.simplefilter("error")
        del zk
    assert [type(error) for error in errors] == [ResourceWarning]
    await server.until(lambda: not server.sessions())


@contextlib.contextmanager
def collect_ignored_errors() -> Iterator[list[BaseException | None]]:
    """Collect the errors that Python ignores."""
    errors: list[BaseException | None] = []
    before, sys.unraisablehook = sys.unraisablehook, lambda ignored: errors.append(ignored.exc_value)
    try:
        yield errors
    finally:
        sys.unraisablehook = before


def test_thread_of_dropped_failed_client_stops(zoolet: Server) -> None:
    threads = threading.active_count()
    zk = blocking.Client(zoolet.hosts)
    zk.start()

    async def fail(client: Any) -> None:
        client._core.session.close("for the test", AuthFailedError(detail="for the test"))

    zk.use(fail)
    del zk

    zoolet.wait_for(lambda: threading.active_count() == threads)


async def test_client_of_dropped_lease_stops(server: Server) -> None:
    zk = await start_client(server.hosts)
    lease = await zk.lock("/lock").acquire()
    await server.until(lambda: server.watches())  # the client watches the node of the lease

    with pytest.warns(ResourceWarning, match="was dropped while held"):
        del lease
    with pytest.warns(ResourceWarning, match="was dropped without being closed"):  # noqa: PT031
        del zk
        await server.until(lambda: not server.sessions())


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_credential_of_dropped_client_is_sent(server: Server) -> None:
    zk = await start_client(server.hosts)
    call = zk.add_auth("digest", b"user:password")
    del zk
    await call
