"""The client for threads, as programs use and misuse it: exits, interrupts, subclasses, mocks, and its end."""

from __future__ import annotations

import copy
import inspect
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Final
from unittest import mock

import pytest

from zoolet.client import State
from zoolet.client.blocking import Client
from zoolet.client.blocking.recipes import ChildrenCache, Counter, Election, LockLostError
from zoolet.client.serializers import json
from zoolet.server import Server

DEADLINE_S: Final = 10.0  # only ever reached on failure


@pytest.fixture
def server() -> Iterator[Server]:
    """A server in a thread of its own."""
    with Server() as running:
        yield running


@pytest.fixture
def zk(server: Server) -> Iterator[Client]:
    """A connected client."""
    with Client(server.hosts) as client:
        yield client


def test_recipes_that_are_imported_after_a_lock_of_the_client_are_recipes(server: Server) -> None:
    program = f"""
from zoolet.client.blocking import Client
with Client({server.hosts!r}) as zk:
    with zk.lock("/a/l"):
        pass
    from zoolet.client.blocking.recipes import Lock
    with Lock(zk, "/a/l2") as lease:
        print(lease.token > 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_an_exit_in_a_function_of_the_user_s_reaches_its_caller(zk: Client) -> None:
    zk.create("/a")
    for leave in (SystemExit(3), KeyboardInterrupt()):

        def change(value: bytes, leave: BaseException = leave) -> bytes:
            raise leave

        with pytest.raises(type(leave)):
            zk.update("/a", change)
        with pytest.raises(type(leave)):
            Election(zk, "/e").run(lambda _, leave=leave: change(b"", leave))
    assert zk.get("/a")[0] == b""


def test_a_handler_that_raises_stop_iteration_fails(zk: Client) -> None:
    with pytest.raises(RuntimeError, match="a handler raised StopIteration"):
        Election(zk, "/e").run(lambda _: next(iter(())))


def test_a_handler_must_be_a_function_that_returns_no_coroutine(zk: Client) -> None:
    async def lead(_: object) -> None:
        """Nobody awaits this."""

    with pytest.raises(TypeError, match="a handler must be a function, not 5"):
        Election(zk, "/e").run(5)
    with pytest.raises(TypeError, match="must be an ordinary function, or async"):
        Election(zk, "/e").run(lambda leadership: lead(leadership))


def test_a_call_that_is_interrupted_as_it_is_made_is_cancelled(server: Server, zk: Client) -> None:
    loop = zk.loop_thread._loop
    wake = loop._write_to_self

    def interrupt() -> None:
        loop._write_to_self = wake
        wake()
        raise KeyboardInterrupt

    lock = zk.lock("/l")
    loop._write_to_self = interrupt
    with pytest.raises(KeyboardInterrupt):
        lock.acquire()
    server.wait_for(lambda: not zk.exists("/l") or not zk.children("/l"))
    lock.__enter__()
    loop._write_to_self = interrupt
    with pytest.raises(KeyboardInterrupt):
        lock.__exit__(None, None, None)
    server.wait_for(lambda: zk.children("/l") == [])  # the end of a block is not given up


def test_views_of_a_subclass_are_of_the_subclass(server: Server) -> None:
    class Mine(Client):
        def mine(self) -> str:
            return "mine"

    with Mine(server.hosts) as zk:
        for view in (zk.with_operation_timeout(1), zk.with_acl(None), zk.with_serializer(json)):
            assert view.mine() == "mine"


def test_the_signatures_are_those_for_threads() -> None:
    assert (
        str(inspect.signature(Client.get))
        == "(self, path: 'str', *, timeout: 'float | None' = None) -> 'tuple[Any, Stat]'"
    )
    assert inspect.signature(Client.lock).parameters["on_lost"].default == "flag"
    mock.create_autospec(Client, instance=True).get("/a", timeout=1)
    assert mock.MagicMock(spec=Client("127.0.0.1:1")).__enter__
    assert Client("127.0.0.1:1") == mock.ANY
    assert not [name for name in dir(Client) if name.isupper()]


def test_transactions_and_watches_are_made_before_the_client_starts() -> None:
    zk = Client("127.0.0.1:1")
    zk.transaction().create("/a")
    zk.watch("/a")
    with pytest.raises(TypeError, match="timeout"):
        zk.transaction(timeout=1)


def test_a_lease_and_the_states_can_be_asked_after_the_client_was_closed(server: Server) -> None:
    zk = Client(server.hosts)
    states = zk.states()
    zk.start()
    lease = zk.lock("/l").acquire()
    zk.close()
    assert lease.lost.is_set()
    assert lease.valid_for() == 0.0
    with pytest.raises(LockLostError):
        lease.raise_if_lost()
    assert list(states) == [State.CONNECTING, State.CONNECTED, State.CLOSED]


def test_an_iterator_gives_each_item_to_one_thread_and_its_end_to_all(zk: Client) -> None:
    found: list[object] = []

    def consume() -> None:
        found.extend(iterator)

    zk.create("/c")
    with ChildrenCache(zk, "/c") as cache:
        iterator = cache.changes()
        threads = [threading.Thread(target=consume) for _ in range(3)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + DEADLINE_S
        while not found and time.monotonic() < deadline:
            time.sleep(0.001)
        iterator.close()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert not any(thread.is_alive() for thread in threads)
    with pytest.raises(ValueError, match="timeout is -1"):
        cache.changes().next(timeout=-1)


def test_what_has_no_block_says_so(zk: Client) -> None:
    with pytest.raises(TypeError, match="context manager"), Counter(zk, "/n"):
        pass
    assert copy.copy(Counter(zk, "/n")).add() == 1
