"""Signal handlers that call the client, raise an error, or both, at random moments of a call in the main thread."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar, Final

import pytest
from support.effort import effort
from support.leftovers import ephemerals
from support.waiting import DEADLINE_S

from zoolet.client.blocking import Client, loop_thread, recipes, thread_call
from zoolet.testing import Server

INTERRUPTS_PER_KIND: Final = int(os.environ.get("ZOOLET_INTERRUPTS", "0")) or effort(30, 100)
"""Interrupts of each kind. ``make interrupts`` makes 20,000 of each."""


pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Python ignores errors that a signal handler raises in a finalizer, such as the callback of a weak reference."""


class Interrupted(Exception):
    """The error that the signal handler raises."""


def is_called_by_client(frame: FrameType | None) -> bool:
    """Return whether the client has called the function of a frame."""
    while frame is not None:
        if frame.f_globals["__name__"] == loop_thread.__name__:
            return True
        frame = frame.f_back
    return False


class Interrupts:
    """Timers that each interrupt one step at a random moment.

    Args:
        seed: Seed of the random moments.
        react: Function that the signal handler calls.
        raises: Whether the signal handler raises.
    """

    def __init__(self, seed: str, react: Callable[[], object], *, raises: bool) -> None:
        self._random = random.Random(seed)
        self._react = react
        self._raises = raises
        self._armed = self._interrupted = False
        self._longest = 0.001  # a little more than a step takes, in seconds
        self.handled = 0

    spares_the_test: ClassVar[bool] = False
    """Whether only the client is interrupted, not the test."""

    def handle(self, _: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        if self._interrupted:
            raise AssertionError(f"the interrupted step does not end within {DEADLINE_S:g} s")
        if self._armed:
            self._armed, self._interrupted = False, True
            signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)
            self.handled += 1
            self._react()
            if self._raises and not (self.spares_the_test and not is_called_by_client(frame)):
                raise Interrupted

    def during(self, step: Callable[[], object]) -> None:
        """Call a step, and interrupt it."""
        began = time.perf_counter()
        try:
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, max(self._random.uniform(0, self._longest), 1e-6))
            step()
            self._armed = False
        except Interrupted:
            self._longest *= 1.05  # the machine may be busier now
        else:
            self._longest = 0.9 * self._longest + 0.1 * 1.2 * (time.perf_counter() - began)
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._interrupted = False


@contextmanager
def interrupts(seed: str, react: Callable[[], object], *, raises: bool) -> Iterator[Interrupts]:
    """Handle SIGALRM for the duration of a block."""
    interrupts = Interrupts(seed, react, raises=raises)
    before = signal.signal(signal.SIGALRM, interrupts.handle)
    try:
        yield interrupts
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def block(make: Callable[[Client], Any]) -> Callable[[Client], None]:
    """Return a step that enters and leaves a block."""

    def step(zk: Client) -> None:
        with make(zk):
            pass

    return step


def acquire(zk: Client) -> None:
    """Acquire a lock without a block, and release it, even if the release is interrupted."""
    lease = None
    try:
        lease = zk.lock("/lock").acquire()
    finally:
        Interrupts.spares_the_test = True
        while lease is not None and not lease.asyncio_object.released:
            with contextlib.suppress(Interrupted):
                lease.release()
        Interrupts.spares_the_test = False


def acquire_in_block(zk: Client) -> None:
    """Acquire a lock, and enter its lease."""
    with zk.lock("/lock").acquire():
        pass


def iterate_changes(zk: Client) -> None:
    """Iterate over the changes of a cache."""
    with recipes.NodeCache(zk, "/data") as cache, cache.changes() as changes:
        next(changes)


STEPS: Final[dict[str, Callable[[Client], object]]] = {
    "get": lambda zk: zk.get("/data"),
    "watch": block(lambda zk: zk.watch("/data")),
    "one-shot watch": block(lambda zk: zk.watch_data("/data")),
    "NodeCache": block(lambda zk: recipes.NodeCache(zk, "/data")),
    "PersistentEphemeral": block(lambda zk: recipes.PersistentEphemeral(zk, "/eph")),
    "Lock": block(lambda zk: zk.lock("/lock")),
    "acquire": acquire,
    "Semaphore": block(lambda zk: recipes.Semaphore(zk, "/pool", 1)),
    "Election": block(lambda zk: recipes.Election(zk, "/election")),
    "iterator": iterate_changes,
}
HANDLERS: Final = {"calls": (True, False), "raises": (False, True), "calls and raises": (True, True)}


@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("kind", STEPS)
def test_interrupted_call_cleans_up(server: Server, kind: str, handler: str) -> None:
    calls, raises = HANDLERS[handler]
    with Client(server.hosts) as zk:
        zk.create("/data", b"v")
        before = zk.statistics()

        with interrupts(f"{kind} {handler}", lambda: zk.exists("/data") if calls else None, raises=raises) as signals:
            while signals.handled < INTERRUPTS_PER_KIND:
                signals.during(lambda: STEPS[kind](zk))

        server.wait_for(lambda: zk.statistics().idle)
        assert zk.statistics().registrations == before.registrations
        assert ephemerals(server) == []
        assert not server.watches()
        assert not zk.loop_thread._calls


def test_interrupted_block_leaves_no_thread_or_session(server: Server) -> None:
    threads = threading.active_count()

    def open_and_close() -> None:
        with Client(server.hosts, timeout=0.2):
            pass

    with interrupts("client", lambda: None, raises=True) as signals:
        while signals.handled < INTERRUPTS_PER_KIND:
            signals.during(open_and_close)

    server.wait_for(lambda: threading.active_count() == threads)
    server.wait_for(lambda: not server.sessions())  # the server expires a session if its handshake was interrupted


def test_interrupted_iterator_skips_no_item(server: Server) -> None:
    """Each state, event and change reaches the program, even if a signal interrupts the wait for it."""
    with Client(server.hosts) as zk, interrupts("iterator", lambda: None, raises=True) as signals:
        zk.create("/data", b"0")
        seen: list[Any] = []
        with zk.watch("/data") as events:
            for number in range(3 * INTERRUPTS_PER_KIND):
                zk.set("/data", b"%d" % number)
                while len(seen) <= number:
                    signals.during(lambda: seen.append(events.next(DEADLINE_S)))
        assert len(seen) == 3 * INTERRUPTS_PER_KIND
        assert signals.handled > 0


@pytest.mark.parametrize("kind", ["Lock", "acquire", "acquire in block", "NodeCache"])
@pytest.mark.parametrize("number", range(1, 4))
def test_call_with_interrupted_cancellation_cleans_up(
    server: Server, number: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first signal interrupts a wait, the second the cancellation of the interrupted call."""
    wait, in_loop = thread_call.ThreadCall.wait, loop_thread.LoopThread._schedule_in_loop
    waits, ends = [0], [0]

    def interrupted_wait(call: Any) -> Any:
        waits[0] += 1
        if waits[0] == number:
            raise Interrupted
        return wait(call)

    def interrupted_end(thread: Any, *args: Any) -> Any:
        ends[0] += 1 if waits[0] >= number else 0
        if ends[0] == 1:
            raise Interrupted
        return in_loop(thread, *args)

    with Client(server.hosts) as zk:
        zk.create("/data", b"v")
        monkeypatch.setattr(thread_call.ThreadCall, "wait", interrupted_wait)
        monkeypatch.setattr(loop_thread.LoopThread, "_schedule_in_loop", interrupted_end)
        with contextlib.suppress(Interrupted):
            (acquire_in_block if kind == "acquire in block" else STEPS[kind])(zk)
        monkeypatch.undo()
        server.wait_for(lambda: zk.statistics().idle and not ephemerals(server) and not server.watches())


class FinalizedCycle:
    """An object in a reference cycle, whose finalizer calls the client."""

    finalized: ClassVar[int] = 0

    def __init__(self, zk: Client) -> None:
        self.zk = zk
        self.self = self

    def __del__(self) -> None:
        # In the client's thread, the call would wait for itself.
        if threading.current_thread() is threading.main_thread():
            assert self.zk.exists("/") is not None
            FinalizedCycle.finalized += 1


@pytest.mark.parametrize("kind", STEPS)
def test_finalizer_can_call_client_during_any_operation(server: Server, kind: str) -> None:
    with Client(server.hosts) as zk:
        zk.create("/data", b"v")
        FinalizedCycle.finalized, thresholds = 0, gc.get_threshold()
        gc.set_threshold(1)
        try:
            while FinalizedCycle.finalized < INTERRUPTS_PER_KIND:
                FinalizedCycle(zk)
                STEPS[kind](zk)
        finally:
            gc.set_threshold(*thresholds)
            gc.collect()
        assert not server.watches()
        assert ephemerals(server) == []


# --- blocks whose exit is interrupted or never called ---


def test_lock_is_free_while_interrupt_is_handled(zk: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise Interrupted

    with monkeypatch.context() as patch, pytest.raises(Interrupted) as caught, zk.lock("/lock"):
        patch.setattr(loop_thread.LoopThread, "run_to_completion", interrupted)

    assert caught.value.__traceback__ is not None  # the traceback refers to the block
    with zk.lock("/lock", timeout=DEADLINE_S):
        pass


def holding_lock(zk: Client) -> Iterator[None]:
    """Hold a lock between two steps."""
    with zk.lock("/lock"):
        yield


@pytest.mark.parametrize("in_loop", [False, True], ids=["", "in the thread of the loop"])
def test_garbage_collected_block_exits(server: Server, zk: Client, in_loop: bool) -> None:
    def hold() -> None:
        knot: list[Any] = [holding_lock(zk)]
        next(knot[0])
        knot.append(knot)

    async def collect(_: Any) -> None:
        gc.collect()

    gc.disable()
    try:
        hold()
        assert len(ephemerals(server)) == 1
        if in_loop:
            zk.use(collect)
        else:
            gc.collect()
    finally:
        gc.enable()
    server.wait_for(lambda: not ephemerals(server))


def test_block_in_reference_cycle_exits_on_collection(server: Server, zk: Client) -> None:
    def enter() -> None:
        lock = zk.lock("/lock")
        knot: list[Any] = [lock.__exit__]  # a traceback also keeps the exit method in a reference cycle
        lock.__enter__()
        knot.append(knot)

    gc.disable()
    try:
        enter()
        assert len(ephemerals(server)) == 1
        gc.collect()
    finally:
        gc.enable()
    server.wait_for(lambda: not ephemerals(server))
