"""The client's session without a connection: its output, the replies to it, and its states."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from zoolet.client import State
from zoolet.client.wire.session import ClientSession
from zoolet.protocol import records as r
from zoolet.protocol.codec import int_at, put_str
from zoolet.protocol.enums import KeeperState
from zoolet.protocol.errors import ZooKeeperError
from zoolet.protocol.framing import Frames, frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode


class PendingCall:
    """A pending call, with the attributes that the session uses."""

    def __init__(self, op: int = OpCode.SET_DATA, *, idempotent: bool = False, deadline: float = 1e9) -> None:
        self.op = op
        self.body = put_str("/a")
        self.path: str | None = "/a"
        self.decode: Callable[[bytes, int, int], Any] = lambda buf, at, stop: buf[at:stop]
        self.deadline = deadline
        self.idempotent = idempotent
        self.retries_throttled = False
        self.xid = 0
        self.sent_at = 0.0
        self.then = None
        self.outcome: Any = None
        self.cancelled = False
        self._callbacks: list[Callable[[Any], object]] = []

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        self._callbacks.append(callback)

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        self._callbacks.remove(callback)
        return 1

    def cancel(self) -> None:
        self.cancelled = True
        for callback in list(self._callbacks):
            callback(self)

    def done(self) -> bool:
        return self.outcome is not None or self.cancelled

    def set_result(self, result: Any) -> None:
        assert not self.done()
        self.outcome = result if result is not None else "nothing"

    def set_exception(self, exception: BaseException) -> None:
        assert not self.done()
        self.outcome = exception

    def refuse(self, error: ZooKeeperError) -> None:
        self.set_exception(error)


class SessionDriver:
    """A session with its output and its states."""

    def __init__(self, **options: Any) -> None:
        self.states: list[State] = []
        self.session = ClientSession(
            10_000, Random(1), on_state=lambda state, why: self.states.append(state), **options
        )

    def sent(self) -> list[bytes]:
        """Return the frames sent since the last call."""
        payloads = Frames(None).feed(b"".join(self.session.out))
        self.session.out.clear()
        return payloads

    def heads(self) -> list[tuple[int, int]]:
        """Return the xid and op code of each frame sent since the last call."""
        return [(int_at(one)[0], int_at(one, 4)[0]) for one in self.sent()]

    def shake(self, now: float = 0.0, session_id: int = 9, read_only: bool = False) -> ConnectRequest:
        """Answer the client's connect request with a session, and return that request."""
        self.session.start(now)
        (hello,) = self.sent()
        answer = ConnectResponse(10_000, session_id, b"p" * 16, read_only)
        self.session.receive(frame(answer.encode()), now)
        return ConnectRequest.decode(hello)

    def ask(self, *calls: PendingCall, now: float = 0.0) -> None:
        """Submit calls to the session, and flush its output."""
        for call in calls:
            self.session.submit(call)
        self.session.flush(now)

    def reply(self, xid: int, zxid: int = 0, err: int = 0, body: bytes = b"", now: float = 0.0) -> None:
        """Pass the session a reply from the server."""
        self.session.receive(frame(r.ReplyHeader(xid, zxid, err).encode() + body), now)


def event(type_: int, path: str) -> bytes:
    return r.WatcherEvent(type_, KeeperState.SYNC_CONNECTED, path).encode()
