"""The trouble of a schedule beside messages that are late: each kind is decided at each request, by the schedule."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from typing import Any, Final, Self, TypeVar

from zoolet.server.testing.cluster.cluster import Cluster
from zoolet.server.testing.cluster.member import Member
from zoolet.server.testing.endpoint import Endpoint
from zoolet.server.testing.frames.actions import delay, drop_request, lose_reply
from zoolet.server.testing.frames.requests import OpView
from zoolet.server.testing.server import Server
from zoolet.server.testing.sim.schedule import Schedule

T = TypeVar("T")
SOON_S: Final = 0.3
"""The seconds after a request within which its trouble happens."""
LASTS_S: Final = 10.0
"""The most seconds that a pause or an outage lasts."""
LATE_S: Final = 1.0
"""The most seconds by which a member of a cluster is late."""
OF_A_CLUSTER: Final = ("kill_leaders", "partitions", "lags")
"""What only happens to a cluster."""


class AttemptCancelledError(Exception):
    """The schedule cancelled an attempt, which :meth:`Trouble.attempt` ran."""


class Trouble:
    """The trouble of one run, from the beginning until :meth:`end`; ``with trouble:`` begins and ends it again.

    Args:
        server: Where it happens: a server, a cluster or a proxy.
        schedule: Decides what happens.

    Raises:
        ValueError: Sessions are to expire, or members to fail, and this cannot be had there.
    """

    def __init__(self, server: Endpoint, schedule: Schedule) -> None:
        if schedule.can_happen("expire_sessions") and not isinstance(server, Server):
            raise ValueError(f"expire_sessions is for a server; {server!r} is none")
        for kind in OF_A_CLUSTER:
            if schedule.can_happen(kind) and not isinstance(server, Cluster):
                raise ValueError(f"{kind} is for a cluster; {server!r} is none")
        self._server = server
        self._schedule = schedule
        self._loop = asyncio.get_running_loop()
        self._on = True
        self._timers: list[asyncio.TimerHandle] = []
        self._paused: set[int] = set()
        self._is_out = False
        self._is_divided = False
        self._late: set[int] = set()
        self._killed: Member | None = None
        self._later: dict[str, tuple[Callable[[int, float], None], str]] = {
            "close_connections": (self._close, "the connection is lost"),
            "expire_sessions": (self._expire, "the session expires"),
            "pause_sessions": (self._pause, "the session is paused for {}"),
            "outages": (self._outage, "all connections are lost, and none is accepted for {}"),
            "kill_leaders": (self._kill_leader, "the leader is killed, and starts again after {}"),
            "partitions": (self._cut_off, "a member reaches no other for {}"),
            "lags": (self._delay, "a member is late for {}"),
        }
        for kind, action, text in (
            ("lose_replies", lose_reply(), "the reply to {} is lost, with the connection"),
            ("drop_requests", drop_request(), "the request {} is not received, and the connection is lost"),
        ):
            if schedule.can_happen(kind):
                server.fault(action, when=lambda op, kind=kind, text=text: self._hits(op, kind, text))  # type: ignore[misc]
        if any(map(schedule.can_happen, self._later)):
            server.fault(delay(0.0), when=self._look)

    def begin(self) -> None:
        """Make trouble from now on."""
        self._on = True

    def end(self) -> None:
        """Make no trouble from now on: paused sessions go on, connections are accepted, and all members reach each
        other.
        """
        self._on = False
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        for session in list(self._paused):
            self._resume(session)
        self._accept()
        self._start_killed()
        self._connect()
        for which in list(self._late):
            self._catch_up(which)

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    async def attempt(self, coroutine: Coroutine[Any, Any, T], by: Hashable = "") -> T:
        """Run a coroutine that the schedule may cancel.

        Args:
            coroutine: It; it runs in a task of its own.
            by: Whose attempt it is; decisions are made for each in turn.

        Raises:
            AttemptCancelledError: The schedule cancelled it.
        """
        task = asyncio.ensure_future(coroutine)
        chosen = None
        try:
            chosen = self._schedule.chosen("cancel_attempts", by) if self._on else None
            if chosen is not None:
                key, rng = chosen
                turns, after = rng.choice([(rng.randrange(6), 0.0), (0, rng.uniform(0, SOON_S))])
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

    def _hits(self, op: OpView, kind: str, text: str) -> bool:
        """Return whether a fault hits a request."""
        return self._on and op.op != "connect" and self._schedule.happens(kind, op.client, text.format(op.title))

    def _look(self, op: OpView) -> bool:
        """Decide what follows a request, which itself is not delayed."""
        if self._on and op.op != "connect":
            for kind, (begin, text) in self._later.items():
                chosen = self._schedule.chosen(kind, op.client)
                if chosen is not None:
                    key, rng = chosen
                    after, seconds = (
                        rng.choice((0.0, rng.uniform(0, SOON_S))),
                        rng.uniform(0, rng.choice((1.0, LASTS_S))),
                    )
                    self._schedule.note(key, op.client, text.format(f"{seconds * 1000:.0f} ms"), after)
                    self._timers.append(self._loop.call_later(after, begin, op.client, seconds))
        return False

    def _close(self, session: int, seconds: float) -> None:
        with suppress(LookupError):
            self._server.drop(session)

    def _expire(self, session: int, seconds: float) -> None:
        if isinstance(self._server, Server):
            with suppress(LookupError, RuntimeError):  # RuntimeError: a cluster without a quorum expires nobody
                self._server.expire(session)

    def _pause(self, session: int, seconds: float) -> None:
        if session in self._paused:  # the end of one pause would end another
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
        if not self._is_out:
            self._is_out = True
            self._server.refuse_connections()
            self._server.drop("all")
            self._timers.append(self._loop.call_later(seconds, self._accept))

    def _accept(self) -> None:
        if self._is_out:
            self._is_out = False
            self._server.accept_connections()

    # --- of a cluster ---

    def _kill_leader(self, session: int, seconds: float) -> None:
        cluster = self._server
        if isinstance(cluster, Cluster) and self._killed is None and cluster.leader is not None:
            self._killed = cluster.kill_leader()
            self._timers.append(self._loop.call_later(seconds, self._start_killed))

    def _start_killed(self) -> None:
        killed, self._killed = self._killed, None
        if killed is not None:
            killed.start()

    def _cut_off(self, session: int, seconds: float) -> None:
        cluster = self._server
        if isinstance(cluster, Cluster) and not self._is_divided:
            self._is_divided = True
            which = int(seconds * 1000) % len(cluster)
            cluster.partition([which], noticed_after=seconds / 3 if which % 2 else 0.0)
            self._timers.append(self._loop.call_later(seconds, self._connect))

    def _connect(self) -> None:
        if self._is_divided and isinstance(self._server, Cluster):
            self._is_divided = False
            self._server.partition(range(len(self._server)))

    def _delay(self, session: int, seconds: float) -> None:
        cluster = self._server
        if isinstance(cluster, Cluster):
            which = int(seconds * 1000) % len(cluster)
            self._late.add(which)
            cluster.lag(which, seconds / LASTS_S * LATE_S)
            self._timers.append(self._loop.call_later(seconds, self._catch_up, which))

    def _catch_up(self, which: int) -> None:
        if which in self._late and isinstance(self._server, Cluster):
            self._late.discard(which)
            self._server.lag(which, 0.0)
