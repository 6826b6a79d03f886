"""The interface between a session and its calls, and the functions that complete calls."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, Protocol, TypeVar

from ...protocol import records as r
from ...protocol.codec import Int, combined_struct
from ...protocol.errors import (
    BadArgumentsError,
    ConnectionLossError,
    MarshallingError,
    NoNodeError,
    ZooKeeperError,
    error_for,
)
from ...protocol.operations import OpCode, codes_by_change

E = TypeVar("E", bound=BaseException)
pack_header = combined_struct(Int, r.RequestHeader).pack
"""Function that packs the length, xid and op code of a request."""
LARGE_REQUEST_BYTES: Final = 1024
"""Size of a request in bytes. If a server closes the connection, only a larger request is suspected as the reason."""
_CREATE_OPS: Final = codes_by_change("create")
_MULTI_OPS: Final = (OpCode.MULTI, OpCode.MULTI_READ)


def request_frame(xid: int, op: int, body: bytes = b"") -> bytes:
    """Return the frame of a request."""
    return pack_header(8 + len(body), xid, op) + body


class PendingCall(Protocol):
    """The session's interface to a call, which is also the future that the caller awaits.

    Attributes:
        then: Function that receives the result or the error, even if the call was cancelled; None for no function.
    """

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
        """Return whether the call has its result or was cancelled."""
        ...

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Schedule *callback* to be called after the call is done."""
        ...

    def remove_done_callback(self, callback: Callable[[Any], object], /) -> int:
        """Remove a callback, and return how often it was registered."""
        ...

    def set_result(self, result: Any, /) -> None:
        """Complete the call with its result."""
        ...

    def refuse(self, error: ZooKeeperError) -> None:
        """Complete the call with an error reply of the server."""
        ...

    def set_exception(self, exception: BaseException, /) -> None:
        """Complete the call with an exception."""
        ...


def copy_error(error: E) -> E:
    """Return a copy of an error for one receiver, because a shared error would collect the frames and notes of all.

    If the error cannot be copied, return the error itself without its traceback.
    """
    kind = type(error)
    try:
        # A constructor of a user may do anything with the arguments that the base class keeps, so it is not called.
        again = kind.__new__(kind, *error.args) if isinstance(kind.__init__, FunctionType) else kind(*error.args)
        again.__dict__.update(error.__dict__)
        if str(again) != str(error):  # a part of the text is in neither arguments nor attributes, as in an OSError
            return error.with_traceback(None)
    except Exception:  # the constructor or __str__() of a user may raise anything
        return error.with_traceback(None)
    if hasattr(error, "__notes__"):
        again.__notes__ = list(error.__notes__)
    if error.__cause__ is not None:
        again.__cause__ = error.__cause__
    return again


def request_error(err: int, op: int, path: str | None) -> ZooKeeperError:
    """Return the error of a request or of an operation in a transaction.

    The error of a create names the missing parent. If a transaction was rejected as a whole, the error names the
    probable limit.
    """
    error = error_for(err, path)
    if path and op in _CREATE_OPS and isinstance(error, NoNodeError):
        parent = path.rpartition("/")[0] or "/"
        return NoNodeError(path, f"parent {parent} does not exist; create it with parents=True or ensure_path()")
    if op in _MULTI_OPS and isinstance(error, BadArgumentsError):
        limits = "operations (zoolet.maxMultiOperations)"
        if op == OpCode.MULTI_READ:
            limits += " or results (zoolet.maxMultiReadBytes)"
        return BadArgumentsError(path, f"the server rejected the whole request; it may have too many {limits}")
    return error


def fail_undecodable(call: PendingCall, reason: BaseException) -> None:
    """Complete a call whose reply cannot be decoded, because of *reason*.

    Raises:
        MarshallingError: The reply is malformed. Other errors, of the user's serializer, fail only the call.
    """
    if isinstance(reason, MarshallingError):
        if not call.done():
            fail(call, connection_loss(call.path, "the server's reply is malformed", maybe=True))
        raise reason
    if call.then is not None:
        call.then(None, None)
    if isinstance(reason, StopIteration):  # a future rejects StopIteration
        stopped, reason = reason, RuntimeError("the serializer raised StopIteration")
        reason.__cause__ = stopped
    if not call.done():
        call.set_exception(reason)


def complete(call: PendingCall, result: Any, error: ZooKeeperError | None) -> None:
    """Complete a call with the result or the error that the server returned."""
    if call.then is not None:
        try:
            call.then(result, error)
        except Exception as defect:  # the connection will be closed, and the caller must not wait forever
            if not call.done():
                call.set_exception(defect)
            raise
    if call.done():
        return
    if error is not None:
        call.refuse(error)
    else:
        call.set_result(result)


def connection_loss(
    path: str | None, reason: str, *, maybe: bool, refused: PendingCall | None = None
) -> ConnectionLossError:
    """Return the error for a call that was lost with its connection, or that found no connection in time.

    Args:
        path: Path of the call.
        reason: Reason of the loss.
        maybe: Whether the call may have been applied.
        refused: The call, if the server probably closed the connection because of it.
    """
    text = f"the connection was lost: {reason}" if maybe else reason
    error = ConnectionLossError(path, text)
    error.maybe_applied = maybe
    if refused is not None and len(refused.body) + 8 > LARGE_REQUEST_BYTES:
        error.detail += (
            f"; the request has {len(refused.body) + 8} bytes, which may exceed the jute.maxbuffer of the server"
        )
        error.refusals = 1
    return error


def drop(call: PendingCall) -> None:
    """Report a cancelled call as lost to its function ``then``, if it has one."""
    if call.then is not None:
        call.then(None, connection_loss(call.path, "the call was cancelled", maybe=True))


def fail(call: PendingCall, error: ZooKeeperError) -> None:
    """Complete a call with an error."""
    if call.then is not None:
        call.then(None, error)
    call.set_exception(error)


def abort(call: PendingCall, error: ZooKeeperError) -> None:
    """Complete a call with an error, unless it was cancelled."""
    if call.done():
        drop(call)
    else:
        fail(call, error)
