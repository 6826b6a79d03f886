"""A client over a socket that writes down what a server shows, with all that may differ evened out.

Zxids are counted from a base that the client chooses, and those of events are -1 where the release sends that; times
and session ids are blanked, as are the random parts of a SASL exchange.
"""

from __future__ import annotations

import re
import socket
import struct
import time

from differential.pair import PING, Link, even, is_event
from differential.script import Operation

from zoolet.protocol import records as r
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode

LONG_TIMEOUT = 600_000
"""Milliseconds; such a session does not expire here."""
EVENTS_S = 4.0
"""Seconds in which all events come, unless something is wrong."""
Event = tuple[int, int, str]
"""Type, zxid, path."""


class Client:
    """One connection with a session.

    Args:
        port: Where the server listens on 127.0.0.1.
        timeout: Of the session, in milliseconds.
        of: A client whose session is resumed.
    """

    def __init__(self, port: int, timeout: int = LONG_TIMEOUT, of: Client | None = None) -> None:
        self.port = port
        self.link = Link(port)
        session, password = (of.welcome.session_id, of.welcome.password) if of else (0, bytes(16))
        self.link.send(ConnectRequest(0, timeout, session, password, False).encode())
        answer = self.link.read()
        assert answer is not None
        self.welcome = ConnectResponse.decode(answer)
        self._events: list[Event] = []
        self.base = 0
        self.base = self.zxid()

    @property
    def refused(self) -> bool:
        """Whether the server says that the session has expired."""
        return self.welcome.timeout_ms == 0

    def zxid(self) -> int:
        """Return the last zxid, counted from the base; 0 if there is no connection."""
        self.link.send(PING)
        answer = self._reply()
        return struct.unpack_from(">q", answer, 4)[0] - self.base if answer else 0

    def do(self, operation: Operation, xid: int = 1) -> object:
        """Send a request and return its reply, or None if the connection is closed instead."""
        payload = self.exchange(*operation, xid)
        return None if payload is None else self._written(operation[0], payload)

    def exchange(self, op: OpCode, body: bytes, xid: int = 1) -> bytes | None:
        """Send a request and return the payload of its reply, or None if the connection is closed instead."""
        self.link.send(r.RequestHeader(xid, op).encode() + body)
        return self._reply()

    def _reply(self) -> bytes | None:
        """Read up to a reply; keep the events before it. None is the end of the connection."""
        while (payload := self.link.read()) is not None and is_event(payload):
            (zxid,) = struct.unpack_from(">q", payload, 4)
            event = r.WatcherEvent.decode(payload[16:])
            self._events.append((event.type, zxid - self.base if zxid > 0 else zxid, event.path))
        return payload

    def _written(self, op: OpCode, payload: bytes) -> object:
        zxid, err = struct.unpack_from(">qi", payload, 4)
        _, body = even(op, payload)  # type: ignore[misc] # it is a pair
        text = re.sub(r"ephemeralOwner=\d{6,}", "ephemeralOwner=*", str(body))
        return zxid - self.base if zxid > 0 else zxid, err, re.sub("([cmp]zxid)=[0-9]+", r"\1=*", text)

    def events(self, count: int) -> list[Event]:
        """Wait for the next so many events; there are fewer if they do not come in time."""
        deadline = time.monotonic() + EVENTS_S
        while len(self._events) < count and time.monotonic() < deadline:
            self.zxid()  # its reply is behind the events
            time.sleep(0.01)
        found, self._events = self._events[:count], self._events[count:]
        return found

    def closed(self) -> bool:
        """Wait until the server closes the connection; False if it answers something."""
        return self._reply() is None

    def keep_alive(self, seconds: float, operation: Operation, xid: int) -> bool:
        """Send a request every tenth of a second and return whether the connection is still there at the end."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.do(operation, xid) is None:
                return False
            time.sleep(0.1)
        return True

    def close(self) -> None:
        """Close the session, if the connection is there, and wait for its end: no later script is to see it."""
        self.link.send(r.RequestHeader(1, OpCode.CLOSE_SESSION).encode())
        while self.link.read() is not None:
            pass
        self.link.close()

    def cut(self) -> None:
        """Close the connection, not the session."""
        self.link.socket.shutdown(socket.SHUT_RDWR)
