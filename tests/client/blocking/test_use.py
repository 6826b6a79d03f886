"""Use and misuse of the blocking client: exits, interrupts, subclasses, mocks, and closing."""

from __future__ import annotations

import copy
import inspect
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any
from unittest import mock

import pytest
from support.leftovers import ephemerals
from support.waiting import DEADLINE_S, wait_until

from zoolet.client import ClosedError, State
from zoolet.client.blocking import Client, loop_thread, thread_call
from zoolet.client.blocking.proxy import BlockingIterator
from zoolet.client.blocking.recipes import (
    ChildrenCache,
    Counter,
    Election,
    LockLostError,
    Master,
    NodeCache,
    Worker,
)
from zoolet.client.client import States
from zoolet.client.serializers import json
from zoolet.testing import Server


def test_recipes_can_be_imported_after_first_lock(server: Server) -> None:
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


def test_system_exit_in_user_function_reaches_caller(zk: Client) -> None:
    zk.create("/a")
    for leave in (SystemExit(3), KeyboardInterrupt()):

        def change(value: bytes, leave: BaseException = leave) -> bytes:
            raise leave

        with pytest.raises(type(leave)):
            zk.update("/a", change)
        with pytest.raises(type(leave)):
            Election(zk, "/e").run(lambda _, leave=leave: change(b"", leave))
    assert zk.get("/a")[0] == b""


def test_handler_raising_stop_iteration_fails(zk: Client) -> None:
    with pytest.raises(RuntimeError, match="a handler raised StopIteration"):
        Election(zk, "/e").run(lambda _: next(iter(())))


def test_coroutine_or_non_callable_handler_is_refused(zk: Client) -> None:
    async def lead(_: object) -> None:
        """Do nothing; this coroutine is never awaited."""

    with pytest.raises(TypeError, match="a handler must be a function, not 5"):
        Election(zk, "/e").run(5)
    with pytest.raises(TypeError, match="define it with def or async def"):
        Election(zk, "/e").run(lambda leadership: lead(leadership))


def test_acquire_interrupted_during_submission_is_cancelled(server: Server, zk: Client) -> None:
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
    server.wait_for(lambda: zk.children("/l") == [])  # leaving the block still completes


def test_views_of_client_subclass_are_instances_of_subclass(server: Server) -> None:
    class Mine(Client):
        def mine(self) -> str:
            return "mine"

    with Mine(server.hosts) as zk:
        for view in (zk.with_operation_timeout(1), zk.with_acl(None), zk.with_serializer(json)):
            assert view.mine() == "mine"


def test_signatures_and_mocks_of_blocking_client_are_usable() -> None:
    assert (
        str(inspect.signature(Client.get))
        == "(self, path: 'str', *, timeout: 'float | None' = None) -> 'tuple[V, Stat]'"
    )
    assert inspect.signature(Client.lock).parameters["on_lost"].default == "flag"
    mock.create_autospec(Client, instance=True).get("/a", timeout=1)
    assert mock.MagicMock(spec=Client("127.0.0.1:1")).__enter__
    assert Client("127.0.0.1:1") == mock.ANY
    assert not [name for name in dir(Client) if name.isupper()]


def test_transaction_and_watch_can_be_made_before_client_start() -> None:
    zk = Client("127.0.0.1:1")
    zk.transaction().create("/a")
    zk.watch("/a")
    with pytest.raises(TypeError, match="timeout"):
        zk.transaction(timeout=1)


def test_lease_and_states_are_readable_after_close(server: Server) -> None:
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


def test_iterator_gives_each_item_to_only_one_thread(zk: Client) -> None:
    found: list[object] = []

    def consume() -> None:
        found.extend(iterator)

    zk.create("/c")
    with ChildrenCache(zk, "/c") as cache:
        iterator = cache.changes()
        threads = [threading.Thread(target=consume) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: found)
        iterator.close()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert not any(thread.is_alive() for thread in threads)
    with pytest.raises(ValueError, match="timeout must be 0 or more seconds, or None, not -1"):
        cache.changes().next(timeout=-1)


def test_recipe_used_outside_its_block_raises(zk: Client) -> None:
    with pytest.raises(TypeError, match="context manager"), Counter(zk, "/n"):
        pass
    assert copy.copy(Counter(zk, "/n")).add() == 1


def test_call_during_close_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def close_meanwhile(*args: Any) -> Any:
        monkeypatch.undo()
        zk.close()
        return thread_call.ThreadCall(*args)

    zk = Client(server.hosts)
    zk.start()
    monkeypatch.setattr(loop_thread, "ThreadCall", close_meanwhile)

    with pytest.raises(ClosedError):
        zk.exists("/a")


CALLER_NAME: ContextVar[str] = ContextVar("CALLER_NAME", default="nobody")


def test_handler_runs_in_context_of_its_caller(zk: Client) -> None:
    seen: list[str] = []

    def lead() -> None:
        seen.append(CALLER_NAME.get())
        CALLER_NAME.set("the handler")
        if len(seen) == 2:
            raise ValueError("enough")

    CALLER_NAME.set("the caller")
    with pytest.raises(ValueError, match="enough"):
        Election(zk, "/leader").run(lead)

    assert seen == ["the caller", "the caller"]


def test_worker_runs_in_context_of_its_caller(zk: Client) -> None:
    CALLER_NAME.set("the worker")
    with Master(zk, "/jobs") as master, Worker(zk, "/jobs", "w", lambda name, value: CALLER_NAME.get()):
        assert master.result(master.submit(1), timeout=DEADLINE_S)["result"] == "the worker"


def test_change_iterator_ends_with_block_after_earlier_timeout(zk: Client) -> None:
    with ChildrenCache(zk, "/") as cache:
        changes = cache.changes()
        next(changes)
        with pytest.raises(TimeoutError):
            changes.next(0.01)
    with pytest.raises(StopIteration):
        changes.next(DEADLINE_S)


def test_iterators_return_items_in_order_after_interrupts(zk: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def numbers() -> Any:
        for number in range(6):
            yield number

    items, wait, interrupts = BlockingIterator(zk.loop_thread, numbers()), thread_call.ThreadCall.wait, [2]

    def interrupted(call: Any) -> Any:
        item = wait(call)
        if interrupts[0]:
            interrupts[0] -= 1
            raise KeyboardInterrupt
        return item

    monkeypatch.setattr(thread_call.ThreadCall, "wait", interrupted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            next(items)
    assert list(items) == [0, 1, 2, 3, 4, 5]


def test_interrupted_client_use_call_keeps_lease(server: Server, zk: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = thread_call.ThreadCall.wait

    def interrupted(call: Any) -> Any:
        wait(call)
        monkeypatch.undo()
        raise KeyboardInterrupt

    with zk.lock("/lock") as lease:

        async def current(client: Any) -> Any:
            return lease.asyncio_object

        monkeypatch.setattr(thread_call.ThreadCall, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            zk.use(current)
        zk.exists("/")
        lease.raise_if_lost()
        assert len(ephemerals(server)) == 1


class SignalError(BaseException):
    """The error that a signal handler raises."""


def test_interrupt_after_iterator_call_loses_no_item(zk: Client) -> None:
    """After the call, no function may run before the item is returned, because a signal handler could interrupt it."""

    def trace(frame: Any, event: str, _: object) -> None:
        if event == "return" and frame.f_code is loop_thread.LoopThread.run.__code__:
            ended.append(frame.f_back.f_code.co_name)
        elif event == "call" and ended:
            raise SignalError

    with NodeCache(zk, "/") as cache, zk.watch("/a") as watch:
        changes, states = cache.changes(), zk.states()
        zk.create("/a", b"")
        ended: list[str] = []
        for iterator in (changes, states, watch):
            sys.setprofile(trace)
            try:
                next(iterator)
            finally:
                sys.setprofile(None)
            assert ended == ["next" if iterator is changes else "__next__"]
            ended.clear()


def test_state_iterator_continues_after_interrupt(server: Server, zk: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    states, wait = zk.states(), thread_call.ThreadCall.wait
    assert next(states) is State.CONNECTED

    def interrupted(call: Any) -> Any:
        wait(call)
        monkeypatch.undo()
        raise SignalError

    server.drop(zk)
    monkeypatch.setattr(thread_call.ThreadCall, "wait", interrupted)
    with pytest.raises(SignalError):
        next(states)
    assert [next(states), next(states)] == [State.SUSPENDED, State.CONNECTED]
    zk.close()
    assert list(states) == [State.CLOSED]


def test_threads_share_one_state_iterator(server: Server, zk: Client) -> None:
    states = zk.states()
    assert next(states) is State.CONNECTED
    with ThreadPoolExecutor(2) as pool:
        seen = [pool.submit(next, states) for _ in range(2)]
        server.drop(zk)
        assert {one.result(DEADLINE_S) for one in seen} == {State.SUSPENDED, State.CONNECTED}


def test_state_iterator_is_created_in_event_loop_thread(zk: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a different thread, a change could come between the first state and the first change."""
    threads, create = [], States.__init__

    def spied(states: Any, owner: Any) -> None:
        threads.append(threading.current_thread().name)
        create(states, owner)

    monkeypatch.setattr(States, "__init__", spied)
    zk.states()
    assert threads == ["zoolet-client"]


def test_lease_is_readable_while_client_closes(zk: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    lease, run = zk.lock("/lock").acquire(), loop_thread.LoopThread.run

    def close_first(thread: Any, do: Any, *args: Any) -> Any:
        monkeypatch.undo()
        zk.close()
        return run(thread, do, *args)

    monkeypatch.setattr(loop_thread.LoopThread, "run", close_first)
    assert lease.lost.is_set()
    monkeypatch.setattr(loop_thread.LoopThread, "run", close_first)
    assert lease.valid_for() == 0.0
