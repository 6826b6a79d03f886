"""A hostile client: one blocking connection that can send any bytes, and counts the answers."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Self

from adversary.frames import OPEN_ACL, request
from zoolet.protocol.codec import Int, Record, combined_struct, int_at, pack_int, put_bytes, put_str
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.protocol.records import AuthPacket, ReplyHeader

REPLY_TIMEOUT_S: Final = 30.0  # maximum time to wait for one reply
_REPLY_STRUCT: Final = combined_struct(Int, ReplyHeader)
_HEADER_STRUCT: Final = combined_struct(ReplyHeader)


@dataclass
class Outcome:
    """The answers to a flood."""

    replies: int = 0
    events: int = 0
    received: int = 0
    errors: Counter[int] = field(default_factory=Counter)
    closed: bool = False
    seconds: float = 0.0

    def __str__(self) -> str:
        """Return the counts in one line, for the table."""
        parts = [f"{self.replies:,} replies"]
        parts += [f"{count:,} x {code}" for code, count in self.errors.most_common(3)]
        parts += [f"{self.events:,} events"] if self.events else []
        parts += [f"{self.received / 1e6:,.0f} MB"] if self.received > 1e6 else []
        parts += ["closed"] if self.closed else []
        return ", ".join(parts) + f" in {self.seconds:.1f} s"


class ReplyCounter:
    """A counter of the frames in a stream, which it does not store."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self._rest = b""
        self._skip = 0

    def feed(self, data: bytes) -> None:
        """Count the frames in the next bytes of the stream."""
        outcome = self.outcome
        outcome.received += len(data)
        if self._skip >= len(data):
            self._skip -= len(data)
            return
        data = self._rest + data[self._skip :]
        self._skip, at, size = 0, 0, len(data)
        while size - at >= 20:
            length, xid, _, err = _REPLY_STRUCT.unpack_from(data, at)
            if xid == -1:
                outcome.events += 1
            else:
                outcome.replies += 1
                if err:
                    outcome.errors[err] += 1
            at += 4 + length
        self._skip = max(0, at - size)
        self._rest = data[at:]


class HostilePeer:
    """A blocking connection to a server, without the checks of a real client.

    Args:
        port: The server's port on 127.0.0.1.
        source: Local address of the connection.
        timeout_ms: Session timeout to request, in milliseconds.
        session: Whether to open a session immediately.
        receive_buffer: Size of the kernel's receive buffer, or 0 for the default.
    """

    def __init__(
        self,
        port: int,
        *,
        source: str = "127.0.0.1",
        timeout_ms: int = 40_000,
        session: bool = True,
        receive_buffer: int = 0,
    ) -> None:
        self.link = socket.socket()
        if receive_buffer:
            self.link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.link.bind((source, 0))
        self.link.settimeout(REPLY_TIMEOUT_S)
        self.link.connect(("127.0.0.1", port))
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.session_id = 0
        if session:
            self.link.sendall(frame(ConnectRequest(timeout_ms=timeout_ms).encode()))
            self.session_id = ConnectResponse.decode(self.payload()).session_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket. The session stays alive."""
        self.link.close()

    def reset(self) -> None:
        """Close the socket with RST, which discards unsent data."""
        self.link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.link.close()

    def check_closed_and_reset(self) -> bool:
        """Return whether the server has closed the connection, and reset the connection. Unread data stays unread."""
        ping = request(OpCode.PING, b"", -2)
        self.link.setblocking(False)
        try:
            self.link.send(ping)
            time.sleep(0.001)  # gives the RST of a closed peer time to arrive
            self.link.send(ping)
            state = self.link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
            return state != 1  # 1 is TCP_ESTABLISHED
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self.reset()

    def _read_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.link.recv(min(size - len(data), 1 << 20))
            if not piece:
                raise ConnectionError("the server closed the connection")
            data += piece
        return bytes(data)

    def payload(self) -> bytes:
        """Read one frame, and return its payload."""
        return self._read_exactly(int_at(self._read_exactly(4))[0])

    def call(self, op: OpCode, body: bytes | Record = b"", xid: int = 1) -> tuple[int, bytes]:
        """Send a request, and return the error code and the body of its reply. Events are skipped."""
        self.link.sendall(request(op, body, xid))
        while True:
            data = self.payload()
            got, _, err = _HEADER_STRUCT.unpack_from(data)
            if got != -1:
                return err, data[16:]

    def create(self, path: str, data: bytes = b"", *, acl: bytes | None = None, flags: int = 0) -> int:
        """Create a node and return the error code."""
        body = put_str(path) + put_bytes(data)
        body += OPEN_ACL if acl is None else acl
        return self.call(OpCode.CREATE, body + pack_int(flags))[0]

    def authenticate(self, name: str) -> int:
        """Add a digest identity and return the error code."""
        return self.call(OpCode.AUTH, AuthPacket(0, "digest", name.encode()), -4)[0]

    def closed(self) -> bool:
        """Discard all available data, and return whether the server has closed the connection."""
        self.link.settimeout(0)
        try:
            while self.link.recv(1 << 16):
                pass
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            with suppress(OSError):
                self.link.settimeout(REPLY_TIMEOUT_S)
        return True

    def flood(
        self,
        data: bytes | Iterable[bytes],
        replies: int = 0,
        *,
        seconds: float = REPLY_TIMEOUT_S,
        outcome: Outcome | None = None,
    ) -> Outcome:
        """Send and read at the same time. Stop when all replies have arrived, the server closes, or the time is over.

        Args:
            data: Bytes, or several pieces that are sent one after the other.
            replies: Number of replies to wait for.
            seconds: Maximum number of seconds.
            outcome: Outcome of an earlier flood to add to, or None for a new one.
        """
        outcome = outcome or Outcome()
        seen, goal = ReplyCounter(outcome), outcome.replies + replies
        pieces: Iterator[bytes] = iter([data] if isinstance(data, bytes) else data)
        rest: memoryview | None = memoryview(next(pieces, b""))
        started = time.monotonic()
        self.link.setblocking(False)
        try:
            while rest is not None or outcome.replies < goal:
                left = started + seconds - time.monotonic()
                if left <= 0:
                    break
                readable, writable, _ = select.select([self.link], [self.link] if rest is not None else [], [], left)
                if readable:
                    got = self.link.recv(1 << 20)
                    if not got:
                        outcome.closed = True
                        break
                    seen.feed(got)
                if writable and rest is not None:
                    rest = rest[self.link.send(rest[: 1 << 18]) :]
                    if not rest:
                        following = next(pieces, None)
                        rest = None if following is None else memoryview(following)
        except (ConnectionError, ValueError):
            outcome.closed = True
        finally:
            outcome.seconds += time.monotonic() - started
            with suppress(OSError):
                self.link.settimeout(REPLY_TIMEOUT_S)
        return outcome
