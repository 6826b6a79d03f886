"""Executes the frames of a proxy: by a server somewhere else.

Frames go on to the server as they are, and answers come back in the order of the requests, as ZooKeeper promises; so
the oldest request that is not answered is that of the next reply. A reply that a fault makes up waits for its turn in
that line.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from zoolet.protocol.codec import int_at
from zoolet.protocol.errors import MarshallingError
from zoolet.protocol.framing import Frames, frame
from zoolet.protocol.handshake import ConnectResponse
from zoolet.protocol.records import ReplyHeader, WatcherEvent
from zoolet.server.core.client_connection import Session
from zoolet.server.testing.frames.actions import Effect
from zoolet.server.testing.frames.frame_queue import FrameQueue, Passed
from zoolet.server.testing.frames.interceptor import Reply, errors_in, is_event
from zoolet.server.testing.frames.requests import CONNECT, MAX_FRAME

_log = logging.getLogger("zoolet.proxy")
MAX_UNREAD: Final = 1 << 20
"""Bytes that wait for a client, from which on its server is not read."""
LOOK_EVERY: Final = 0.01
"""Seconds after which a client that does not read is looked at again."""


@dataclass(slots=True)
class _Expected:
    """A request whose reply has not come yet."""

    xid: int
    passed: Passed
    made: bytes = b""
    """A reply that a fault has made up; empty if the server answers it."""
    drop: bool = False
    """Whether the connection is to be closed in its place."""


class Upstream:
    """A connection to another server, as an :class:`~zoolet.server.testing.frames.frame_queue.Executor`.

    Args:
        queue: The queue that the frames come from; the session of its client is set when the server has opened or
            resumed one.
        connect: Connects a protocol to the server.
        unread: Returns how many bytes wait for a client that does not read.

    Attributes:
        is_raw: Whether bytes pass as they are: TLS, or a four-letter command.
    """

    def __init__(
        self,
        queue: FrameQueue,
        connect: Callable[[asyncio.Protocol], asyncio.Task[None]],
        unread: Callable[[], int],
    ) -> None:
        self.is_raw = False
        self._queue = queue
        self._client = queue.client
        self._interceptor = queue.interceptor
        self._unread = unread
        self._expected: deque[_Expected] = deque()
        self._unsent: list[bytes] | None = []  # for the server, until there is a connection to it
        self._unsent_bytes = 0
        self._frames = Frames(limit=MAX_FRAME)
        self._server: asyncio.Transport | None = None
        self._connecting = connect(_Protocol(self))

    def begins_raw(self, data: bytes) -> bool:
        """Return whether a connection begins with something other than frames."""
        return self.is_raw or not 0 <= int_at(data, 0)[0] <= MAX_FRAME

    def unasked_output(self) -> bytes:
        """Return nothing: what the server sends is passed on when it comes."""
        return b""

    def unanswered(self) -> list[Passed]:
        """Return the requests that the server has not answered, in order."""
        return [expected.passed for expected in self._expected]

    def connection_lost(self) -> None:
        """Close the connection to the server, because the peer is gone."""
        self.close()

    # --- to the server ---

    def execute_raw(self, data: bytes) -> None:
        """Pass on bytes as they are, those of the server too."""
        self.is_raw = True
        self._send(data)

    def execute(self, head: bytes, passed: Passed) -> int:
        """Send a frame to the server, or what a fault puts in its place; nothing answers it at once."""
        xid = int_at(head, 4)[0] if passed.request.opcode != CONNECT and len(head) >= 8 else 0
        expected = _Expected(xid, passed)
        if passed.has(Effect.DROP):
            expected.drop = True  # what was requested before is answered first
            self._queue.drop()
        elif passed.effect is not None and passed.has(Effect.FAIL):
            expected.made = ReplyHeader(xid, self._interceptor.last_zxid, passed.effect.code).encode()
        else:
            self._send(head)
        self._expected.append(expected)
        self._send_made_replies()
        return 0

    def _send(self, data: bytes) -> None:
        if self._unsent is not None:
            self._unsent.append(data)
            self._unsent_bytes += len(data)
            if self._unsent_bytes > MAX_FRAME:
                _log.warning("closing a connection: its server does not accept")
                self.close()
        elif self._server is not None:
            self._server.write(data)
            if self._server.get_write_buffer_size() > MAX_FRAME:
                _log.warning("closing a connection: its server does not read")
                self.close()

    def close(self) -> None:
        """Close both connections, and record what was not answered."""
        self._client.closing = True
        self._connecting.cancel()
        if self._server is not None:
            self._server.close()
        expected, self._expected = self._expected, deque()
        for entry in expected:  # they may have been executed
            self._queue.record(entry.passed, None, self._interceptor.last_zxid)

    # --- from the server ---

    def connected(self, transport: asyncio.Transport) -> None:
        """Send what has waited for the connection to the server."""
        self._server = transport
        unsent, self._unsent = self._unsent, None
        if self._client.closing:
            transport.close()
        else:
            transport.write(b"".join(unsent or ()))

    def received(self, data: bytes) -> None:
        """Receive bytes from the server."""
        if self.is_raw:
            self._queue.output.add(data)
        else:
            try:
                payloads = self._frames.feed(data)
            except MarshallingError:
                _log.exception("closing a connection whose server has sent no frame")
                self.close()
                payloads = []
            for payload in payloads:
                if not self._client.closing:
                    self._pass_back(payload)
                    self._send_made_replies()
        self._queue.resume()
        self._wait_for_client()

    def _wait_for_client(self) -> None:
        """Read from the server only while the client reads."""
        server = self._server
        if server is None or server.is_closing():
            return
        if self._unread() > MAX_UNREAD or len(self._queue.output) > MAX_UNREAD:
            if server.is_reading():
                server.pause_reading()
            self._interceptor.call_later(LOOK_EVERY, self._wait_for_client)
        elif not server.is_reading():
            server.resume_reading()

    def server_lost(self) -> None:
        """Close the connection: that to the server is closed, or there was none."""
        self._server, self._unsent = None, None
        self.close()
        self._queue.resume()

    def _pass_back(self, payload: bytes) -> None:
        expected = self._expected_for(payload)
        if expected is not None:
            self._expected.remove(expected)
            self._answer(expected, payload)
        elif is_event(payload):
            self._pass_event(payload)
        else:
            _log.warning("the server has sent a reply to no request")
            self.close()

    def _expected_for(self, payload: bytes) -> _Expected | None:
        """Return the request that a frame answers: the first with its xid; None for an event. A server may answer
        some, such as auth, before earlier ones.
        """
        if self._expected and self._expected[0].passed.request.opcode == CONNECT:
            return self._expected[0]
        if len(payload) < 4 or is_event(payload):
            return None
        (xid,) = int_at(payload, 0)
        return next((entry for entry in self._expected if entry.xid == xid and not entry.made), None)

    def _pass_event(self, payload: bytes) -> None:
        queue, session_id = self._queue, self._queue.session_id()
        data = frame(payload)

        def send() -> None:
            self._interceptor.record_events(queue.number, session_id, data, with_reply=bool(self._expected))
            self._queue.output.add(data)
            self._queue.resume()

        with suppress(MarshallingError):
            event = WatcherEvent.decode(payload[16:])
            if self._interceptor.withhold(session_id, (event.type, event.path or ""), send):
                return
        send()

    def _send_made_replies(self) -> None:
        while self._expected and (self._expected[0].made or self._expected[0].drop):
            expected = self._expected.popleft()
            if expected.drop:
                self._queue.record(expected.passed, None, self._interceptor.last_zxid)
                self.close()
            else:
                self._answer(expected, expected.made)

    def _answer(self, expected: _Expected, payload: bytes) -> None:
        opcode, zxid = expected.passed.request.opcode, self._interceptor.last_zxid
        if opcode == CONNECT:
            zxid = 0  # which one the session took, if it took any, cannot be seen from here
            reply = Reply.parse(frame(payload), CONNECT)
            with suppress(MarshallingError):
                answer = ConnectResponse.decode(payload)
                if answer.timeout_ms > 0:
                    self._client.session = Session(answer.session_id, answer.timeout_ms)
                    self._interceptor.passwords[answer.session_id] = answer.password or bytes(16)
        else:
            reply = Reply(frame(payload), *errors_in(payload, opcode))
            if len(payload) >= 16:
                zxid = ReplyHeader.decode(payload).zxid
        self._queue.answer(expected.passed, reply, zxid)


class _Protocol(asyncio.Protocol):
    """The connection to the server."""

    def __init__(self, owner: Upstream) -> None:
        self._owner = owner

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # a BaseTransport
        """Pass on."""
        self._owner.connected(transport)

    def data_received(self, data: bytes) -> None:
        """Pass on."""
        self._owner.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on; also called if no connection could be made."""
        self._owner.server_lost()
