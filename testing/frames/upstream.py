"""The executor of a proxy's frames, which forwards them to a remote server.

Frames are forwarded unchanged. ZooKeeper answers in the order of the requests, so the next reply belongs to the oldest
unanswered request. If a fault answers a request instead, its reply also waits for its turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ...protocol.codec import int_at
from ...protocol.errors import MarshallingError
from ...protocol.framing import Frames, frame
from ...protocol.handshake import ConnectResponse
from ...protocol.operations import OpCode
from ...protocol.records import AuthPacket, ReplyHeader, WatcherEvent
from ...server.core.client_connection import Session
from .actions import Effect
from .frame_queue import FrameQueue, PassedRequest
from .interceptor import Reply, errors_in, is_event
from .requests import CONNECT, MAX_FRAME

_log = logging.getLogger("zoolet.proxy")
MAX_UNREAD_BYTES: Final = 1 << 20
"""Maximum number of bytes that a client may leave unread before the proxy stops reading from its server."""
CHECK_INTERVAL_S: Final = 0.01
"""Seconds between checks of a client that does not read."""


@dataclass(slots=True)
class _ExpectedReply:
    """A request that still waits for its reply."""

    xid: int
    passed: PassedRequest
    fault_reply: bytes = b""
    """A reply that a fault makes. Empty if the server answers the request."""
    drop: bool = False
    """Whether to close the connection instead of answering."""


class Upstream:
    """A connection to a remote server, as an :class:`~zoolet.testing.frames.frame_queue.Executor`.

    Args:
        queue: The queue that the frames come from. Its client's session is set once the server has opened or resumed
            it.
        connect: Connects a protocol to the server.
        unread: Returns the number of bytes that the client has not read.

    Attributes:
        is_raw: Whether bytes are forwarded unchanged: TLS, or a four-letter command.
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
        self._expected: deque[_ExpectedReply] = deque()
        self._unsent: list[bytes] | None = []  # data for the server; None once the connection is open
        self._unsent_bytes = 0
        self._frames = Frames(limit=MAX_FRAME)
        self._server: asyncio.Transport | None = None
        self._connecting = connect(_Protocol(self))

    def starts_raw(self, data: bytes) -> bool:
        """Return whether a connection starts with something other than frames."""
        return self.is_raw or not 0 <= int_at(data, 0)[0] <= MAX_FRAME

    def unsolicited_output(self) -> bytes:
        """Return no bytes, because output of the server is forwarded when it arrives."""
        return b""

    def unanswered(self) -> list[PassedRequest]:
        """Return the requests that the server has not answered, in order."""
        return [expected.passed for expected in self._expected]

    def connection_lost(self) -> None:
        """Close the connection to the server, because the peer is gone."""
        self.close()

    # --- to the server ---

    def execute_raw(self, data: bytes) -> None:
        """Forward bytes unchanged, and all later bytes of both directions as well."""
        self.is_raw = True
        self._send(data)

    def execute(self, head: bytes, passed: PassedRequest) -> int:
        """Send a frame to the server, or apply the effect of its fault. Return 0, because the answer arrives later."""
        xid = int_at(head, 4)[0] if passed.request.opcode != CONNECT and len(head) >= 8 else 0
        expected = _ExpectedReply(xid, passed)
        if passed.has(Effect.DROP):
            expected.drop = True  # the connection is closed once earlier requests are answered
            self._queue.drop()
        elif passed.effect is not None and passed.has(Effect.FAIL):
            expected.fault_reply = ReplyHeader(xid, self._interceptor.last_zxid, passed.effect.code).encode()
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
                self._close_with_warning("the server does not accept connections")
        elif self._server is not None:
            self._server.write(data)
            if self._server.get_write_buffer_size() > MAX_FRAME:
                self._close_with_warning("the server does not read requests")

    def _close_with_warning(self, reason: str) -> None:
        """Close both connections, and log the reason as a warning."""
        _log.warning("closing the connection of %s: %s", self._client.address, reason)
        self.close()

    def close(self) -> None:
        """Close both connections, and record the unanswered requests."""
        self._client.closing = True
        self._connecting.cancel()
        if self._server is not None:
            self._server.close()
        expected, self._expected = self._expected, deque()
        for entry in expected:  # the server may have executed the expected requests
            self._queue.record(entry.passed, None, self._interceptor.last_zxid)

    # --- from the server ---

    def server_connected(self, transport: asyncio.Transport) -> None:
        """Send the data that waited for the connection to the server."""
        self._server = transport
        unsent, self._unsent = self._unsent, None
        if self._client.closing:
            transport.close()
        else:
            transport.write(b"".join(unsent or ()))

    def receive_from_server(self, data: bytes) -> None:
        """Process bytes from the server: answer the requests that they reply to, and forward events."""
        if self.is_raw:
            self._queue.output.add(data)
        else:
            try:
                payloads = self._frames.feed(data)
            except MarshallingError:
                address = self._client.address
                _log.exception("closing the connection of %s: the server sent data that is not a frame", address)
                self.close()
                payloads = []
            for payload in payloads:
                if not self._client.closing:
                    self._forward_reply(payload)
                    self._send_made_replies()
        self._queue.resume()
        self._wait_for_client()

    def _wait_for_client(self) -> None:
        """Stop reading from the server while the client does not read, and resume later."""
        server = self._server
        if server is None or server.is_closing():
            return
        if self._unread() > MAX_UNREAD_BYTES or len(self._queue.output) > MAX_UNREAD_BYTES:
            if server.is_reading():
                server.pause_reading()
            self._interceptor.call_later(CHECK_INTERVAL_S, self._wait_for_client)
        elif not server.is_reading():
            server.resume_reading()

    def server_lost(self) -> None:
        """Close the client's connection, because the server closed its connection or could not be reached."""
        self._server, self._unsent = None, None
        self.close()
        self._queue.resume()

    def _forward_reply(self, payload: bytes) -> None:
        expected = self._find_expected(payload)
        if expected is not None:
            self._expected.remove(expected)
            self._answer(expected, payload)
        elif is_event(payload):
            self._pass_event(payload)
        else:
            self._close_with_warning("the server sent a reply without a request")

    def _find_expected(self, payload: bytes) -> _ExpectedReply | None:
        """Return the first request with the frame's xid, or None for an event.

        The request is not always the oldest, because servers answer some requests, such as auth, early.
        """
        if self._expected and self._expected[0].passed.request.opcode == CONNECT:
            return self._expected[0]
        if len(payload) < 4 or is_event(payload):
            return None
        (xid,) = int_at(payload, 0)
        return next((entry for entry in self._expected if entry.xid == xid and not entry.fault_reply), None)

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
        while self._expected and (self._expected[0].fault_reply or self._expected[0].drop):
            expected = self._expected.popleft()
            if expected.drop:
                self._queue.record(expected.passed, None, self._interceptor.last_zxid)
                self.close()
            else:
                self._answer(expected, expected.fault_reply)

    def _answer(self, expected: _ExpectedReply, payload: bytes) -> None:
        opcode, zxid = expected.passed.request.opcode, self._interceptor.last_zxid
        if opcode == CONNECT:
            zxid = 0  # a proxy cannot see the zxid of a new session
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
            if opcode == OpCode.AUTH and not reply.error:
                with suppress(MarshallingError):
                    packet = AuthPacket.decode(expected.passed.request.body)
                    self._interceptor.credentials.add((packet.scheme or "", packet.auth or b""))
        self._queue.answer(expected.passed, reply, zxid)


class _Protocol(asyncio.Protocol):
    """The protocol of the connection to the server."""

    def __init__(self, owner: Upstream) -> None:
        self._owner = owner

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # a BaseTransport
        """Forward the event to the owner."""
        self._owner.server_connected(transport)

    def data_received(self, data: bytes) -> None:
        """Forward the event to the owner."""
        self._owner.receive_from_server(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forward the event to the owner. This is also called if the connection attempt failed."""
        self._owner.server_lost()
