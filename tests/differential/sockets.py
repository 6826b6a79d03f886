"""A client over a socket that returns a server's output, with all legitimate differences normalised.

Zxids are counted from a base that the client chooses; zxids of events are -1 if the release sends -1. Times, session
ids and the random parts of a SASL exchange are blanked.
"""

from __future__ import annotations

import re
import socket
import struct
import time

from differential.pair import PING, is_event, normalise
from differential.script import Operation
from support.waiting import DEADLINE_S
from support.wire import Wire

from zoolet.protocol import records as r
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode

LONG_TIMEOUT = 600_000
"""Session timeout in milliseconds, for a session that does not expire during a test."""
Event = tuple[int, int, str]
"""An event: type, zxid and path."""


class Client:
    """One connection with a session.

    Args:
        port: Port of the server on 127.0.0.1.
        timeout: Session timeout in milliseconds.
        of: Client whose session is resumed.
    """

    def __init__(self, port: int, timeout: int = LONG_TIMEOUT, of: Client | None = None) -> None:
        self.port = port
        self.link = Wire(port, 0, wait=DEADLINE_S)
        session, password = (of.welcome.session_id, of.welcome.password) if of else (0, bytes(16))
        self.link.write(ConnectRequest(0, timeout, session, password, False).encode())
        answer = self.link.next_payload()
        assert answer is not None
        self.welcome = ConnectResponse.decode(answer)
        self._events: list[Event] = []
        self.base = 0
        self.base = self.zxid()

    @property
    def refused(self) -> bool:
        """Whether the server's answer means that the session has expired."""
        return self.welcome.timeout_ms == 0

    def zxid(self) -> int:
        """Return the last zxid, counted from the base, or 0 if there is no connection."""
        self.link.write(PING)
        answer = self._reply()
        return struct.unpack_from(">q", answer, 4)[0] - self.base if answer else 0

    def do(self, operation: Operation, xid: int = 1) -> object:
        """Send a request and return its reply, or None if the connection is closed instead."""
        payload = self.exchange(*operation, xid)
        return None if payload is None else self._written(operation[0], payload)

    def exchange(self, op: OpCode, body: bytes, xid: int = 1) -> bytes | None:
        """Send a request and return the payload of its reply, or None if the connection is closed instead."""
        self.link.write(r.RequestHeader(xid, op).encode() + body)
        return self._reply()

    def _reply(self) -> bytes | None:
        """Wait for a reply, and keep earlier events. Return None if the connection is closed instead."""
        while (payload := self.link.next_payload()) is not None and is_event(payload):
            (zxid,) = struct.unpack_from(">q", payload, 4)
            event = r.WatcherEvent.decode(payload[16:])
            self._events.append((event.type, zxid - self.base if zxid > 0 else zxid, event.path))
        return payload

    def _written(self, op: OpCode, payload: bytes) -> object:
        zxid, err = struct.unpack_from(">qi", payload, 4)
        _, body = normalise(op, payload)  # type: ignore[misc] # it is a pair
        text = re.sub(r"ephemeralOwner=\d{6,}", "ephemeralOwner=*", str(body))
        return zxid - self.base if zxid > 0 else zxid, err, re.sub("([cmp]zxid)=[0-9]+", r"\1=*", text)

    def events(self, count: int) -> list[Event]:
        """Wait for the next *count* events. Return the events that arrived in time, which may be fewer."""
        deadline = time.monotonic() + DEADLINE_S
        while len(self._events) < count and time.monotonic() < deadline:
            self.zxid()  # the reply arrives after all events
            time.sleep(0.01)
        found, self._events = self._events[:count], self._events[count:]
        return found

    def closed(self) -> bool:
        """Wait until the server closes the connection. Return False if the server answers instead."""
        return self._reply() is None

    def keep_alive(self, seconds: float, operation: Operation, xid: int) -> bool:
        """Send a request every tenth of a second for *seconds*. Return whether the connection is still open."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.do(operation, xid) is None:
                return False
            time.sleep(0.1)
        return True

    def close(self) -> None:
        """Close the session, if connected, and wait for its end, so no later script sees it."""
        self.link.write(r.RequestHeader(1, OpCode.CLOSE_SESSION).encode())
        while self.link.next_payload() is not None:
            pass
        self.link.close()

    def cut(self) -> None:
        """Cut the connection without closing the session."""
        self.link.link.shutdown(socket.SHUT_RDWR)
