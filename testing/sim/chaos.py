"""The chaos of schedules, apart from late messages: lost messages, expired sessions, outages, failures of a cluster.

A schedule decides at each request which kinds of chaos follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from ..endpoint import Endpoint
from ..frames.actions import delay, drop_request, lose_reply
from ..frames.requests import OpView, When
from .schedule import Schedule

if TYPE_CHECKING:
    from ..cluster.cluster import Cluster
    from ..cluster.member import Member

T = TypeVar("T")
MAX_CHAOS_DELAY_S: Final = 0.3
"""Maximum seconds between a request and the chaos that follows it."""
MAX_OUTAGE_S: Final = 10.0
"""Maximum duration of a pause or an outage in seconds."""
MAX_LAG_S: Final = 1.0
"""Maximum lag of a cluster member in seconds."""
REQUIRED_ENDPOINTS: Final = {
    "expire_sessions": "server",
    "kill_leaders": "cluster",
    "partitions": "cluster",
    "lags": "cluster",
}
"""The kind of endpoint that each of these kinds of chaos needs."""


class AttemptCancelledError(Exception):
    """The schedule cancelled an attempt that :meth:`Chaos.attempt` ran."""

    __module__ = "zoolet.testing"  # programs import it from there, so tracebacks name it


class Chaos:
    """The chaos of one run, active until :meth:`stop`. ``with chaos:`` activates the chaos again for a block.

    Args:
        server: The endpoint that fails: a server, a cluster or a proxy.
        schedule: The schedule, which decides about each kind of chaos.

    Raises:
        ValueError: The schedule has a kind of chaos that the endpoint does not support.
    """

    def __init__(self, server: Endpoint, schedule: Schedule) -> None:
        for kind, needed in REQUIRED_ENDPOINTS.items():
            if schedule.can_happen(kind) and not server.supports_chaos(kind):
                raise ValueError(f"{kind} needs a {needed}; {server!r} does not support it")
        self._server = server
        self._cluster = cast("Cluster", server)  # used only for the kinds that need a cluster
        self._schedule = schedule
        self._loop = asyncio.get_running_loop()
        self._is_active = True
        self._timers: list[asyncio.TimerHandle] = []
        self._paused: set[int] = set()
        self._has_outage = False
        self._is_divided = False
        self._lagging: set[int] = set()
        self._killed: Member | None = None
        self._delayed_kinds: dict[str, tuple[Callable[[int, float], None], str]] = {
            "close_connections": (self._close, "the connection is lost"),
            "expire_sessions": (self._expire, "the session expires"),
            "pause_sessions": (self._pause, "the session is paused for {}"),
            "outages": (self._outage, "all connections are lost, and new ones are refused for {}"),
            "kill_leaders": (self._kill_leader, "the leader is killed, and restarts after {}"),
            "partitions": (self._isolate_member, "one member is isolated for {}"),
            "lags": (self._delay, "one member lags for {}"),
        }
        for kind, action, text in (
            ("lose_replies", lose_reply(), "the reply to {} and the connection are lost"),
            ("drop_requests", drop_request(), "the request {} and the connection are lost"),
        ):
            if schedule.can_happen(kind):
                server.fault(action, when=self._make_decision(kind, text))
        if any(map(schedule.can_happen, self._delayed_kinds)):
            server.fault(delay(0.0), when=self._schedule_chaos)

    def start(self) -> None:
        """Activate the chaos again after :meth:`stop`."""
        self._is_active = True

    def stop(self) -> None:
        """End all chaos: resume paused sessions, accept connections, start a killed leader, reconnect all members,
        and end the members' lags.
        """
        self._is_active = False
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        for session in list(self._paused):
            self._resume(session)
        self._accept()
        self._start_killed()
        self._connect()
        for which in list(self._lagging):
            self._catch_up(which)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def attempt(self, coroutine: Coroutine[Any, Any, T], by: Hashable = "") -> T:
        """Run a coroutine that the schedule may cancel, and return its result.

        Args:
            coroutine: The coroutine, which runs in its own task.
            by: The caller, such as its name. Decisions for different callers are independent.

        Raises:
            AttemptCancelledError: The schedule cancelled the attempt.
        """
        task = asyncio.ensure_future(coroutine)
        chosen = None
        try:
            chosen = self._schedule.choose("cancel_attempts", by) if self._is_active else None
            if chosen is not None:
                key, rng = chosen
                turns, after = rng.choice([(rng.randrange(6), 0.0), (0, rng.uniform(0, MAX_CHAOS_DELAY_S))])
                self._schedule.note(key, 0, f"an attempt of {by!r} is cancelled", after)
                self._timers.append(self._loop.call_later(after, self._cancel, task, turns))
            await asyncio.wait([task])
        finally:
            if not task.done():  # the caller was cancelled
                task.cancel()
                await asyncio.wait([task])
        if chosen is not None and task.cancelled():
            raise AttemptCancelledError(f"the schedule cancelled an attempt of {by!r}")
        return task.result()

    def _cancel(self, task: asyncio.Future[Any], turns: int) -> None:
        if turns:
            self._loop.call_soon(self._cancel, task, turns - 1)
        else:
            task.cancel()

    def _make_decision(self, kind: str, text: str) -> When:
        """Return a function that decides whether a fault applies to a request. Reports show the function's name."""

        def decide(op: OpView) -> bool:
            return (
                self._is_active
                and op.op != "connect"
                and self._schedule.happens(kind, op.client, text.format(op.title))
            )

        decide.__qualname__ = f"zoolet_schedules({kind})"
        return decide

    def _schedule_chaos(self, op: OpView) -> bool:
        """Schedule the chaos that follows a request. Return False, because the request itself is not delayed."""
        if self._is_active and op.op != "connect":
            for kind, (begin, text) in self._delayed_kinds.items():
                chosen = self._schedule.choose(kind, op.client)
                if chosen is not None:
                    key, rng = chosen
                    after, seconds = (
                        rng.choice((0.0, rng.uniform(0, MAX_CHAOS_DELAY_S))),
                        rng.uniform(0, rng.choice((1.0, MAX_OUTAGE_S))),
                    )
                    self._schedule.note(key, op.client, text.format(f"{seconds * 1000:.0f} ms"), after)
                    self._timers.append(self._loop.call_later(after, begin, op.client, seconds))
        return False

    def _close(self, session: int, seconds: float) -> None:
        with suppress(LookupError):
            self._server.drop(session)

    def _expire(self, session: int, seconds: float) -> None:
        with suppress(LookupError, RuntimeError):  # RuntimeError: a cluster without a quorum cannot expire sessions
            self._cluster.expire(session)

    def _pause(self, session: int, seconds: float) -> None:
        if session in self._paused:  # the end of the first pause would also end a second pause
            return
        with suppress(LookupError):
            self._server.pause(session)
            self._paused.add(session)
            self._timers.append(self._loop.call_later(seconds, self._resume, session))

    def _resume(self, session: int) -> None:
        self._paused.discard(session)
        with suppress(LookupError):
            self._server.resume(session)

    def _outage(self, session: int, seconds: float) -> None:
        if not self._has_outage:
            self._has_outage = True
            self._server.refuse_connections()
            self._server.drop("all")
            self._timers.append(self._loop.call_later(seconds, self._accept))

    def _accept(self) -> None:
        if self._has_outage:
            self._has_outage = False
            self._server.accept_connections()

    # --- chaos of a cluster ---

    def _kill_leader(self, session: int, seconds: float) -> None:
        if self._killed is None and self._cluster.leader is not None:
            self._killed = self._cluster.kill_leader()
            self._timers.append(self._loop.call_later(seconds, self._start_killed))

    def _start_killed(self) -> None:
        killed, self._killed = self._killed, None
        if killed is not None:
            killed.start()

    def _isolate_member(self, session: int, seconds: float) -> None:
        if not self._is_divided:
            self._is_divided = True
            which = int(seconds * 1000) % len(self._cluster)
            self._cluster.partition([which], noticed_after=seconds / 3 if which % 2 else 0.0)
            self._timers.append(self._loop.call_later(seconds, self._connect))

    def _connect(self) -> None:
        if self._is_divided:
            self._is_divided = False
            self._cluster.partition(range(len(self._cluster)))

    def _delay(self, session: int, seconds: float) -> None:
        which = int(seconds * 1000) % len(self._cluster)
        self._lagging.add(which)
        self._cluster.lag(which, seconds / MAX_OUTAGE_S * MAX_LAG_S)
        self._timers.append(self._loop.call_later(seconds, self._catch_up, which))

    def _catch_up(self, which: int) -> None:
        if which in self._lagging:
            self._lagging.discard(which)
            self._cluster.lag(which, 0.0)
