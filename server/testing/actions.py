"""Actions: what a fault does to the requests or events that match its rule."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from zoolet.protocol.errors import ErrorCode, ZooKeeperError


class Effect(Enum):
    """How a request is treated; of several effects the first in this list applies."""

    DROP = 1
    FAIL = 2
    LOSE_REPLY = 3
    CLOSE_AFTER = 4


class Action:
    """What a fault does. The functions of this module return actions; each belongs to one fault.

    Attributes:
        name: The call that returned it, with its argument, for reports.
        effect: How the request is treated; None if it is answered as usual.
        code: The error code that answers it; 0 for none.
        seconds: How long it is delayed.
        holds: Whether it is held until :meth:`release`.
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
        holds: bool = False,
        events: bool = False,
    ) -> None:
        self.name = name
        self.effect = effect
        self.code = code
        self.seconds = seconds
        self.holds = holds
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


def delay(seconds: float) -> Action:
    """Delay the request by *seconds* of the server's clock; the requests behind it on its connection wait, too.

    Raises:
        ValueError: The time is negative.
    """
    if not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        raise ValueError(f"delay({seconds!r}) is invalid; the seconds must be 0 or more")
    return Action(f"delay({seconds})", seconds=seconds)


def error(code: int | type[ZooKeeperError] | ZooKeeperError) -> Action:
    """Answer with an error, without executing the request.

    Args:
        code: An :class:`~zoolet.protocol.errors.ErrorCode`, its number, or an exception of zoolet or kazoo.

    Raises:
        ValueError: There is no such error.
    """
    number = getattr(code, "code", code)
    try:
        error_code = ErrorCode(number)  # type: ignore[arg-type] # checked by this very call
    except ValueError:
        raise ValueError(
            f"error({code!r}) is unknown; the code must be one of zoolet.protocol.errors.ErrorCode"
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


def hold() -> Action:
    """Hold the request until :meth:`Action.release`; the requests behind it on its connection wait, too."""
    return Action("hold()", holds=True)


def withhold_event() -> Action:
    """Do not send the event. :meth:`Action.release` sends it late; at the end of the fault it is lost."""
    return Action("withhold_event()", events=True)
