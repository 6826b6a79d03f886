"""Calls as a session sees them: what it reads of them, and how it completes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from zoolet.protocol import records as r
from zoolet.protocol.codec import Int, struct_of
from zoolet.protocol.errors import ConnectionLossError, MarshallingError, ZooKeeperError, error_for

HEADER = struct_of(Int, r.RequestHeader).pack
"""Packs the length of a request, its xid and its op code."""


def request_frame(xid: int, op: int, body: bytes = b"") -> bytes:
    """Return the frame of a request."""
    return HEADER(8 + len(body), xid, op) + body


class Request(Protocol):
    """A call as the session sees it; also the future that its caller awaits."""

    op: int
    body: bytes
    path: str | None
    decode: Callable[[bytes, int, int], Any]
    deadline: float
    idempotent: bool
    retries_throttled: bool
    xid: int
    zxid: int
    sent_at: float
    then: Callable[[Any, ZooKeeperError | None], None] | None

    def done(self) -> bool:
        """Whether it has its result, or was cancelled."""
        ...

    def set_result(self, result: Any, /) -> None:
        """It succeeded."""
        ...

    def refuse(self, error: ZooKeeperError) -> None:
        """The server answered with an error."""
        ...

    def set_exception(self, exception: BaseException, /) -> None:
        """It failed."""
        ...


def answer(call: Request, payload: bytes, err: int) -> None:
    """Complete a call with the server's reply.

    Raises:
        MarshallingError: The body of the reply does not decode.
    """
    error: ZooKeeperError | None = None
    result = None
    if err:
        error = error_for(err, call.path)
    else:
        try:
            result = call.decode(payload, 16, len(payload))
        except MarshallingError:
            if not call.done():
                fail(call, connection_loss(call.path, "the server's reply is malformed", maybe=True))
            raise
        except Exception as reason:  # the serializer cannot read the data: the caller's error, not the connection's
            if call.then is not None:
                call.then(None, None)
            if not call.done():
                call.set_exception(reason)
            return
    if call.then is not None:
        try:
            call.then(result, error)
        except Exception as defect:  # the connection is given up; the caller must not wait forever
            if not call.done():
                call.set_exception(defect)
            raise
    if call.done():
        return
    if error is not None:
        call.refuse(error)
    else:
        call.set_result(result)


def connection_loss(path: str | None, reason: str, *, maybe: bool) -> ConnectionLossError:
    """Return the error of a call that was lost; *maybe* says whether it may have been applied."""
    error = ConnectionLossError(path, f"the connection was lost: {reason}" if maybe else reason)
    error.maybe_applied = maybe
    return error


def drop(call: Request) -> None:
    """Record that a call that was cancelled will not be answered."""
    if call.then is not None:
        call.then(None, connection_loss(call.path, "it was cancelled", maybe=True))


def fail(call: Request, error: ZooKeeperError) -> None:
    """Complete a call with an error."""
    if call.then is not None:
        call.then(None, error)
    call.set_exception(error)
