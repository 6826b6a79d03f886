"""One server and its connections, driven by a list of actions; every reply is checked as it arrives.

The connections split the bytes that they send into frames on their own, so they know which xid the server has to answer
next. An action is a tuple of its kind, the number of a connection, and bytes or numbers:

====================  ====================================================================
``hello n bytes``     leave connection *n*, open a new one, and send its first bytes
``data n bytes``      send bytes, on a new connection if the server has closed this one
``login n bytes``     run a SASL exchange with a user's correct or wrong password
``drop n``            leave connection *n*
``time now uptime``   set the clocks, and run a tick
``mode 0|1``          switch read-only mode off or on
====================  ====================================================================
"""

from __future__ import annotations

import struct
import time
from collections import deque
from typing import Any, Final
from zlib import crc32

from fuzz import engines, frames
from fuzz.engines import fail_unless

from zoolet.protocol import records as r
from zoolet.protocol import sasl
from zoolet.protocol.codec import put_bytes
from zoolet.protocol.errors import ErrorCode, MarshallingError
from zoolet.protocol.handshake import ConnectResponse
from zoolet.protocol.multi import decode_results
from zoolet.protocol.operations import OPERATIONS, OpCode

Action = tuple[Any, ...]

CONNECTIONS: Final = 5
_REQUEST = struct.Struct(">iii").unpack_from
_REPLY = struct.Struct(">iiqi").unpack_from
_EVENT = struct.Struct(">iii").unpack_from
_CODES: Final = frozenset(int(code) for code in ErrorCode)
_RESPONSES: Final = {int(op): one.response for op, one in OPERATIONS.items() if one.response is not None}
_LISTS: Final = frozenset({int(OpCode.MULTI), int(OpCode.MULTI_READ)})
_MAX_READS: Final = 100_000  # limit of attempts to get the rest of a connection's output


class Link:
    """One connection, from the client's side.

    Args:
        engine: The server.
        host: Apparent address of the client.
    """

    def __init__(self, engine: engines.Engine, host: str) -> None:
        self.connection = engines.connection_to(engine, host)
        self.client = self.connection.client
        self.unsent = b""  # the beginning of a request that is not yet complete
        self.opened = False  # whether the first frame was sent
        self.word = False  # whether the first bytes were a four-letter word
        self.hopeless = False  # whether the next bytes cannot be a frame, so the server closes the connection
        self.greeted = False
        self.expected: deque[tuple[int, int]] = deque()  # xids and op codes of the unanswered requests
        self.has_backlog = False
        self.zxid = 0
        self.max_frame = engine.settings.max_frame
        self.pings_may_be_refused = bool(engine.settings.require_auth)

    def expect(self, data: bytes) -> int:
        """Parse sent bytes as the server must. Return the number of complete frames."""
        if self.hopeless:
            return 0
        buf = self.unsent + data if self.unsent else data
        at, size, count = 0, len(buf), 0
        if not self.opened and size >= 4:
            if buf[:4] in engines.COMMAND_ANSWERS:
                self.word = self.opened = self.hopeless = True
                return 1
            (length,) = struct.unpack_from(">i", buf)
            if not 0 <= length <= self.max_frame:
                self.hopeless = True
                return 1
            if size >= 4 + length:
                self.opened, at, count = True, 4 + length, 1
        if self.opened:
            expected, most = self.expected, self.max_frame
            while size - at >= 12:
                length, xid, op = _REQUEST(buf, at)
                if not 8 <= length <= most:
                    self.hopeless = True
                    break
                if at + 4 + length > size:
                    break
                expected.append((xid, op))
                count += 1
                at += 4 + length
        self.unsent = buf[at:]
        return count

    def read(self, data: bytes, counts: dict[int, int]) -> None:
        """Check the server's output, and count the error codes of its replies."""
        if self.word:
            fail_unless(self.client.closing, "a four-letter word is answered and the connection stays")
            return
        at, size = 0, len(data)
        if not self.greeted:
            (length,) = struct.unpack_from(">i", data)
            fail_unless(length in (36, 37), "the first reply is not that to a connect request", data[:64])
            answer = ConnectResponse.decode(data, 4, 4 + length)
            fail_unless((answer.session_id == 0) == self.client.closing or self.opened, "greeting", answer)
            self.greeted, at = True, 4 + length
        expected = self.expected
        while at < size:
            fail_unless(size - at >= 20, "a reply is cut short", data[at:])
            length, xid, zxid, err = _REPLY(data, at)
            stop = at + 4 + length
            fail_unless(16 <= length and stop <= size, "the length of a reply", length, size - at)
            if xid == -1 and (not expected or expected[0][0] != -1 or self._is_event(data, at, stop)):
                fail_unless(self._is_event(data, at, stop), "an event", data[at:stop])
            else:
                fail_unless(bool(expected), "a reply that nobody asked for", data[at : at + 64])
                wanted, op = expected.popleft()
                fail_unless(
                    xid == wanted if op != OpCode.PING else xid == -2 or (xid == wanted and self.pings_may_be_refused),
                    "the xid of a reply",
                    xid,
                    wanted,
                    op,
                )
                fail_unless(zxid in (0, -1) or zxid >= self.zxid, "a zxid that goes back", zxid, self.zxid)
                self.zxid = max(zxid, self.zxid)
                fail_unless(err in _CODES, "an error code that does not exist", err)
                has_body = op in (OpCode.SASL, OpCode.MULTI, OpCode.MULTI_READ)
                fail_unless(not err or length == 16 or has_body, "an error with a body", op, err)
                counts[err] = counts.get(err, 0) + 1
                if not err:
                    _decode(op, data, at + 20, stop)
            at = stop

    def _is_event(self, data: bytes, at: int, stop: int) -> bool:
        if stop - at < 32 or data[at + 16 : at + 20] != b"\0\0\0\0":
            return False
        kind, state, size = _EVENT(data, at + 20)
        return 1 <= kind <= 4 and state == 3 and stop == at + 32 + size

    def settled(self) -> None:
        """Check that an open connection has no unanswered request."""
        if not self.client.closing and not self.has_backlog:
            fail_unless(not self.expected, "requests were not answered", len(self.expected))


def _decode(op: int, data: bytes, at: int, stop: int) -> None:
    try:
        if op in _LISTS:
            decode_results(data[:stop], at)
            return
        kind = _RESPONSES.get(op)
        if kind is not None:
            record, end = kind.read_from(data, at, stop)
            fail_unless(end == stop, "bytes behind the body of a reply", op, data[at:stop])
            fail_unless(record.encode() == data[at:stop], "a reply that does not encode as it was", op, data[at:stop])
    except MarshallingError as error:
        raise AssertionError("the body of a reply does not decode", op, data[at:stop], error) from None


class World:
    """A fresh server and its connections.

    Args:
        variant: Number of the server's settings.
        pieces: Size of the pieces in which all bytes are sent; 0 to send them unsplit.

    Attributes:
        actions: Number of started actions.
        frames: Number of frames that the server has parsed; frames after the end of a connection do not count.
        digest: A checksum of the server's output, without answers to four-letter commands, which depend on the machine.
        codes: Number of replies with each error code.
        slowest: The longest duration of a call, in seconds of CPU, and its action.
    """

    def __init__(self, variant: int, pieces: int = 0) -> None:
        self.engine = engines.engine_for(variant)
        self.digest = 0
        self.links: list[Link | None] = [None] * CONNECTIONS
        self.actions = self.frames = 0
        self.codes: dict[int, int] = {}
        self.slowest: tuple[float, Action] = (0.0, ())
        self._by_caller: dict[engines.ClientConnection, Link] = {}
        self._pieces = pieces
        self._opened = 0
        self._uptime = 0

    def do(self, action: Action) -> None:
        """Run one action and check all its results.

        Raises:
            Exception: The server raised an error, which is a defect; AssertionError if its answer is wrong.
        """
        self.actions += 1
        began = time.thread_time()
        getattr(self, "_" + action[0])(*action[1:])
        self._deliver()
        took = time.thread_time() - began
        if took > self.slowest[0]:
            self.slowest = took, action

    def check(self) -> None:
        """Make the server answer all pending requests, and compare its indexes with its tree."""
        for link in self.links:
            if link is not None:
                self._resume(link)
        self._deliver()
        for link in self.links:
            if link is not None:
                link.settled()
        engines.check_invariants(self.engine)

    # --- actions ---

    def _hello(self, slot: int, data: bytes) -> None:
        self._drop(slot)
        self._send(self._open(slot), data)

    def _data(self, slot: int, data: bytes) -> None:
        link = self.links[slot]
        if link is None or link.client.closing or link.hopeless:
            self._drop(slot)
            link = self._open(slot)
            self._send(link, frames.HELLO)
        self._send(link, data)

    def _login(self, slot: int, password: bytes) -> None:
        """Log in as a user, with the correct or a wrong password."""
        link = self.links[slot]
        if link is None or link.client.closing or link.unsent or not link.opened or link.hopeless:
            return
        self._resume(link)
        self._deliver()
        outbox = link.client.outbox
        link.expect(frames.request_frame(1, OpCode.SASL, put_bytes(b"")))
        engines.receive(link.connection, frames.request_frame(1, OpCode.SASL, put_bytes(b"")))
        output = b"".join(outbox)
        self._read(link)
        if len(output) < 24 or link.client.closing:
            return
        challenge = r.SetSASLResponse.decode(output, 20).token
        if challenge:
            user, _, secret = password.decode().partition(":")
            token = sasl.answer(challenge, user, secret, "cnonce")[0]
            self._send(link, frames.request_frame(2, OpCode.SASL, put_bytes(token)))

    def _drop(self, slot: int) -> None:
        link, self.links[slot] = self.links[slot], None
        if link is not None:
            self._read(link)
            del self._by_caller[link.client]
            link.connection.connection_lost()
            engines.check_gone(self.engine, link.client)

    def _time(self, now: int, monotonic_ms: int) -> None:
        self._uptime += monotonic_ms
        self.engine.set_time(engines.START_MS + self._uptime + now, self._uptime)
        self.engine.tick()

    def _mode(self, read_only: int) -> None:
        self.engine.read_only = bool(read_only)

    # --- helpers for actions ---

    def _open(self, slot: int) -> Link:
        link = Link(self.engine, engines.HOSTS[self._opened % len(engines.HOSTS)])
        self._opened += 1
        self.links[slot] = link
        self._by_caller[link.client] = link
        return link

    def _send(self, link: Link, data: bytes) -> None:
        if link.has_backlog:
            self._resume(link)
        self.frames += link.expect(data)
        if self._pieces:
            self._send_in_pieces(link, data)
        else:
            link.has_backlog = engines.receive(link.connection, data)
            self._read(link)
        if link.client.closing:
            self.frames -= len(link.expected)
            link.expected.clear()
        elif not link.has_backlog:
            link.settled()

    def _send_in_pieces(self, link: Link, data: bytes) -> None:
        for at in range(0, len(data), self._pieces):
            link.has_backlog = engines.receive(link.connection, data[at : at + self._pieces])
            self._read(link)
            self._resume(link)

    def _resume(self, link: Link) -> None:
        for _ in range(_MAX_READS):
            if not link.has_backlog:
                return
            link.has_backlog = engines.receive(link.connection, b"")
            self._read(link)
        raise AssertionError("a connection has always more to answer")

    def _read(self, link: Link) -> None:
        outbox = link.client.outbox
        if outbox:
            data = b"".join(outbox)
            outbox.clear()
            link.read(data, self.codes)
            if not link.word:
                self.digest = crc32(data, self.digest)

    def _deliver(self) -> None:
        dirty = self.engine.pending_output
        while dirty:
            clients = list(dirty)
            dirty.clear()
            for client in clients:
                link = self._by_caller.get(client)
                if link is None:
                    raise AssertionError("something to send to a connection that is gone")
                self._read(link)
