"""Blocking leases and recipes: all of them exist, with the names of the asyncio recipes."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
from support.rows import for_each
from support.waiting import DEADLINE_S, PROMPT_S, wait_until

from zoolet.client import ClosedError, NoAuthError, State, recipes
from zoolet.client.blocking import Client, thread_call
from zoolet.client.blocking import recipes as blocking
from zoolet.client.recipes import LockLostError
from zoolet.client.recipes._base import INTERNAL
from zoolet.protocol.acl import READ_ACL_UNSAFE
from zoolet.testing import Server, hold

# --- same names as the asyncio recipes ---


def test_blocking_module_contains_all_recipes() -> None:
    assert blocking.__all__ == recipes.__all__
    for name in recipes.__all__:
        assert inspect.getdoc(getattr(blocking, name)) == inspect.getdoc(getattr(recipes, name))


RECIPE_FACTORIES: Final[dict[str, Callable[[Client], Any]]] = {
    "Barrier": lambda zk: blocking.Barrier(zk, "/x"),
    "ChildrenCache": lambda zk: blocking.ChildrenCache(zk, "/x"),
    "Config": lambda zk: blocking.Config(zk, "/x"),
    "Counter": lambda zk: blocking.Counter(zk, "/x"),
    "Discovery": lambda zk: blocking.Discovery(zk, "/x"),
    "DoubleBarrier": lambda zk: blocking.DoubleBarrier(zk, "/x", 1),
    "DurableLock": lambda zk: blocking.DurableLock(zk, "/x", "me"),
    "Election": lambda zk: blocking.Election(zk, "/x", b"me"),
    "Lock": lambda zk: blocking.Lock(zk, "/x"),
    "LockTable": lambda zk: blocking.LockTable(zk, "/x"),
    "Overview": lambda zk: blocking.Overview(zk, "/x"),
    "LockingQueue": lambda zk: blocking.LockingQueue(zk, "/x"),
    "Master": lambda zk: blocking.Master(zk, "/x", "m"),
    "MultiLock": lambda zk: blocking.MultiLock(zk, ["/x", "/y"]),
    "NodeCache": lambda zk: blocking.NodeCache(zk, "/x"),
    "NodeElection": lambda zk: blocking.NodeElection(zk, "/x", b"me"),
    "Party": lambda zk: blocking.Party(zk, "/x", b"me"),
    "PersistentEphemeral": lambda zk: blocking.PersistentEphemeral(zk, "/x", b"me"),
    "PriorityQueue": lambda zk: blocking.PriorityQueue(zk, "/x"),
    "Queue": lambda zk: blocking.Queue(zk, "/x"),
    "ReadWriteLock": lambda zk: blocking.ReadWriteLock(zk, "/x"),
    "Semaphore": lambda zk: blocking.Semaphore(zk, "/x", 2),
    "SemaphoreLock": lambda zk: blocking.SemaphoreLock(zk, "/x"),
    "TreeCache": lambda zk: blocking.TreeCache(zk, "/x"),
    "TryLock": lambda zk: blocking.TryLock(zk, "/x"),
    "TwoPhaseCommit": lambda zk: blocking.TwoPhaseCommit(zk, "/x"),
    "UniqueId": lambda zk: blocking.UniqueId(zk, "/x"),
    "Worker": lambda zk: blocking.Worker(zk, "/x", "w", lambda task, value: value),
}


def test_recipe_factories_of_tests_cover_every_recipe() -> None:
    assert set(RECIPE_FACTORIES) == set(blocking.RECIPES)


@for_each("name", RECIPE_FACTORIES)
def test_recipe_has_all_public_names_of_asyncio_recipe(zk: Client, name: str) -> None:
    made = RECIPE_FACTORIES[name](zk)

    for member in dir(getattr(recipes, name)):
        if not member.startswith("_"):
            assert member in INTERNAL or member in dir(made)
            try:
                getattr(made, member)
            except RuntimeError as error:
                assert "was not entered" in str(error)  # noqa: PT017


@pytest.mark.parametrize("name", [name for name in RECIPE_FACTORIES if hasattr(getattr(recipes, name), "__aenter__")])
def test_recipe_block_leaves_no_ephemeral_node(server: Server, zk: Client, name: str) -> None:
    with RECIPE_FACTORIES[name](zk):
        pass

    server.wait_for(lambda: not any(view.ephemeral_owner for view in server.tree().values()), DEADLINE_S)


# --- each recipe ---


def test_lease_reports_state_and_guards_transaction(server: Server, zk: Client) -> None:
    with zk.lock("/lock") as lease:
        assert lease.token > 0
        assert lease.valid_for() > 0
        lease.raise_if_lost()
        with lease.transaction() as transaction:
            transaction.create("/done", b"1")
        assert zk.get("/done")[0] == b"1"

        zk.delete(lease.path)
        assert "deleted" in lease.lost.wait(timeout=DEADLINE_S)
        with pytest.raises(LockLostError):
            lease.raise_if_lost()
        with pytest.raises(LockLostError):
            lease.transaction()


def test_lock_is_acquired_and_released_without_block(zk: Client) -> None:
    lock = blocking.Lock(zk, "/lock")
    lease = lock.acquire()
    with pytest.raises(TimeoutError):
        lock.acquire(timeout=0.05)
    lease.release()
    lock.acquire(timeout=DEADLINE_S).release()

    assert lock.contenders() == []


def test_lock_is_reentrant_by_thread(zk: Client) -> None:
    lock = blocking.Lock(zk, "/lock", reentrant=True)
    with lock as outer, lock as inner, ThreadPoolExecutor() as pool:
        assert outer.token == inner.token
        with pytest.raises(TimeoutError):
            pool.submit(lock.acquire, 0.05).result(DEADLINE_S)
    lock.acquire(timeout=DEADLINE_S).release()


def test_threads_release_their_own_semaphore_leases(server: Server, zk: Client) -> None:
    semaphore = blocking.Semaphore(zk, "/pool", 2)
    inside, leave = threading.Barrier(2), threading.Event()

    def use(first: bool) -> None:
        with semaphore as lease:
            inside.wait(DEADLINE_S)
            if not first:
                leave.wait(DEADLINE_S)
                lease.raise_if_lost()

    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(use, first) for first in (True, False)]
        jobs[0].result(DEADLINE_S)
        leave.set()
        jobs[1].result(DEADLINE_S)


def test_read_write_lock_excludes_and_downgrades(zk: Client) -> None:
    lock = blocking.ReadWriteLock(zk, "/rw")
    with lock.read(), lock.read(), pytest.raises(TimeoutError):
        lock.write().acquire(timeout=0.05)
    writer = lock.write().acquire()
    reader = lock.downgrade(writer)
    with lock.read():
        reader.release()


def test_queues_counters_and_ids_return_values(zk: Client) -> None:
    queue, counter = blocking.Queue(zk, "/q"), blocking.Counter(zk, "/n")
    queue.put(b"1")
    assert queue.get(timeout=DEADLINE_S) == b"1"
    with pytest.raises(TimeoutError):
        queue.get(timeout=0.05)
    counter.add(5)
    assert counter.value() == 5
    locking = blocking.LockingQueue(zk, "/lq")
    locking.put(b"2")
    with locking.acquire() as entry:
        assert entry.value == b"2"
    assert locking.size() == 0
    assert blocking.UniqueId(zk, "/id").next() == 1


def test_caches_are_read_while_they_change(zk: Client) -> None:
    zk.ensure_path("/a")
    with blocking.TreeCache(zk, "/a") as cache, ThreadPoolExecutor() as pool:
        writing = pool.submit(lambda: [zk.create(f"/a/{number}") for number in range(300)])
        while not writing.done():
            assert all(path.startswith("/a") for path in cache.nodes)
        writing.result()
        changes = cache.changes()
        while len(changes.next(timeout=DEADLINE_S)) < 301:
            pass
        changes.close()


def test_party_reports_other_members(zk: Client, server: Server) -> None:
    with Client(server.hosts) as other, blocking.Party(zk, "/p", b"me") as party:
        changes = party.changes()
        assert next(changes) == [b"me"]
        with blocking.Party(other, "/p", b"you"):
            assert sorted(changes.next(timeout=DEADLINE_S)) == [b"me", b"you"]
        assert changes.next(timeout=DEADLINE_S) == [b"me"]
        with pytest.raises(TimeoutError):
            changes.next(timeout=0.05)
        zk.delete("/p/" + zk.children("/p")[0])
        assert changes.next(timeout=DEADLINE_S) is not None


def test_worker_handlers_may_block(zk: Client) -> None:
    def handle(task: str, value: Any) -> Any:
        time.sleep(0.01)
        return value * 2

    worker = blocking.Worker(zk, "/jobs", "w", handle, on_command=lambda command: command + "!")
    with blocking.Master(zk, "/jobs", "m") as master, worker:
        task = master.submit("x")
        assert master.result(task, timeout=DEADLINE_S) == {"worker": "w", "result": "xx"}
        assert master.command("go", timeout=DEADLINE_S) == {"w": {"answer": "go!"}}


def test_background_error_is_raised_at_end_of_block(zk: Client) -> None:
    with pytest.raises(NoAuthError), blocking.Worker(zk, "/jobs", "w", print, heartbeat_interval=0.01):  # noqa: PT012
        before = zk.statistics().background_tasks
        zk.set_acl("/jobs/workers/w", READ_ACL_UNSAFE)
        wait_until(lambda: zk.statistics().background_tasks != before)


# --- closing, timeouts, interruptions ---

WAITS: Final[dict[str, Callable[[Client], Any]]] = {
    "lock": lambda zk: blocking.Lock(zk, "/lock").acquire(),
    "lock with a timeout": lambda zk: blocking.Lock(zk, "/lock").acquire(timeout=DEADLINE_S),
    "with": lambda zk: zk.lock("/lock").__enter__(),
    "write lock": lambda zk: blocking.ReadWriteLock(zk, "/rw").write().acquire(),
    "semaphore": lambda zk: blocking.Semaphore(zk, "/pool", 1).acquire(),
    "election": lambda zk: blocking.Election(zk, "/e", b"").lead(),
    "queue": lambda zk: blocking.Queue(zk, "/q").get(),
    "locking queue": lambda zk: blocking.LockingQueue(zk, "/lq").acquire(),
    "barrier": lambda zk: blocking.DoubleBarrier(zk, "/b", 2).enter(),
    "event": lambda zk: zk.watch("/a").__enter__().next(),
    "held call": lambda zk: zk.exists("/held"),
    "changes": lambda zk: [None for _ in blocking.Party(zk, "/p").changes()],
    "state": lambda zk: [None for _ in zk.states()],
}


@pytest.mark.parametrize("after", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("what", WAITS)
def test_close_wakes_waiting_threads_immediately(server: Server, what: str, after: float) -> None:
    with (
        Client(server.hosts) as holder,
        holder.lock("/lock"),
        blocking.ReadWriteLock(holder, "/rw").read(),
        blocking.Semaphore(holder, "/pool", 1),
        blocking.Election(holder, "/e", b"holder"),
        server.fault(hold(), "exists", "/held"),
        ThreadPoolExecutor() as pool,
    ):
        zk = Client(server.hosts)
        zk.start()
        waiting = pool.submit(WAITS[what], zk)
        time.sleep(after)
        started = time.monotonic()
        zk.close()

        error = waiting.exception(DEADLINE_S)
        assert time.monotonic() - started < PROMPT_S
        assert isinstance(error, ClosedError) or (what == "state" and error is None), repr(error)


def test_watch_event_arriving_at_timeout_is_not_lost(zk: Client) -> None:
    count = 200
    with zk.watch("/a", recursive=True) as watch, ThreadPoolExecutor() as pool:
        zk.create("/a")
        writing = pool.submit(lambda: [zk.set("/a", str(number).encode()) for number in range(count)])
        seen, late = 0, 0
        deadline = time.monotonic() + DEADLINE_S
        while seen < count + 1 and time.monotonic() < deadline:
            try:
                watch.next(timeout=0.0005)
                seen += 1
            except TimeoutError:
                late += 1
        writing.result()

    assert seen == count + 1


def test_timed_out_acquire_holds_no_lock(server: Server, zk: Client) -> None:
    lock = blocking.Lock(zk, "/lock")
    for microseconds in range(0, 6_000, 100):
        try:
            lease = lock.acquire(timeout=microseconds / 1e6)
        except TimeoutError:
            lease = None
        if lease is not None:
            lease.release()
        server.wait_for(lambda: not lock.contenders(), DEADLINE_S)


def test_lock_granted_during_interruption_is_released(zk: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, other = blocking.Lock(zk, "/lock"), blocking.Lock(zk, "/lock")
    wait = thread_call.ThreadCall.wait

    def interrupted(self: Any) -> None:
        wait(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(thread_call.ThreadCall, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lock.acquire()
    monkeypatch.undo()

    other.acquire(timeout=DEADLINE_S).release()


def test_waiting_handlers_do_not_block_reconnect(server: Server) -> None:
    count, release = 12, threading.Event()
    together = threading.Barrier(count + 1)

    def handle(task: str, value: Any) -> Any:
        together.wait(DEADLINE_S)
        release.wait(DEADLINE_S)

    with Client(f"localhost:{server.port}", timeout=5) as zk:
        worker = blocking.Worker(zk, "/jobs", "w", handle, concurrency=count)
        with blocking.Master(zk, "/jobs", "m", per_worker=count) as master, worker:
            tasks = [master.submit(number) for number in range(count)]
            together.wait(DEADLINE_S)
            session_id = zk.session_id
            server.drop(zk)
            zk.exists("/")
            assert (zk.state, zk.session_id) == (State.CONNECTED, session_id)
            release.set()
            for task in tasks:
                master.result(task, timeout=DEADLINE_S)


@pytest.mark.parametrize("kind", ["election", "node election"])
def test_each_thread_leaves_its_own_leadership(server: Server, kind: str) -> None:
    with Client(server.hosts) as zk:
        make = {"election": blocking.Election, "node election": blocking.NodeElection}[kind]
        election = make(zk, "/e", b"me")
        entered, leave = threading.Event(), threading.Event()

        def lead_first() -> None:
            with election:
                entered.set()
                leave.wait(DEADLINE_S)

        with ThreadPoolExecutor() as pool:
            first = pool.submit(lead_first)
            entered.wait(DEADLINE_S)
            session_id = zk.session_id
            server.expire(session_id)
            server.wait_for(lambda: any(one != session_id for one in server.sessions()), DEADLINE_S)
            with election as lease:
                leave.set()
                first.result(DEADLINE_S)
                lease.raise_if_lost()


def test_recipe_error_names_missing_or_unknown_argument(zk: Client) -> None:
    with pytest.raises(TypeError, match=r"^Lock\(\) needs path$"):
        blocking.Lock(zk)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^Lock\(\) has no argument 'foo'$"):
        blocking.Lock(zk, "/l", foo=1)  # type: ignore[call-arg]
