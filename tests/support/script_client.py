"""A blocking client reduced to its socket, for scripts that run against any ensemble: it says what it is answered."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import Final

from support import frames

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import Record
from zoolet.protocol.enums import EventType
from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.framing import Frames, frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode

WAIT_S: Final = 10.0
HEADER: Final = 16
"""Bytes of a reply's header; a read-only member without local sessions answers a handshake with that alone."""
NO_SESSION: Final = ConnectResponse()


class ScriptClient:
    """One connection at a time, and the session that it has.

    Attributes:
        session: What the last handshake was answered.
        events: The events that have come, as ``type path``, in order.
        zxid: The highest zxid that was seen.
    """

    def __init__(self) -> None:
        self.session = NO_SESSION
        self.events: list[str] = []
        self.zxid = 0
        self._socket: socket.socket | None = None
        self._frames = Frames(limit=None)
        self._payloads: list[bytes] = []
        self._xid = 0

    # --- connections ---

    def connect(
        self, port: int, *, read_only: bool | None = False, timeout_ms: int = 10_000, zxid: int | None = None
    ) -> str:
        """Connect to a member, and open or resume the session; return what became of it: ``new``, ``resumed``,
        ``expired``, ``closed`` or ``refused``, with ``read-only`` if the member says that it is.
        """
        self.drop()
        try:
            self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        except OSError:
            return "refused"
        before = self.session.session_id
        seen = self.zxid if zxid is None else zxid
        request = ConnectRequest(seen, timeout_ms, before, self.session.password or bytes(16), read_only)
        with suppress(OSError):  # it is closed already
            self._socket.sendall(frame(request.encode()))
        payload = self._next()
        if payload is None:
            return "closed"
        if len(payload) == HEADER:
            return ErrorCode(r.ReplyHeader.decode(payload).err).name
        answer = ConnectResponse.decode(payload)
        if not answer.timeout_ms:
            self.session = NO_SESSION
            return "expired"
        self.session = answer
        return ("resumed" if before else "new") + (" read-only" if answer.read_only else "")

    def connect_patiently(self, port: int, **options: object) -> str:
        """Connect until that is answered."""
        deadline = time.monotonic() + 3 * WAIT_S
        while (outcome := self.connect(port, **options)) in ("refused", "closed"):  # type: ignore[arg-type]
            if time.monotonic() > deadline:
                return outcome
            time.sleep(0.02)
        return outcome

    def drop(self) -> None:
        """Close the connection, not the session."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._frames, self._payloads = Frames(limit=None), []

    def _next(self, timeout: float = WAIT_S) -> bytes | None:
        """Return the next frame; None if the connection is closed or nothing comes."""
        if self._socket is None:
            return None
        deadline = time.monotonic() + timeout
        while not self._payloads:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                return None
            except OSError:
                data = b""
            if not data:
                self.drop()
                return None
            self._payloads += self._frames.feed(data)
        return self._payloads.pop(0)

    @property
    def connected(self) -> bool:
        """Whether it has a connection, as far as it knows."""
        return self._socket is not None

    # --- requests ---

    def send(self, op: int, body: Record | bytes = b"") -> None:
        """Send a request, without waiting."""
        self._xid += 1
        if self._socket is not None:
            with suppress(OSError):
                self._socket.sendall(frames.request(self._xid, op, body))

    def answer(self, timeout: float = WAIT_S) -> tuple[str, bytes]:
        """Wait for the next reply; return its error by name, ``OK``, ``closed`` or ``nothing``, and its body."""
        while (payload := self._next(timeout)) is not None:
            header = r.ReplyHeader.decode(payload)
            if header.xid == -1:
                self._add_event(payload)
                continue
            self.zxid = max(self.zxid, header.zxid)
            return ErrorCode(header.err).name, payload[16:]
        return ("nothing" if self.connected else "closed"), b""

    def _add_event(self, payload: bytes) -> None:
        event = r.WatcherEvent.decode(payload[16:])
        self.events.append(f"{EventType(event.type).name} {event.path}")

    def call(self, op: int, body: Record | bytes = b"", timeout: float = WAIT_S) -> tuple[str, bytes]:
        """Send a request, and wait for its reply."""
        self.send(op, body)
        return self.answer(timeout)

    def wait_for_events(self, count: int, timeout: float = WAIT_S) -> list[str]:
        """Wait until so many events have come; return all that have, by then at the latest."""
        deadline = time.monotonic() + timeout
        while len(self.events) < count and time.monotonic() < deadline:
            payload = self._next(max(deadline - time.monotonic(), 0.001))
            if payload is None:
                break
            if r.ReplyHeader.decode(payload).xid == -1:
                self._add_event(payload)
        return self.events

    def is_closed(self, timeout: float = WAIT_S) -> bool:
        """Wait until the member closes the connection; return whether it has."""
        deadline = time.monotonic() + timeout
        while self.connected and time.monotonic() < deadline:
            payload = self._next(deadline - time.monotonic())
            if payload is not None and r.ReplyHeader.decode(payload).xid == -1:
                self._add_event(payload)
        return not self.connected

    # --- in words ---

    def create(self, path: str, data: bytes = b"", flags: int = 0, timeout: float = WAIT_S) -> str:
        """Create a node; return its path, or the error."""
        error, body = self.call(OpCode.CREATE, r.CreateRequest(path, data, OPEN_ACL_UNSAFE, flags), timeout)
        return r.CreateResponse.decode(body).path if error == "OK" else error

    def set(self, path: str, data: bytes, version: int = -1, timeout: float = WAIT_S) -> str:
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

    def sync(self, path: str = "/", timeout: float = WAIT_S) -> str:
        """Wait until the member has all that was before; return ``OK`` or the error."""
        return self.call(OpCode.SYNC, r.SyncRequest(path), timeout)[0]

    def ping(self) -> str:
        """Return ``OK``, or what came instead."""
        if self._socket is None:
            return "closed"
        self._socket.sendall(frames.ping())
        return self.answer()[0]

    def close(self) -> str:
        """Close the session; return ``OK`` or what came instead."""
        outcome = self.call(OpCode.CLOSE_SESSION)[0]
        self.drop()
        self.session = NO_SESSION
        return outcome
