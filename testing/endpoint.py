"""The base class of test servers and proxies: an address, faults, recordings, and waits for conditions.

:mod:`.run.runner` starts and stops servers, and calls functions in their loop. :mod:`.frames.interceptor` keeps the
pauses and faults, which a :mod:`.frames.frame_queue` applies to every frame.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from random import Random
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, TypeVar

from ..server.net.clock import Clock
from ..server.net.daemon import Daemon
from . import registry
from .frames.actions import Action
from .frames.faults import Fault
from .frames.interceptor import Interceptor
from .frames.requests import OpView, When, recorded_view
from .recording.recording import Recording
from .run import arguments, clients
from .run.place import SOCKETS, Place
from .run.runner import Runner
from .signatures import Direction, OpName, Timer, Who
from .state import report, views, waiting
from .state.clock import SkewedClock
from .state.real_time import REAL

E = TypeVar("E", bound="Endpoint")


class ConsoleView(NamedTuple):
    """A server that the console shows.

    Args:
        daemon: The daemon of the server.
        name: Address of the server.
        is_first: Whether this server is shown if no server is named.
        members: Function that returns the state of the cluster to show, or None for a single server.
    """

    daemon: Daemon
    name: str
    is_first: bool = True
    members: Callable[[], dict[str, object]] | None = None


class Endpoint(ABC):
    """A server or a proxy that clients connect to, under the control of a test.

    Args:
        host: The address to listen on.
        port: The port, or 0 for a free port.
        seed: The seed of all randomness.
        clock: The clock.

    Attributes:
        seed: The seed.
    """

    _interceptor: Interceptor

    def __init__(self, host: str, port: int, seed: int, clock: Clock) -> None:
        arguments.check_address(host, port)
        self.seed = seed
        self._shown_seed = seed  # seed for reports, so that the run can be repeated
        self._clock = SkewedClock(clock)
        self._place = SOCKETS
        self._runner = Runner(self._assemble, host, port)
        self._runner.daemons = self._daemons
        self._faults_made = 0
        self._refused = self._down = False
        self._downtime: Timer | None = None  # timer that fires at the end of the downtime

    def __repr__(self) -> str:
        name = type(self).__name__.strip("_")
        return f"<zoolet {name} {self.hosts}>" if self.running else f"<zoolet {name}, {self._runner.state.value}>"

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__.strip("_")
        raise TypeError(f"a {name} cannot be copied or sent to another process; pass its address, {name.lower()}.hosts")

    @abstractmethod
    def _assemble(self) -> Daemon | None:
        """Call :meth:`_intercept`, and return a new daemon, or None if only members have daemons.

        This is called inside the loop, at each start.
        """

    def supports_chaos(self, kind: str) -> bool:
        """Return whether this endpoint supports a kind of chaos."""
        return False

    def _daemons(self) -> list[Daemon]:
        """Return the daemons that clients connect to."""
        return [self._runner.daemon]

    def move_to(self, place: Place) -> None:
        """From the next start on, run in *place* instead of on the sockets of this machine."""
        self._place = place
        self._clock.inner = place.clock or self._clock.inner
        self._shown_seed = self._shown_seed if place.seed is None else place.seed

    def _intercept(self, interceptor: Interceptor) -> None:
        """Use an interceptor, and give it the faults and recordings that existed before :meth:`stop`."""
        before: Interceptor | None = getattr(self, "_interceptor", None)
        self._interceptor = interceptor
        if before is not None:
            interceptor.recorders += before.recorders
            for fault in before.faults:
                interceptor.add(fault)
        self._refused = self._down = False

    def faults(self) -> list[Fault]:
        """Return the active faults, in order of addition."""
        return list(self._interceptor.faults)

    # --- starting and stopping ---

    def __enter__(self: E) -> E:  # not Self: editors would complete only names of this class
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        registry.report_ending(self, error)
        self._runner.stop()

    async def __aenter__(self: E) -> E:
        await self._runner.open()
        registry.report_started(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        registry.report_ending(self, error)
        await self._runner.close()

    def start(self) -> None:
        """Start in a new thread, and return once clients can connect. A start after :meth:`stop` reuses the port.

        Raises:
            OSError: The address is in use, or does not belong to this machine.
            RuntimeError: The server is already running.
        """
        self._runner.start()
        registry.report_started(self)

    def stop(self) -> None:
        """Stop, and disconnect all clients. Do nothing if the server is not running, or in a forked child.

        Raises:
            RuntimeError: The server runs in an ``async with`` block, whose end stops it.
        """
        registry.report_ending(
            self, None, check=False
        )  # leaks are not checked, because a test calls stop() while clients are connected
        self._runner.stop()

    # --- state and address ---

    @property
    def running(self) -> bool:
        """Whether the server was started and has not been stopped since. A forked child keeps the value of the fork."""
        return self._runner.running

    @property
    def port(self) -> int:
        """The TCP port that clients connect to."""
        return self._runner.port

    @property
    def hosts(self) -> str:
        """The connection string for clients: ``host:port``."""
        return self._runner.hosts

    def runs_here(self) -> bool:
        """Return whether the server runs in this process. A forked child does not run its parent's servers."""
        return self._runner.runs_here()

    @abstractmethod
    def report(self) -> str:
        """Return the state as human-readable text, which the report of a failed test shows."""

    @abstractmethod
    def leaks(self) -> list[str]:
        """Return a line for each session, ephemeral node or watch that clients have left."""

    def console_views(self) -> list[ConsoleView]:
        """Return the servers that the console shows: one server, the members of a cluster, or none for a proxy."""
        return []

    # --- connections ---

    def drop(self, who: Who) -> None:
        """Close the connections of sessions, which stay alive.

        Args:
            who: A KazooClient, a zoolet Client, a session id, or ``"all"``.

        Raises:
            ValueError: *who* is none of these.
            LookupError: The session is not alive here, or the client has none.
        """

        def drop() -> None:
            ids = self._session_ids(who)
            for daemon in self._daemons():
                clients.drop(daemon, ids, all_connections=who == "all")

        self._runner.call(drop)

    def pause(self, who: Who, *, direction: Direction = "both", missing_ok: bool = False) -> None:
        """Stop reading from a client and writing to it until :meth:`resume`, on this connection and all later ones, as
        if the network lost every packet.

        Args:
            who: A KazooClient, a zoolet Client, a session id, or ``"all"``.
            direction: The direction to stop. With ``"requests"`` the session expires while its client still receives
                events. With ``"replies"``, which includes events, requests are executed and the session stays alive,
                but its client receives nothing. ``"both"`` stops both. A later call replaces the direction.
            missing_ok: Accept the id of a session that is not alive. A client that tries to resume it gets no answer.

        Raises:
            ValueError: *who* or *direction* is invalid.
            LookupError: The session is not alive here, or the client has none.
        """

        arguments.check_direction(direction)

        def pause() -> None:
            ids = None if who == "all" else {clients.session_id_of(who)} if missing_ok else self._session_ids(who)
            clients.pause(self._interceptor, ids, direction)

        self._runner.call(pause)

    def resume(self, who: Who) -> None:
        """End a pause: the requests that arrived during it are answered now. The sessions may have expired.

        Args:
            who: A KazooClient, a zoolet Client, a session id, or ``"all"``.

        Raises:
            ValueError: *who* is none of these.
            LookupError: The session is not paused, or the client has none.
        """
        self._runner.call(lambda: clients.resume(self._interceptor, who))

    def refuse_connections(self) -> None:
        """Refuse new connections until :meth:`accept_connections`. Open connections stay open."""
        self._runner.call(lambda: self._set_refusing(by_test=True))

    def accept_connections(self) -> None:
        """Accept connections again."""
        self._runner.call(lambda: self._set_refusing(by_test=False, down=False))

    def _set_refusing(self, *, by_test: bool | None = None, down: bool | None = None) -> None:
        """Refuse connections while the test has refused them or the server is down. Otherwise accept them."""
        self._refused = self._refused if by_test is None else by_test
        self._down = self._down if down is None else down
        self._apply_refusing(self._refused or self._down)

    def _apply_refusing(self, on: bool) -> None:
        """Make the daemons refuse new connections, or accept them."""
        for daemon in self._daemons():
            (self._place.refuse_connections if on else self._place.accept_connections)(daemon)

    def _end_downtime(self) -> None:
        """Cancel the timer of a downtime, because the server is back or a new downtime starts."""
        if self._downtime is not None:
            self._downtime.cancel()
            self._downtime = None

    @abstractmethod
    def _session_ids(self, who: object) -> set[int]:
        """Return the ids of the sessions that *who* names. Call this in the loop."""

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
        """Inject a fault: ``with server.fault(lose_reply(), "create") as fault:``. It ends with the block.

        Several faults may apply to one request. The request waits for all delays and holds, and gets only the first
        of the other effects, in the order drop_request, error, lose_reply, corrupt_reply, cut_reply, close_after.

        Args:
            action: Effect of the fault on the requests or events that match.
            op: An operation, such as ``"create"``, ``"getData"``, ``"get_children2"`` or ``"connect"``. None matches
                all. A name that clients use for several op codes matches all of them. A transaction is a ``"multi"``.
            path: A glob of paths on the server, including the client's chroot. ``*`` also matches slashes. A
                transaction matches if any of its paths does.
            client: The client that sends the requests or receives the events, given as for :meth:`drop`. It need not
                be connected yet.
            nth: Number, or set of numbers. The requests or events that match *op*, *path*, *client* and *when* are
                numbered from 1, and the fault applies only to these numbers.
            probability: Probability that the fault applies to a request or event that matches all of the above.
            times: Maximum number of times that the fault applies.
            when: Function of the request, an :class:`~zoolet.testing.frames.requests.OpView`, that is called before
                the request is executed. The request matches if the result is true. The function runs in the server's
                loop, so it must not call the server. If it raises an exception, so does the end of the block.
            strict: Raise an AssertionError at the end of the block if the fault was never applied.

        Returns:
            The fault. Its ``hits`` counts how many times it was applied.

        Raises:
            ValueError: An argument is invalid.
        """
        self._runner.check_can_call()
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
        """End all faults and pauses, and accept connections.

        Held requests are executed now, and withheld events are lost.
        """

        def heal() -> None:
            self._end_downtime()
            self._set_refusing(by_test=False, down=False)
            self._interceptor.heal()

        self._runner.call(heal)

    def _end_fault(self, fault: Fault) -> None:
        if self._runner.runs_here():
            self._runner.call(lambda: self._interceptor.remove(fault))
        elif not self.running and fault in self._interceptor.faults:  # the next start() must not add the fault again
            self._interceptor.faults.remove(fault)

    # --- requests ---

    def op_count(self) -> int:
        """Return the number of requests that the server has read since the start or the last ``reset()``."""
        return self._runner.call(lambda: self._interceptor.count)

    def ops(self, last: int | None = None, *, since: int | None = None) -> tuple[OpView, ...]:
        """Return the last requests, oldest first. The server keeps 1,000.

        Args:
            last: Maximum number of requests to return.
            since: An earlier result of :meth:`op_count`, to return only later requests.

        Raises:
            ValueError: A number is negative.
        """
        arguments.check_counts(last=last, since=since)
        requests, count = self._runner.call(lambda: (list(self._interceptor.seen), self._interceptor.count))
        return tuple(map(recorded_view, views.select(requests, count, last, since)))

    def recording(self, who: Who | None = None) -> Recording:
        """Record requests except pings: ``with server.recording() as ops:``. Their number is not limited.

        Args:
            who: The client to record, which need not be connected yet. None or ``"all"`` records every client.

        Raises:
            ValueError: *who* is invalid.
        """
        self._runner.check_can_call()
        follow = clients.follow(who)
        return Recording.of(
            lambda receive: self._runner.call(lambda: self._interceptor.recorders.append(receive)),
            self._end_recording,
            lambda session_id: follow is None or follow() == session_id,
        )

    @contextmanager
    def check_history(self) -> Iterator[Recording]:
        """Record the requests of a ``with`` block, and check at its end that the replies are consistent.

        The value is the recording, which :func:`zoolet.testing.check` checks. If the block raises an exception, a
        violation is added to the exception as a note.

        Raises:
            AssertionError: No single ZooKeeper gives these replies. The message shows a minimal example.
        """
        from .checking.checker import check

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
        if self._runner.runs_here():
            self._runner.call(lambda: self._interceptor.stop_recorder(receive))
        elif not self.running:
            self._interceptor.stop_recorder(receive)

    # --- waiting ---

    def wait_for(self, predicate: Callable[..., Any], timeout: float = 5.0) -> Any:
        """Wait until a predicate is true, and return its result. This blocks: in asyncio code use :meth:`until`.

        Args:
            predicate: Function without parameters, or with one parameter for this server.
            timeout: Seconds of real time.

        Raises:
            TypeError: *predicate* is not callable.
            TimeoutError: The predicate was not true in time. The message lists the last operations.
            RuntimeError: The call comes from the server's own event loop, which must not be blocked.
        """
        __tracebackhide__ = True
        return self._wait(
            waiting.bind(predicate, self), timeout, self._predicate_description(predicate), coroutine_name="until(...)"
        )

    async def until(self, predicate: Callable[..., Any], timeout: float = 5.0) -> Any:
        """Wait like :meth:`wait_for`, without blocking the event loop. The timeout is in the time of that loop."""
        __tracebackhide__ = True
        return await self._until(waiting.bind(predicate, self), timeout, self._predicate_description(predicate))

    def wait_for_idle(self, timeout: float = 5.0) -> None:
        """Wait until no client has sent a request, other than a ping, for 50 milliseconds, and none is held or delayed.

        Raises:
            TimeoutError: The clients were not idle in time. The message names the reason.
        """
        __tracebackhide__ = True
        self._runner.check_can_call()
        idle = waiting.IdleCheck(self._interceptor, REAL.seconds)
        self._wait(lambda: self._runner.call(idle.is_idle), timeout, idle.describe)

    async def until_idle(self, timeout: float = 5.0) -> None:
        """Wait like :meth:`wait_for_idle`, without blocking the event loop."""
        __tracebackhide__ = True
        self._runner.check_can_call()
        idle = waiting.IdleCheck(self._interceptor, asyncio.get_running_loop().time)
        await self._until(lambda: self._runner.call(idle.is_idle), timeout, idle.describe)

    def wait_for_client(self, who: Who, timeout: float = 5.0) -> None:
        """Wait until the server has answered a request of a client's session after its last disconnection.

        Opening or resuming the session counts as a request. Use this method after a call that disconnects the client:
        when it returns, the client has reconnected.

        Args:
            who: A KazooClient, a zoolet Client or a session id.
            timeout: Seconds of real time.

        Raises:
            TimeoutError: No request was answered in time.
            ValueError: *who* is none of these.
        """
        __tracebackhide__ = True
        self._wait(*self._client_condition(who, timeout))

    async def until_client(self, who: Who, timeout: float = 5.0) -> None:
        """Wait like :meth:`wait_for_client`, without blocking the event loop."""
        __tracebackhide__ = True
        await self._until(*self._client_condition(who, timeout))

    def _client_condition(self, who: Who, timeout: float) -> waiting.Condition:
        session_id = clients.follow(who)
        if session_id is None:
            expected = "a KazooClient, a zoolet Client or a session id"
            raise arguments.invalid("who", who, expected)
        return (
            lambda: self._runner.call(lambda: self._interceptor.has_answered(session_id())),
            timeout,
            lambda: f"session {clients.client_label(session_id())} was not answered after its last disconnection",
        )

    def _predicate_description(self, predicate: Callable[..., Any]) -> Callable[[], str]:
        return lambda: f"{waiting.describe_predicate(predicate)} was not true"

    def _wait(
        self,
        predicate: Callable[[], Any],
        timeout: float,
        describe: Callable[[], str],
        coroutine_name: str = "until_...()",
    ) -> Any:
        __tracebackhide__ = True
        arguments.check_seconds("timeout", timeout)
        self._runner.check_can_call()
        if self._runner.in_server_thread():
            raise RuntimeError(f"this call would block the server's event loop; await {coroutine_name} instead")
        return waiting.wait(predicate, timeout, lambda: self._timeout_error(describe, timeout, blocking=True))

    def _until(self, predicate: Callable[[], Any], timeout: float, describe: Callable[[], str]) -> Awaitable[Any]:
        arguments.check_seconds("timeout", timeout)
        self._runner.check_can_call()
        return waiting.wait_in_loop(predicate, timeout, lambda: self._timeout_error(describe, timeout, blocking=False))

    def _timeout_error(self, describe: Callable[[], str], timeout: float, *, blocking: bool) -> TimeoutError:
        return waiting.timeout_error(describe(), timeout, report.operations(self.ops(5)), blocking=blocking)
