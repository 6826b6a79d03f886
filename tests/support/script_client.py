"""A client over a :class:`~support.wire.Wire` for scripts that run on any ensemble; it returns outcomes as words."""

from __future__ import annotations

import time
from typing import Final

from support.peer import Reply
from support.waiting import DEADLINE_S
from support.wire import Wire, split_reply

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import Record
from zoolet.protocol.enums import EventType
from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode

HEADER_BYTES: Final = 16
"""Bytes of a reply's header; a read-only member without local sessions answers a handshake with only a header."""
NO_SESSION: Final = ConnectResponse()


class ScriptClient:
    """A session with at most one connection at a time.

    Attributes:
        session: The session in the answer to the last handshake.
        events: The received events, as ``type path``, in order.
        zxid: The highest zxid seen.
    """

    def __init__(self) -> None:
        self.session = NO_SESSION
        self.events: list[str] = []
        self.zxid = 0
        self._wire: Wire | None = None
        self._xid = 0

    # --- connections ---

    def connect(
        self, port: int, *, read_only: bool | None = False, timeout_ms: int = 10_000, zxid: int | None = None
    ) -> str:
        """Connect to a member, and open or resume the session; return the outcome: ``new``, ``resumed``, ``expired``,
        ``closed`` or ``refused``, followed by ``read-only`` if the member reports that it is read-only.
        """
        self.drop()
        try:
            self._wire = Wire(port, 0, wait=DEADLINE_S)
        except OSError:
            return "refused"
        before = self.session.session_id
        seen = self.zxid if zxid is None else zxid
        request = ConnectRequest(seen, timeout_ms, before, self.session.password or bytes(16), read_only)
        self._wire.write(request.encode())
        payload = self._next()
        if payload is None:
            return "closed"
        if len(payload) == HEADER_BYTES:
            return ErrorCode(r.ReplyHeader.decode(payload).err).name
        answer = ConnectResponse.decode(payload)
        if not answer.timeout_ms:
            self.session = NO_SESSION
            return "expired"
        self.session = answer
        return ("resumed" if before else "new") + (" read-only" if answer.read_only else "")

    def connect_patiently(self, port: int, **options: object) -> str:
        """Retry :meth:`connect` until the member answers, and return the outcome."""
        deadline = time.monotonic() + 3 * DEADLINE_S
        while (outcome := self.connect(port, **options)) in ("refused", "closed"):  # type: ignore[arg-type]
            if time.monotonic() > deadline:
                return outcome
            time.sleep(0.02)
        return outcome

    def drop(self) -> None:
        """Close the connection, but keep the session."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _next(self, timeout: float = DEADLINE_S) -> bytes | None:
        """Return the next frame; None if the connection is closed or nothing comes."""
        if self._wire is None:
            return None
        try:
            payload = self._wire.next_payload(timeout)
        except TimeoutError:
            return None
        if payload is None:
            self.drop()
        return payload

    @property
    def connected(self) -> bool:
        """Whether the client has a connection, as far as it knows."""
        return self._wire is not None

    # --- requests ---

    def send(self, op: int, body: Record | bytes = b"") -> None:
        """Send a request, without waiting."""
        self._xid += 1
        if self._wire is not None:
            self._wire.send(op, body, self._xid)

    def answer(self, timeout: float = DEADLINE_S) -> tuple[str, bytes]:
        """Wait for the next reply; return its error by name, ``OK``, ``closed`` or ``nothing``, and its body."""
        while (payload := self._next(timeout)) is not None:
            reply = self._noted(payload)
            if reply.xid != -1:
                self.zxid = max(self.zxid, reply.zxid)
                return ErrorCode(reply.err).name, reply.body
        return ("nothing" if self.connected else "closed"), b""

    def _noted(self, payload: bytes) -> Reply:
        """Parse a payload, and record it if it is an event."""
        reply = split_reply(payload)
        if reply.xid == -1:
            event = r.WatcherEvent.decode(reply.body)
            self.events.append(f"{EventType(event.type).name} {event.path}")
        return reply

    def call(self, op: int, body: Record | bytes = b"", timeout: float = DEADLINE_S) -> tuple[str, bytes]:
        """Send a request, and wait for its reply."""
        self.send(op, body)
        return self.answer(timeout)

    def wait_for_events(self, count: int, timeout: float = DEADLINE_S) -> list[str]:
        """Wait until *count* events have arrived or the timeout is over; return all received events."""
        deadline = time.monotonic() + timeout
        while len(self.events) < count and time.monotonic() < deadline:
            payload = self._next(max(deadline - time.monotonic(), 0.001))
            if payload is None:
                break
            self._noted(payload)
        return self.events

    def is_closed(self, timeout: float = DEADLINE_S) -> bool:
        """Return whether the member closes the connection within *timeout* seconds."""
        deadline = time.monotonic() + timeout
        while self.connected and time.monotonic() < deadline:
            payload = self._next(deadline - time.monotonic())
            if payload is not None:
                self._noted(payload)
        return not self.connected

    # --- requests with outcomes in words ---

    def create(self, path: str, data: bytes = b"", flags: int = 0, timeout: float = DEADLINE_S) -> str:
        """Create a node; return its path, or the error."""
        error, body = self.call(OpCode.CREATE, r.CreateRequest(path, data, OPEN_ACL_UNSAFE, flags), timeout)
        return r.CreateResponse.decode(body).path if error == "OK" else error

    def set(self, path: str, data: bytes, version: int = -1, timeout: float = DEADLINE_S) -> str:
        """Set data; return ``OK`` or the error."""
        return self.call(OpCode.SET_DATA, r.SetDataRequest(path, data, version), timeout)[0]

    def delete(self, path: str) -> str:
        """Delete a node; return ``OK`` or the error."""
        return self.call(OpCode.DELETE, r.DeleteRequest(path, -1))[0]

    def get(self, path: str, *, watch: bool = False) -> str:
        """Return the data as text, or the error."""
        error, body = self.call(OpCode.GET_DATA, r.GetDataRequest(path, watch))
        return (r.GetDataResponse.decode(body).data or b"").decode() if error == "OK" else error

    def exists(self, path: str, *, watch: bool = False) -> str:
        """Return ``OK`` or the error."""
        return self.call(OpCode.EXISTS, r.ExistsRequest(path, watch))[0]

    def children(self, path: str, *, watch: bool = False) -> str:
        """Return the names of the children, sorted, or the error."""
        error, body = self.call(OpCode.GET_CHILDREN, r.GetChildrenRequest(path, watch))
        return " ".join(sorted(r.GetChildrenResponse.decode(body).children or ())) if error == "OK" else error

    def sync(self, path: str = "/", timeout: float = DEADLINE_S) -> str:
        """Send a sync, which makes the member catch up with its leader. Return ``OK`` or the error."""
        return self.call(OpCode.SYNC, r.SyncRequest(path), timeout)[0]

    def ping(self) -> str:
        """Send a ping; return ``OK`` or a different outcome."""
        if self._wire is None:
            return "closed"
        self._wire.send(OpCode.PING)
        return self.answer()[0]

    def close(self) -> str:
        """Close the session; return ``OK`` or a different outcome."""
        outcome = self.call(OpCode.CLOSE_SESSION)[0]
        self.drop()
        self.session = NO_SESSION
        return outcome
