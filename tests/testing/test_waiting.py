"""``Server.wait_for`` and similar methods, in threads and in event loops, with and without timeouts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import pytest
from kazoo.client import KazooClient
from support.waiting import DEADLINE_S
from support.wire import EPHEMERAL, Wire

from zoolet.client import Client
from zoolet.protocol import records as r
from zoolet.protocol.operations import OpCode
from zoolet.testing import Server, hold

NO_NODE: Final = -101


def test_wait_for_returns_result_of_predicate(server: Server) -> None:
    server.populate({"/a": "x"})

    assert server.wait_for(lambda: "yes") == "yes"
    assert server.wait_for(lambda one: one.tree().get("/a")).data == b"x"


def test_predicate_of_wait_for_must_be_function(server: Server) -> None:
    with pytest.raises(TypeError, match="predicate must be a function, not 5"):
        server.wait_for(5)  # type: ignore[arg-type]


def test_wait_for_waits_for_changes_by_others(server: Server, wire: Wire) -> None:
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


def test_timeout_error_shows_last_operations(server: Server, wire: Wire) -> None:
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


def test_error_of_predicate_propagates(server: Server) -> None:
    with pytest.raises(ZeroDivisionError):
        server.wait_for(lambda: 1 / 0)


async def test_until_does_not_block_its_loop() -> None:
    async with Server() as server:
        turns = 0

        def third() -> bool:
            nonlocal turns
            turns += 1
            return turns >= 3

        assert await server.until(third) is True
        asyncio.get_running_loop().call_later(0.01, server.populate, {"/a": ""})
        assert await server.until(lambda one: "/a" in one.tree(), DEADLINE_S) is True
        with pytest.raises(TimeoutError, match="the last operations"):
            await server.until(lambda: False, 0.01)


async def test_wait_for_in_server_loop_names_until() -> None:
    async with Server() as server:
        with pytest.raises(RuntimeError, match=r"await until\(\.\.\.\) instead"):
            server.wait_for(lambda: False)


async def test_waiting_with_until_is_cancellable() -> None:
    async with Server() as server:
        waiting = asyncio.ensure_future(server.until(lambda: False))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


# --- waits for named conditions ---


def timeout_message(wait: Callable[[], object]) -> str:
    """Return the first line of the error of a wait that times out."""
    with pytest.raises(TimeoutError) as failure:
        wait()
    first, *operations = str(failure.value).splitlines()
    assert operations
    return first


def test_wait_for_node_waits_for_node_and_its_data(server: Server, wire: Wire) -> None:
    later = threading.Timer(0.05, lambda: server.populate({"/a": b"2"}))
    server.populate({"/a": b"1"})
    later.start()

    assert server.wait_for_node("/a").path == "/a"
    assert server.wait_for_node("/a", "2").version == 1
    later.join()


def test_timeout_message_names_missing_condition(server: Server, wire: Wire) -> None:
    server.populate({"/a": b"1"})
    port = wire.link.getsockname()[1]

    assert timeout_message(lambda: server.wait_for_node("/b", timeout=0.01)) == (
        "after 0.01 s: /b did not appear; the last operations were:"
    )
    assert timeout_message(lambda: server.wait_for_node("/a", b"2", timeout=0.01)).startswith(
        "after 0.01 s: /a: expected the data b'2', found b'1'; the"
    )
    assert timeout_message(lambda: server.wait_for_sessions(3, timeout=0.01)).startswith(
        f"after 0.01 s: expected 3 sessions, found 1 (0x{wire.id:x} from 127.0.0.1:{port});"
    )
    assert timeout_message(lambda: server.wait_for_contenders("/a", 1, timeout=0.01)).startswith(
        "after 0.01 s: expected 1 contender for /a, found 0 (none);"
    )


def test_wait_for_sessions_waits_for_exact_number(server: Server, wires: ExitStack) -> None:
    server.wait_for_sessions(0)
    wires.enter_context(Wire(server)).welcomed()
    server.wait_for_sessions(1)
    with pytest.raises(TimeoutError):
        server.wait_for_sessions(0, timeout=0.01)


def test_contenders_of_lock_are_holder_and_waiters(server: Server, kazoo: Callable[..., Any]) -> None:
    first, second = kazoo(server).Lock("/lock"), kazoo(server).Lock("/lock")
    first.acquire()
    server.wait_for_contenders("/lock", 1)
    waiting = threading.Thread(target=second.acquire)
    waiting.start()
    server.wait_for_contenders("/lock", 2)
    first.release()
    waiting.join(DEADLINE_S)
    server.wait_for_contenders("/lock", 1)


def test_contenders_of_election_are_leader_and_waiters(server: Server, kazoo: Callable[..., Any]) -> None:
    done = threading.Event()
    threads = [threading.Thread(target=kazoo(server).Election("/el").run, args=(done.wait,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    server.wait_for_contenders("/el", 3)
    done.set()
    for thread in threads:
        thread.join(DEADLINE_S)
    server.wait_for_contenders("/el", 0)


def test_contenders_of_a_semaphore_are_its_holders(server: Server, kazoo: Callable[..., Any]) -> None:
    for _ in range(2):
        kazoo(server).Semaphore("/leases", max_leases=2).acquire()
    server.wait_for_contenders("/leases", 2)


def test_wait_for_idle_waits_for_running_and_held_requests(server: Server, wire: Wire) -> None:
    server.wait_for_idle()
    with server.fault(hold(), "exists") as fault:
        wire.send(OpCode.EXISTS, r.ExistsRequest("/a", False))
        server.wait_for(lambda: fault.hits)
        with pytest.raises(TimeoutError, match=r"not idle: exists /a waits because of \[fault\(hold"):
            server.wait_for_idle(timeout=0.2)
        fault.release()
    server.wait_for_idle()
    assert wire.reply() == NO_NODE


async def test_until_methods_do_not_block_loop() -> None:
    async with Server() as server, Client(server.hosts) as zk:
        node = asyncio.create_task(server.until_node("/a", b"1"))
        contenders = asyncio.create_task(server.until_contenders("/lock", 1))
        await server.until_sessions(1)
        await zk.create("/a", b"1")
        async with zk.lock("/lock"):
            await contenders
        assert (await node).data == b"1"
        assert await server.until(lambda one: "/a" in one.tree()) is True
        await server.until_idle()


async def test_until_methods_work_for_server_in_thread(server: Server) -> None:
    asyncio.get_running_loop().call_later(0.02, server.populate, {"/a": b""})

    assert (await server.until_node("/a")).path == "/a"
    with pytest.raises(TimeoutError, match="/b did not appear") as failure:
        await server.until_node("/b", timeout=0.01)
    assert "until" not in str(failure.value)


async def test_blocking_wait_in_server_loop_is_refused() -> None:
    async with Server() as server:
        with pytest.raises(RuntimeError, match="would block the server's event loop; await until_"):
            server.wait_for_node("/a")


@pytest.mark.parametrize("path", ["", "a", "/a/", None])
def test_invalid_path_is_refused(server: Server, path: Any) -> None:
    with pytest.raises(ValueError, match="is not a path"):
        server.wait_for_node(path)
    with pytest.raises(ValueError, match="is not a path"):
        server.wait_for_contenders(path, 1)


def test_curator_contenders_count_but_not_nodes_below(server: Server, wire: Wire) -> None:
    server.populate({"/lock": b"", "/lock/_c_a-lock-0000000000": {}})
    for path in (
        "/lock/_c_b-lock-0000000001",
        "/lock/_c_c-lock-0000000002",
        "/lock/other",
        "/lock/_c_a-lock-0000000000/x",
    ):
        wire.create(path, EPHEMERAL)

    server.wait_for_contenders("/lock", 2)


def test_wait_for_idle_waits_for_50_ms_without_requests(server: Server, wire: Wire) -> None:
    began = time.monotonic()
    wire.exists("/a")
    server.wait_for_idle()

    assert time.monotonic() - began >= 0.05


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), "1", None, True])
def test_invalid_timeout_is_refused(server: Server, timeout: Any) -> None:
    for wait in (server.wait_for_sessions, server.wait_for_idle):
        with pytest.raises(ValueError, match="timeout must be from 0 to 1,000,000,000 s, not "):
            wait(*(() if wait == server.wait_for_idle else (1,)), timeout=timeout)


# --- a reconnected client ---


def test_dropped_client_is_back_after_resume(server: Server, wire: Wire) -> None:
    server.wait_for_client(wire.id, 0.0)

    server.drop(wire.id)
    with pytest.raises(TimeoutError, match=f"session 0x{wire.id:x} was not answered after its last disconnection"):
        server.wait_for_client(wire.id, 0.0)

    with Wire(server, session=(wire.id, wire.password)).welcomed():
        server.wait_for_client(wire.id, 0.0)


def test_client_is_not_back_while_handshake_is_held(server: Server, wire: Wire) -> None:
    server.drop(wire.id)

    with server.fault(hold(), "connect") as fault, Wire(server, session=(wire.id, wire.password)):
        server.wait_for(lambda: fault.hits == 1)
        with pytest.raises(TimeoutError):
            server.wait_for_client(wire.id, 0.0)
        fault.release()
        server.wait_for_client(wire.id)


def test_client_is_not_back_while_replies_are_paused(server: Server, wire: Wire) -> None:
    server.pause(wire.id, direction="replies")

    with pytest.raises(TimeoutError):
        server.wait_for_client(wire.id, 0.0)


@pytest.mark.parametrize("who", ["all", None, "zk"])
def test_wait_for_client_refuses_invalid_arguments(server: Server, who: Any) -> None:
    with pytest.raises(ValueError, match=r"^who must be a KazooClient, a zoolet Client"):
        server.wait_for_client(who)


@pytest.mark.parametrize("disturb", [Server.drop, Server.expire, lambda server, zk: server.restart()])
def test_requests_of_kazoo_succeed_after_return(
    server: Server, kazoo: Callable[..., KazooClient], disturb: Callable[[Server, KazooClient], None]
) -> None:
    zk = kazoo(server)

    for _ in range(5):
        disturb(server, zk)
        server.wait_for_client(zk)
        assert zk.exists("/") is not None


async def test_asyncio_requests_succeed_after_until_client() -> None:
    async with Server() as server, Client(server.hosts) as zk:
        server.drop(zk)
        await server.until_client(zk)
        assert await zk.exists("/") is not None
