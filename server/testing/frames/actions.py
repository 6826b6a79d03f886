"""Actions: what a fault does to the requests or events that match its rule."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from zoolet.protocol.errors import ErrorCode, ZooKeeperError

HOLD_LIMIT: Final = 30.0
"""Seconds after which a request that nobody releases is held no more."""

SMALLEST: Final = 1e-6
LARGEST: Final = 1e9
"""The bounds of seconds, and of bytes a second."""


class Effect(Enum):
    """How a request is treated; of several effects the first in this list applies."""

    DROP = 1
    FAIL = 2
    LOSE_REPLY = 3
    CORRUPT_REPLY = 4
    CUT_REPLY = 5
    CLOSE_AFTER = 6


class Action:
    """The effect of a fault. The functions of this module return actions; each belongs to one fault.

    Attributes:
        name: The call that returned it, with its argument, for reports.
        effect: How the request is treated; None if it is answered as usual.
        code: The error code that answers it; 0 for none.
        seconds: How long it is delayed.
        jitter: Up to how much longer, at random.
        rate: Bytes a second at which the reply is sent; None for no limit.
        at: The place in the reply at which it is corrupted or cut.
        holds: Whether it is held until :meth:`release`.
        limit: Seconds after which it is held no more.
        events: Whether the action is for events, not for requests.
        released: Whether :meth:`release` was called, or the fault has ended: nothing is held any more.
        used: Whether it belongs to a fault.
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
        limit: float = HOLD_LIMIT,
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
        self.on_release: Callable[[], None] | None = None  # set by the fault it belongs to

    def __repr__(self) -> str:
        return self.name

    def release(self) -> None:
        """Release the held requests or events, and hold no more.

        Raises:
            ValueError: The action is of a kind that holds nothing.
        """
        if not (self.holds or self.events):
            raise ValueError(f"{self.name} holds nothing that could be released; only hold() and withhold_event() do")
        if self.on_release is None:
            self.released = True
        else:
            self.on_release()


def delay(seconds: float, jitter: float = 0.0) -> Action:
    """Delay the request by *seconds* of the server's clock; the requests behind it on its connection wait, too.

    Args:
        seconds: At least how long.
        jitter: Up to so much longer, each time at random from the server's seed.

    Raises:
        ValueError: A time is negative.
    """
    name = f"delay({seconds!r}, {jitter!r})" if jitter else f"delay({seconds!r})"
    if not (_is_number(seconds, 0) and _is_number(jitter, 0)):
        raise ValueError(f"{name} is invalid; the seconds must be 0 or more")
    return Action(name, seconds=seconds, jitter=jitter)


def error(code: int | str | type[ZooKeeperError] | ZooKeeperError) -> Action:
    """Answer with an error, without executing the request.

    Args:
        code: An :class:`~zoolet.protocol.errors.ErrorCode`, its name or number, or an exception of zoolet or kazoo.

    Raises:
        ValueError: There is no such error.
    """
    number = ErrorCode.__members__.get(code, code) if isinstance(code, str) else getattr(code, "code", code)
    try:
        error_code = ErrorCode(number)  # type: ignore[arg-type] # checked by this very call
    except ValueError:
        raise ValueError(
            f"error({code!r}) is unknown; the code must be one of zoolet.protocol.errors.ErrorCode, such as 'NO_NODE'"
        ) from None
    if error_code == ErrorCode.OK:
        raise ValueError("error(0) is invalid; code 0 is a success")
    return Action(f"error({error_code.name})", Effect.FAIL, code=error_code)


def drop_request() -> Action:
    """Lose the request before it is executed: there is no reply, and the connection is closed.

    TCP cannot lose a request alone: those behind it on the connection are lost with it.
    """
    return Action("drop_request()", Effect.DROP)


def lose_reply() -> Action:
    """Execute the request and close the connection without a reply: the client cannot know whether it was applied."""
    return Action("lose_reply()", Effect.LOSE_REPLY)


def close_after() -> Action:
    """Execute the request, send the reply, and close the connection."""
    return Action("close_after()", Effect.CLOSE_AFTER)


def hold(limit: float = HOLD_LIMIT) -> Action:
    """Hold the request until :meth:`Action.release`; the requests behind it on its connection wait, too.

    Args:
        limit: Seconds of the server's clock after which it is executed nevertheless: the end of the fault's block then
            raises a TimeoutError.

    Raises:
        ValueError: The limit is not above 0.
    """
    if not _is_number(limit, SMALLEST):
        raise ValueError(f"hold(limit={limit!r}) is invalid; the seconds must be above 0")
    return Action("hold()", holds=True, limit=limit)


def corrupt_reply(at: int = 0) -> Action:
    """Execute the request, and send the reply with half the bits of four bytes inverted.

    Args:
        at: Where in the reply: at 0, the default, is the xid, so that every client notices it; 4 is the zxid, 12 the
            error, and from 16 on the answer itself.

    Raises:
        ValueError: The place is negative.
    """
    if not isinstance(at, int) or at < 0:
        raise ValueError(f"corrupt_reply({at!r}) is invalid; the place in the reply must be 0 or more")
    return Action("corrupt_reply()" if at == 0 else f"corrupt_reply({at})", Effect.CORRUPT_REPLY, at=at)


def cut_reply(at: int = 10) -> Action:
    """Execute the request, send the first bytes of the reply, and close the connection.

    Args:
        at: How many bytes are sent. The first four are the length of the rest.

    Raises:
        ValueError: The number is negative.
    """
    if not isinstance(at, int) or at < 0:
        raise ValueError(f"cut_reply({at!r}) is invalid; the number of bytes must be 0 or more")
    return Action(f"cut_reply({at})", Effect.CUT_REPLY, at=at)


def slow_reply(bytes_per_second: float) -> Action:
    """Send the reply slowly, in some 20 pieces a second; what follows it on its connection waits.

    Raises:
        ValueError: The bandwidth is not above 0.
    """
    if not _is_number(bytes_per_second, SMALLEST):
        raise ValueError(f"slow_reply({bytes_per_second!r}) is invalid; the bytes a second must be above 0")
    return Action(f"slow_reply({bytes_per_second})", rate=bytes_per_second)


def withhold_event() -> Action:
    """Do not send the event. :meth:`Action.release` sends it late; at the end of the fault it is lost."""
    return Action("withhold_event()", events=True)


def _is_number(value: object, low: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= LARGEST
