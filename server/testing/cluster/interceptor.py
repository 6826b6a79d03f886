"""The faults, pauses and recordings of one member, and with them those of its whole cluster."""

from __future__ import annotations

from collections.abc import Callable

from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.testing.frames.faults import Fault
from zoolet.server.testing.frames.interceptor import Intercepted, Interceptor
from zoolet.server.testing.frames.requests import RecordedRequest, Request
from zoolet.server.testing.signatures import CallLater, Direction


class ClusterInterceptor(Interceptor):
    """The faults and pauses that apply to all members.

    Attributes:
        on_event_faults_of: Of each member, what looks again whether it has faults for events.
    """

    def __init__(self, call_later: CallLater, now: Callable[[], float]) -> None:
        super().__init__(call_later, now)
        self.on_event_faults_of: list[Callable[[], object]] = []
        self.on_event_faults = self._tell_members

    def _tell_members(self, active: bool) -> None:
        for check in self.on_event_faults_of:
            check()


class MemberInterceptor(Interceptor):
    """The faults and pauses that apply to one member: its own, and before them the cluster's.

    Args:
        whole: That of the cluster; connections and their numbers are shared with it.
    """

    def __init__(self, whole: ClusterInterceptor) -> None:
        self.whole = whole
        super().__init__(whole.call_later, whole.now)
        self.connections = whole.connections
        self.passwords = whole.passwords

    def add_connection(self, client: ClientConnection, connection: Intercepted) -> int:
        """Add a connection; return its number, which no connection to any member has."""
        return self.whole.add_connection(client, connection)

    def is_paused(self, session_id: int, what: Direction) -> bool:
        """Return whether a session's requests, or its replies, wait."""
        return self.whole.is_paused(session_id, what) or super().is_paused(session_id, what)

    def claimed_by(self, request: Request) -> list[Fault]:
        """Return the faults that apply to a request."""
        return self.whole.claimed_by(request) + super().claimed_by(request)

    def limit_hold(self, fault: Fault, is_waiting: Callable[[], bool]) -> None:
        """Release a fault if a request that it holds still waits when its limit is over."""
        if fault in self.whole.faults:
            self.whole.limit_hold(fault, is_waiting)
        else:
            super().limit_hold(fault, is_waiting)

    def withhold(self, session_id: int, event: tuple[int, str], send: Callable[[], None]) -> bool:
        """Return whether a fault withholds an event."""
        return self.whole.withhold(session_id, event, send) or super().withhold(session_id, event, send)

    def check_event_faults(self) -> None:
        """Look again whether a fault for events is active."""
        self.on_event_faults(any(fault.action.events for fault in self.whole.faults + self.faults))

    _check_event_faults = check_event_faults

    @property
    def is_recording(self) -> bool:
        """Whether a recording runs."""
        return self.whole.is_recording or bool(self.recorders)

    def record(self, request: RecordedRequest) -> None:
        """Record a request that has passed."""
        self.whole.record(request)
        super().record(request)

    def record_events(self, connection: int, session_id: int, frames: bytes, *, with_reply: bool) -> None:
        """Record the events among frames that are sent to a client."""
        self.whole.record_events(connection, session_id, frames, with_reply=with_reply)
        super().record_events(connection, session_id, frames, with_reply=with_reply)
