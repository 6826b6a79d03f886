"""A connection of a proxy: the frames that pass its queue are executed by a server somewhere else.

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
from dataclasses import dataclass, field
from math import inf
from typing import Final

from zoolet.protocol.codec import int_at
from zoolet.protocol.errors import MarshallingError
from zoolet.protocol.framing import Frames, frame
from zoolet.protocol.handshake import ConnectResponse
from zoolet.protocol.records import ReplyHeader, WatcherEvent
from zoolet.server.core.client_connection import ClientConnection, Session
from zoolet.server.testing.frames.actions import Action, Effect
from zoolet.server.testing.frames.faults import Fault
from zoolet.server.testing.frames.frame_queue import FrameQueue, effect_of, rate_of
from zoolet.server.testing.frames.interceptor import Interceptor, Reply, errors_in, is_event
from zoolet.server.testing.frames.requests import CONNECT, MAX_FRAME, Request

_log = logging.getLogger("zoolet.proxy")
MAX_UNREAD: Final = 1 << 20
"""Bytes that wait for a client, from which on its server is not read."""
LOOK_EVERY: Final = 0.01
"""Seconds after which a client that does not read is looked at again."""


@dataclass
class _Expected:
    """A request whose reply has not come yet."""

    xid: int
    request: Request
    matched: list[Fault]
    effect: Action | None = field(init=False)
    rate: float | None = field(init=False)
    made: bytes = b""
    """A reply that a fault has made up; empty if the server answers it."""
    drop: bool = False
    """Whether the connection is to be closed in its place."""

    def __post_init__(self) -> None:
        self.effect = effect_of(self.matched)
        self.rate = rate_of(self.matched)


class ProxiedConnection(FrameQueue):
    """A connection whose frames are executed by another server.

    Args:
        interceptor: The pauses, faults and recorded requests.
        client: The connection as others see it; its session is set when the server has opened or resumed one.
        resume: Makes the transport call ``receive_data(b"")`` and send the output.
        connect: Connects a protocol to the server.
        unread: Returns how many bytes wait for a client that does not read.
    """

    def __init__(
        self,
        interceptor: Interceptor,
        client: ClientConnection,
        resume: Callable[[], object],
        connect: Callable[[asyncio.Protocol], asyncio.Task[None]],
        unread: Callable[[], int],
    ) -> None:
        super().__init__(interceptor, client, resume, MAX_FRAME, inf)
        self._unread = unread
        self._expected: deque[_Expected] = deque()
        self._is_command = False  # bytes pass as they are
        self._dropping = False  # a request was dropped: nothing behind it passes
        self._unsent: list[bytes] | None = []  # for the server, until there is a connection to it
        self._unsent_bytes = 0
        self._frames = Frames(limit=MAX_FRAME)
        self._server: asyncio.Transport | None = None
        self._connecting = connect(_Upstream(self))

    @property
    def is_raw(self) -> bool:
        """Whether its bytes pass as they are: TLS, or a four-letter command."""
        return self._is_command

    def _begins_raw(self, data: bytes) -> bool:
        return self._is_command or not 0 <= int_at(data, 0)[0] <= MAX_FRAME

    def _more_output(self) -> bytes:
        return b""

    def connection_lost(self) -> None:
        """Remove the connection, because the peer is gone, and close that to the server."""
        super().connection_lost()
        self._close()

    def receive_data(self, data: bytes, until: float = inf, time: Callable[[], float] = float) -> bool:
        """Receive bytes and forward the frames that need not wait; nothing remains for a later turn."""
        return False if self._dropping else super().receive_data(data, until, time)

    def waiting_request(self) -> tuple[Request, list[Fault]] | None:
        """Return the request that waits for a fault, or for the server; None if none waits."""
        held = super().waiting_request()
        return held or ((self._expected[0].request, self._expected[0].matched) if self._expected else None)

    def hurry(self) -> None:
        """End what delays requests and replies, those too that the server has not answered yet."""
        for expected in self._expected:
            expected.rate = None
        super().hurry()

    # --- to the server ---

    def _execute_raw(self, data: bytes) -> None:
        self._is_command = True
        self._send(data)

    def _execute(self, head: bytes, request: Request, matched: list[Fault]) -> int:
        xid = int_at(head, 4)[0] if request.opcode != CONNECT and len(head) >= 8 else 0
        expected = _Expected(xid, request, matched)
        effect = expected.effect.effect if expected.effect is not None else None
        if effect is Effect.DROP:
            expected.drop = self._dropping = True  # what was requested before is answered first
            self._queue = b""
        elif effect is Effect.FAIL and expected.effect is not None:
            expected.made = ReplyHeader(xid, self._interceptor.last_zxid, expected.effect.code).encode()
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
                self._close()
        elif self._server is not None:
            self._server.write(data)
            if self._server.get_write_buffer_size() > MAX_FRAME:
                _log.warning("closing a connection: its server does not read")
                self._close()

    def _close(self) -> None:
        self.client.closing = True
        self._connecting.cancel()
        if self._server is not None:
            self._server.close()
        expected, self._expected = self._expected, deque()
        for entry in expected:  # they may have been executed
            self._record(entry.request, None, entry.matched, self._interceptor.last_zxid)

    # --- from the server ---

    def connected(self, transport: asyncio.Transport) -> None:
        """Send what has waited for the connection to the server."""
        self._server = transport
        unsent, self._unsent = self._unsent, None
        if self.client.closing:
            transport.close()
        else:
            transport.write(b"".join(unsent or ()))

    def received(self, data: bytes) -> None:
        """Receive bytes from the server."""
        if self._is_command:
            self._output.add(data)
        else:
            try:
                payloads = self._frames.feed(data)
            except MarshallingError:
                _log.exception("closing a connection whose server has sent no frame")
                self._close()
                payloads = []
            for payload in payloads:
                if not self.client.closing:
                    self._pass_back(payload)
                    self._send_made_replies()
        self._resume()
        self._wait_for_client()

    def _wait_for_client(self) -> None:
        """Read from the server only while the client reads."""
        server = self._server
        if server is None or server.is_closing():
            return
        if self._unread() > MAX_UNREAD or len(self._output) > MAX_UNREAD:
            if server.is_reading():
                server.pause_reading()
            self._interceptor.call_later(LOOK_EVERY, self._wait_for_client)
        elif not server.is_reading():
            server.resume_reading()

    def server_lost(self) -> None:
        """Close the connection: that to the server is closed, or there was none."""
        self._server, self._unsent = None, None
        self._close()
        self._resume()

    def _pass_back(self, payload: bytes) -> None:
        expected = self._expected_for(payload)
        if expected is not None:
            self._expected.remove(expected)
            self._answer(expected, payload)
        elif is_event(payload):
            self._pass_event(payload)
        else:
            _log.warning("the server has sent a reply to no request")
            self._close()

    def _expected_for(self, payload: bytes) -> _Expected | None:
        """Return the request that a frame answers: the first with its xid; None for an event. A server may answer
        some, such as auth, before earlier ones.
        """
        if self._expected and self._expected[0].request.opcode == CONNECT:
            return self._expected[0]
        if len(payload) < 4 or is_event(payload):
            return None
        (xid,) = int_at(payload, 0)
        return next((entry for entry in self._expected if entry.xid == xid and not entry.made), None)

    def _pass_event(self, payload: bytes) -> None:
        session_id = self._session_id()
        data = frame(payload)

        def send() -> None:
            self._interceptor.record_events(self.number, session_id, data, with_reply=bool(self._expected))
            self._output.add(data)
            self._resume()

        with suppress(MarshallingError):
            event = WatcherEvent.decode(payload[16:])
            if self._interceptor.withhold(session_id, (event.type, event.path or ""), send):
                return
        send()

    def _send_made_replies(self) -> None:
        while self._expected and (self._expected[0].made or self._expected[0].drop):
            expected = self._expected.popleft()
            if expected.drop:
                self._record(expected.request, None, expected.matched, self._interceptor.last_zxid)
                self._close()
            else:
                self._answer(expected, expected.made)

    def _answer(self, expected: _Expected, payload: bytes) -> None:
        request = expected.request
        zxid = self._interceptor.last_zxid
        if request.opcode == CONNECT:
            reply = Reply.parse(frame(payload), CONNECT)
            with suppress(MarshallingError):
                answer = ConnectResponse.decode(payload)
                if answer.timeout_ms > 0:
                    self.client.session = Session(answer.session_id, answer.timeout_ms)
                    self._interceptor.passwords[answer.session_id] = answer.password or bytes(16)
        else:
            reply = Reply(frame(payload), *errors_in(payload, request.opcode))
            if len(payload) >= 16:
                zxid = ReplyHeader.decode(payload).zxid
        reply, close = self._send_reply(reply, expected.effect, expected.rate)
        self._record(request, reply, expected.matched, zxid)
        if close:
            self._close()


class _Upstream(asyncio.Protocol):
    """The connection to the server."""

    def __init__(self, owner: ProxiedConnection) -> None:
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
