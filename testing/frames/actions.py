"""The actions that faults apply to matching requests and events."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from ...protocol.errors import ErrorCode, ZooKeeperError

HOLD_LIMIT_SECONDS: Final = 30.0
"""Default number of seconds after which a held request is executed without a release."""

MIN_ACTION_VALUE: Final = 1e-6
MAX_ACTION_VALUE: Final = 1e9
"""The bounds of a positive number of seconds or bytes per second."""


class Effect(Enum):
    """The treatment of a request. If several effects match, the first effect in this list applies."""

    DROP = 1
    FAIL = 2
    LOSE_REPLY = 3
    CORRUPT_REPLY = 4
    CUT_REPLY = 5
    CLOSE_AFTER = 6


class Action:
    """The action of a fault, returned by the functions of this module. It can be used in only one fault.

    Attributes:
        name: The call that returned the action, with its arguments, for reports.
        effect: The treatment of the request; None if it is answered as usual.
        code: The error code of the reply, or 0 if the action causes no error.
        seconds: Delay in seconds.
        jitter: Maximum additional random delay in seconds.
        rate: Rate of the reply in bytes per second, or None for no limit.
        at: Offset in the reply at which it is corrupted or truncated.
        holds: Whether requests are held until :meth:`release`.
        limit: Seconds after which a held request is executed anyway.
        events: Whether the action applies to events instead of requests.
        released: Whether :meth:`release` was called or the fault ended, so nothing is held any longer.
        used: Whether the action belongs to a fault.
    """

    def __init__(
        self,
        name: str,
        effect: Effect | None = None,
        *,
        code: int = 0,
        seconds: float = 0.0,
        jitter: float = 0.0,
        rate: float | None = None,
        at: int = 0,
        holds: bool = False,
        limit: float = HOLD_LIMIT_SECONDS,
        events: bool = False,
    ) -> None:
        self.name = name
        self.effect = effect
        self.code = code
        self.seconds = seconds
        self.jitter = jitter
        self.rate = rate
        self.at = at
        self.holds = holds
        self.limit = limit
        self.events = events
        self.released = False
        self.used = False
        self.on_release: Callable[[], None] | None = None  # the action's fault sets this callback

    def __repr__(self) -> str:
        return self.name

    def release(self) -> None:
        """Release the held requests or events, and stop holding new ones.

        Raises:
            ValueError: The action is neither ``hold()`` nor ``withhold_event()``.
        """
        if not (self.holds or self.events):
            raise ValueError(f"{self.name} has nothing to release; only hold() and withhold_event() can be released")
        if self.on_release is None:
            self.released = True
        else:
            self.on_release()


def delay(seconds: float, jitter: float = 0.0) -> Action:
    """Delay the request by *seconds* of the server's clock. Later requests on its connection also wait.

    Args:
        seconds: Minimum delay in seconds.
        jitter: Maximum additional delay in seconds. A random part of it, from the server's seed, delays each request.

    Raises:
        ValueError: *seconds* or *jitter* is negative.
    """
    name = f"delay({seconds!r}, {jitter!r})" if jitter else f"delay({seconds!r})"
    for argument, value in (("seconds", seconds), ("jitter", jitter)):
        if not _is_number(value, 0):
            raise ValueError(f"delay: {argument} must be 0 or more, not {value!r}")
    return Action(name, seconds=seconds, jitter=jitter)


def error(code: int | str | type[ZooKeeperError] | ZooKeeperError) -> Action:
    """Answer with an error instead of executing the request.

    Args:
        code: An :class:`~zoolet.protocol.errors.ErrorCode`, its name or number, or an exception of zoolet or kazoo.

    Raises:
        ValueError: *code* is not a known error, or it is 0, which means success.
    """
    number = ErrorCode.__members__.get(code, code) if isinstance(code, str) else getattr(code, "code", code)
    try:
        error_code = ErrorCode(number)  # type: ignore[arg-type] # ErrorCode() checks the number
    except ValueError:
        raise ValueError(
            f"error: code must be one of zoolet.protocol.errors.ErrorCode, such as 'NO_NODE', not {code!r}"
        ) from None
    if error_code == ErrorCode.OK:
        raise ValueError(f"error: code must not be {code!r} (success)")
    return Action(f"error({error_code.name})", Effect.FAIL, code=error_code)


def drop_request() -> Action:
    """Lose the request before it is executed: no reply is sent, and the connection is closed.

    TCP cannot lose a single request, so later requests on the connection are lost with it.
    """
    return Action("drop_request()", Effect.DROP)


def lose_reply() -> Action:
    """Execute the request and close the connection without a reply. The client cannot know whether it was applied."""
    return Action("lose_reply()", Effect.LOSE_REPLY)


def close_after() -> Action:
    """Execute the request, send the reply, and close the connection."""
    return Action("close_after()", Effect.CLOSE_AFTER)


def hold(limit: float = HOLD_LIMIT_SECONDS) -> Action:
    """Hold the request until :meth:`Action.release`. Later requests on its connection also wait.

    Args:
        limit: Seconds of the server's clock after which the request is executed anyway. In that case,
            the end of the fault's block raises a TimeoutError.

    Raises:
        ValueError: *limit* is not above 0.
    """
    if not _is_number(limit, MIN_ACTION_VALUE):
        raise ValueError(f"hold: limit must be more than 0 seconds, not {limit!r}")
    return Action("hold()", holds=True, limit=limit)


def corrupt_reply(at: int = 0) -> Action:
    """Execute the request, and send the reply with half the bits of four bytes inverted.

    Args:
        at: Offset in the reply. Offset 0, the default, is the xid, which every client checks; 4 is the zxid, 12 the
            error, and 16 the start of the answer itself.

    Raises:
        ValueError: *at* is negative.
    """
    if not isinstance(at, int) or at < 0:
        raise ValueError(f"corrupt_reply: at must be an offset in the reply, 0 or more, not {at!r}")
    return Action("corrupt_reply()" if at == 0 else f"corrupt_reply({at})", Effect.CORRUPT_REPLY, at=at)


def cut_reply(at: int = 10) -> Action:
    """Execute the request, send the first bytes of the reply, and close the connection.

    Args:
        at: Number of bytes to send. The first four bytes are the length of the rest.

    Raises:
        ValueError: *at* is negative.
    """
    if not isinstance(at, int) or at < 0:
        raise ValueError(f"cut_reply: at must be a number of bytes, 0 or more, not {at!r}")
    return Action(f"cut_reply({at})", Effect.CUT_REPLY, at=at)


def slow_reply(bytes_per_second: float) -> Action:
    """Send the reply slowly, in about 20 pieces per second. Later output on its connection waits.

    Raises:
        ValueError: *bytes_per_second* is not above 0.
    """
    if not _is_number(bytes_per_second, MIN_ACTION_VALUE):
        raise ValueError(f"slow_reply: bytes_per_second must be more than 0, not {bytes_per_second!r}")
    return Action(f"slow_reply({bytes_per_second})", rate=bytes_per_second)


def withhold_event() -> Action:
    """Withhold the event until :meth:`Action.release`. If the fault ends without a release, the event is lost."""
    return Action("withhold_event()", events=True)


def _is_number(value: object, low: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= MAX_ACTION_VALUE


ACTIONS: Final[dict[str, Callable[..., Action]]] = {
    function.__name__: function
    for function in (
        delay,
        error,
        drop_request,
        lose_reply,
        close_after,
        hold,
        withhold_event,
        corrupt_reply,
        cut_reply,
        slow_reply,
    )
}
"""The actions by name."""
