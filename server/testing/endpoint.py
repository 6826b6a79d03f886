"""Base of a test server and a proxy: an address, faults, recordings, and waiting.

:mod:`.run.runner` starts and stops them and calls functions in their loop; :mod:`.frames.interceptor` has the pauses
and faults, which every frame meets in a :mod:`.frames.frame_queue`.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from random import Random
from types import TracebackType
from typing import Any, TypeVar

from zoolet.server.net.daemon import Daemon
from zoolet.server.testing.frames.actions import Action
from zoolet.server.testing.frames.faults import Fault
from zoolet.server.testing.frames.interceptor import Interceptor
from zoolet.server.testing.frames.requests import OpView, When, view_of
from zoolet.server.testing.recording.recording import Recording
from zoolet.server.testing.run import arguments, clients, registry
from zoolet.server.testing.run.runner import Runner
from zoolet.server.testing.signatures import Direction, OpName, Who
from zoolet.server.testing.state import views, waiting

E = TypeVar("E", bound="Endpoint")


class Endpoint(ABC):
    """A server or a proxy that clients connect to, under the control of a test.

    Args:
        host: The address to listen on.
        port: The port; 0 for a free one.
        seed: The seed of all randomness.

    Attributes:
        seed: The seed.
    """

    _interceptor: Interceptor

    def __init__(self, host: str, port: int, seed: int) -> None:
        arguments.check_address(host, port)
        self.seed = seed
        self._shown_seed = seed  # what a report says, to repeat the run
        self._runner = Runner(self._assemble, host, port)
        self._faults_made = 0
        self._refused = self._down = False

    def __repr__(self) -> str:
        name = type(self).__name__.strip("_")
        return f"<zoolet {name} {self.hosts}>" if self.running else f"<zoolet {name}, {self._runner.state.value}>"

    @abstractmethod
    def _assemble(self) -> Daemon:
        """Return a new daemon, and call :meth:`_intercept`; called inside the loop at each start."""

    def _intercept(self, interceptor: Interceptor, on_event_faults: Callable[[bool], None] | None = None) -> None:
        """Use an interceptor, with the faults and recordings that there were before :meth:`stop`."""
        before: Interceptor | None = getattr(self, "_interceptor", None)
        self._interceptor = interceptor
        if on_event_faults is not None:
            interceptor.on_event_faults = on_event_faults
        if before is not None:
            interceptor.recorders += before.recorders
            for fault in before.faults:
                interceptor.add(fault)
        self._refused = self._down = False

    def faults(self) -> list[Fault]:
        """Return the faults that are active."""
        return list(self._interceptor.faults)

    # --- starting and stopping ---

    def __enter__(self: E) -> E:  # not Self: completion in editors takes that for this class
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        registry.ending(self, error)
        self._runner.stop()

    async def __aenter__(self: E) -> E:
        await self._runner.open()
        registry.started(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        registry.ending(self, error)
        await self._runner.close()

    def start(self) -> None:
        """Start in a new thread; return once clients can connect. After :meth:`stop` it has the same port again.

        Raises:
            OSError: The address is in use or is not this machine's.
            RuntimeError: It runs already.
        """
        self._runner.start()
        registry.started(self)

    def stop(self) -> None:
        """Stop, and disconnect all clients; do nothing if it does not run, or in a forked child.

        Raises:
            RuntimeError: It runs in an ``async with`` block, whose end stops it.
        """
        registry.ending(self, None, check=False)  # a test that stops it stops it under its clients
        self._runner.stop()

    # --- state and address ---

    @property
    def running(self) -> bool:
        """Whether it was started and has not been stopped since; in a forked child, as it was at the fork."""
        return self._runner.running

    @property
    def port(self) -> int:
        """The port."""
        return self._runner.port

    @property
    def hosts(self) -> str:
        """The connection string for clients: ``host:port``."""
        return self._runner.hosts

    def is_ours(self) -> bool:
        """Return whether it runs, in this process and not in the one from which this was forked."""
        return self._runner.is_ours()

    @abstractmethod
    def report(self) -> str:
        """Return the state as text, for people: what a failing test shows of it."""

    @abstractmethod
    def leaks(self) -> list[str]:
        """Return a line for each thing that clients have left: a session, an ephemeral node, a watch."""

    # --- connections ---

    def drop(self, who: Who) -> None:
        """Close the connections of sessions, which stay alive.

        Args:
            who: A KazooClient, a zoolet Client, a session id, or ``"all"``.

        Raises:
            ValueError: *who* is none of these.
            LookupError: The session is not alive here, or the client has none.
        """
        self._runner.call(lambda: clients.drop(self._runner.daemon, self._sessions_of(who), everybody=who == "all"))

    def pause(self, who: Who, *, direction: Direction = "both", missing_ok: bool = False) -> None:
        """Stop reading from a client and writing to it until :meth:`resume`, on this connection and all later ones, as
        if the network lost every packet. Errors are those of :meth:`drop`.

        Args:
            who: As for :meth:`drop`.
            direction: What is lost: ``"both"``; only ``"requests"``, so that the session expires while its client sees
                events; or only ``"replies"``, events included, so that requests are executed, the session lives, and
                its client hears nothing. The last call counts.
            missing_ok: Accept the id of a session that is not alive: a client that asks to resume it gets no answer.
        """

        arguments.check_direction(direction)

        def pause() -> None:
            ids = None if who == "all" else {clients.session_id_of(who)} if missing_ok else self._sessions_of(who)
            clients.pause(self._interceptor, ids, direction)

        self._runner.call(pause)

    def resume(self, who: Who) -> None:
        """End a pause: the requests that arrived during it are answered now. The sessions may have expired.

        Arguments and errors are those of :meth:`drop`.
        """
        self._runner.call(lambda: clients.resume(self._interceptor, who))

    def refuse_connections(self) -> None:
        """Refuse new connections until :meth:`accept_connections`; open connections stay open."""
        self._runner.call(lambda: self._set_refusing(by_test=True))

    def accept_connections(self) -> None:
        """Accept connections again."""
        self._runner.call(lambda: self._set_refusing(by_test=False, down=False))

    def _set_refusing(self, *, by_test: bool | None = None, down: bool | None = None) -> None:
        """Refuse connections while the test wants it or the server is down, and accept them otherwise."""
        self._refused = self._refused if by_test is None else by_test
        self._down = self._down if down is None else down
        if self._refused or self._down:
            self._refuse_connections()
        else:
            self._accept_connections()

    def _refuse_connections(self) -> None:
        self._runner.daemon.refuse_connections()

    def _accept_connections(self) -> None:
        self._runner.daemon.accept_connections()

    @abstractmethod
    def _sessions_of(self, who: object) -> set[int]:
        """Return the ids of the sessions that *who* names; called in the loop."""

    # --- faults ---

    def fault(
        self,
        action: Action,
        op: OpName | int | None = None,
        path: str | None = None,
        *,
        client: Who | None = None,
        nth: int | Collection[int] | None = None,
        probability: float | None = None,
        times: int | None = None,
        when: When | None = None,
        strict: bool = False,
    ) -> Fault:
        """Inject a fault, until the ``with`` block of the result ends.

        Several faults may apply to one request: it waits for all of them, and of their effects the first one applies,
        in the order drop_request, error, lose_reply, corrupt_reply, cut_reply, close_after.

        Args:
            action: What the fault does to the requests or events that match.
            op: An operation, such as ``"create"``, ``"getData"``, ``"get_children2"``, ``"connect"``; None for all.
                A name that clients use for several op codes stands for all of them. A transaction is a ``"multi"``.
            path: A glob, in which ``*`` also matches slashes; a transaction matches with any of its paths. Paths are
                those of the server: with the client's chroot.
            client: The client that sends the requests or receives the events; as *who* of :meth:`drop`, but it need
                not be connected yet.
            nth: Of the requests or events that match so far only the one with this number, counted from 1; or a set of
                numbers.
            probability: Of these each one with this probability.
            times: Of these only so many.
            when: Called with the request, an :class:`~zoolet.server.testing.frames.requests.OpView`, before it is
                executed; it matches if the result is true. Called in the server's loop, so it must not call the server.
            strict: Raise an AssertionError at the end of the block if the fault was never applied.

        Raises:
            ValueError: An argument is invalid.
        """
        self._runner.check_callable()
        self._faults_made += 1
        fault = Fault(
            action,
            op=op,
            path=path,
            session=clients.follow(client),
            nth=nth,
            probability=probability,
            times=times,
            when=when,
            strict=strict,
            rng=Random(f"{self.seed} {self._faults_made}"),
            end=self._end_fault,
            release=lambda fault: self._runner.call(lambda: self._interceptor.release(fault)),
        )
        self._runner.call(lambda: self._interceptor.add(fault))
        return fault

    def heal(self) -> None:
        """End all faults and pauses, and accept connections: requests that were held are executed now, and events that
        were withheld are lost.
        """

        def heal() -> None:
            self._set_refusing(by_test=False, down=False)
            self._interceptor.heal()

        self._runner.call(heal)

    def _end_fault(self, fault: Fault) -> None:
        if self._runner.is_ours():
            self._runner.call(lambda: self._interceptor.remove(fault))
        elif not self.running and fault in self._interceptor.faults:  # it is not to come back with start()
            self._interceptor.faults.remove(fault)

    # --- requests ---

    def op_count(self) -> int:
        """Return the number of requests that were read since the start or the last ``reset()``."""
        return self._runner.call(lambda: self._interceptor.count)

    def ops(self, last: int | None = None, *, since: int | None = None) -> tuple[OpView, ...]:
        """Return the last requests, oldest first; 1,000 are kept.

        Args:
            last: The most requests to return.
            since: An earlier result of :meth:`op_count`; only later requests are returned.

        Raises:
            ValueError: A number is negative.
        """
        arguments.check_counts(last=last, since=since)
        requests, count = self._runner.call(lambda: (list(self._interceptor.seen), self._interceptor.count))
        return tuple(map(view_of, views.select(requests, count, last, since)))

    def recording(self, who: Who | None = None) -> Recording:
        """Record the requests that are made inside the block of the result, without pings; there is no limit.

        Args:
            who: Whose; None or ``"all"`` for those of all clients. A client need not be connected yet.

        Raises:
            ValueError: *who* is invalid.
        """
        self._runner.check_callable()
        follow = clients.follow(who)
        return Recording.of(
            lambda receive: self._runner.call(lambda: self._interceptor.recorders.append(receive)),
            self._end_recording,
            lambda session_id: follow is None or follow() == session_id,
        )

    @contextmanager
    def checked(self) -> Iterator[Recording]:
        """Check at the end of the block that what clients were answered inside it is what one ZooKeeper answers, by
        :func:`zoolet.testing.check`; the value is the recording of the block.

        If the block raises, what is found is a note of that exception.

        Raises:
            AssertionError: It is not; the message tells why, by as few requests as show it.
        """
        from zoolet.server.testing.checking.checker import check

        recording = self.recording()
        try:
            with recording:
                yield recording
        except BaseException as error:
            if (found := check(recording)) is not None:
                error.add_note(found.story)
            raise
        if (found := check(recording)) is not None:
            raise AssertionError(found.story)

    def _end_recording(self, receive: Callable[[Any], None]) -> None:
        if self._runner.is_ours():
            self._runner.call(lambda: self._interceptor.stop_recorder(receive))
        elif not self.running:
            self._interceptor.stop_recorder(receive)

    # --- waiting ---

    def wait_for(self, predicate: Callable[..., Any], timeout: float = 5.0) -> Any:
        """Wait until a predicate is true, and return what it returned. It blocks; in asyncio code use :meth:`until`.

        Args:
            predicate: Called without arguments, or with this server if it has a parameter.
            timeout: Seconds of real time.

        Raises:
            TimeoutError: The predicate was not true in time; the message has the last operations.
            RuntimeError: This is the server's own loop, which must not be blocked.
        """
        __tracebackhide__ = True
        return self._wait(waiting.bind(predicate, self), timeout, self._name(predicate), twin="until(...)")

    async def until(self, predicate: Callable[..., Any], timeout: float = 5.0) -> Any:
        """Wait without blocking the event loop, in any loop. As for :meth:`wait_for`; seconds are those of the loop."""
        __tracebackhide__ = True
        return await self._until(waiting.bind(predicate, self), timeout, self._name(predicate))

    def wait_for_idle(self, timeout: float = 5.0) -> None:
        """Wait until no client has sent a request, other than a ping, for 50 milliseconds, and none is held or delayed.

        Raises:
            TimeoutError: They were not idle in time; the message says why.
        """
        __tracebackhide__ = True
        self._runner.check_callable()
        idle = waiting.Idle(self._interceptor, time.monotonic)
        self._wait(lambda: self._runner.call(idle.look), timeout, idle.describe)

    async def until_idle(self, timeout: float = 5.0) -> None:
        """Wait without blocking the event loop; as for :meth:`wait_for_idle`."""
        __tracebackhide__ = True
        self._runner.check_callable()
        idle = waiting.Idle(self._interceptor, asyncio.get_running_loop().time)
        await self._until(lambda: self._runner.call(idle.look), timeout, idle.describe)

    def _name(self, predicate: Callable[..., Any]) -> Callable[[], str]:
        return lambda: f"{waiting.name_of_predicate(predicate)} was not true"

    def _wait(
        self, predicate: Callable[[], Any], timeout: float, what: Callable[[], str], twin: str = "until_...()"
    ) -> Any:
        __tracebackhide__ = True
        arguments.check_seconds(f"timeout={timeout!r}", timeout)
        self._runner.check_callable()
        if self._runner.in_server_thread():
            raise RuntimeError(f"this call would block the server's event loop; await its twin, {twin}, instead")
        return waiting.wait(predicate, timeout, lambda: self._too_late(what, timeout, blocking=True))

    def _until(self, predicate: Callable[[], Any], timeout: float, what: Callable[[], str]) -> Awaitable[Any]:
        arguments.check_seconds(f"timeout={timeout!r}", timeout)
        self._runner.check_callable()
        return waiting.wait_in_loop(predicate, timeout, lambda: self._too_late(what, timeout, blocking=False))

    def _too_late(self, what: Callable[[], str], timeout: float, *, blocking: bool) -> TimeoutError:
        return waiting.timeout_error(what(), timeout, self.ops(5), blocking=blocking)
