"""What a fault does to the requests or events that its rule matches."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from zoolet.protocol.errors import ErrorCode, ZooKeeperError


class Effect(Enum):
    """What becomes of a request; of several effects the first in this list counts."""

    DROP = 1
    FAIL = 2
    LOSE_REPLY = 3
    CLOSE_AFTER = 4


class Action:
    """What a fault does. The functions of this module make it; one object serves one fault.

    Attributes:
        name: The call that made it, with its argument, for reports.
        effect: What becomes of the request; None if it is answered as always.
        code: The error that it is answered with; 0 for none.
        seconds: How long it waits before.
        holds: Whether it waits until :meth:`release`.
        events: Whether the action is about events, not about requests.
        released: Whether it holds nothing any more.
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
        """Let the requests or events that are held go on, and hold no more.

        Raises:
            ValueError: The action holds nothing.
        """
        if not (self.holds or self.events):
            raise ValueError(f"{self.name} holds nothing that could be released; only hold() and withhold_event() do")
        if self.on_release is None:
            self.released = True
        else:
            self.on_release()


def delay(seconds: float) -> Action:
    """Wait so long, on the server's clock, before the request is read; those behind it on its connection wait too.

    Raises:
        ValueError: The time is negative.
    """
    if not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        raise ValueError(f"delay({seconds!r}) is invalid; the seconds must be 0 or more")
    return Action(f"delay({seconds})", seconds=seconds)


def error(code: int | type[ZooKeeperError] | ZooKeeperError) -> Action:
    """Answer with an error in place of doing anything.

    Args:
        code: An :class:`~zoolet.protocol.errors.ErrorCode`, its number, or one of our or kazoo's exceptions.

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
    """Lose the request before it is done: it is not applied, nothing is answered, and the connection is closed.

    TCP loses no request alone: what was behind it on the connection is lost with it.
    """
    return Action("drop_request()", Effect.DROP)


def lose_reply() -> Action:
    """Do what is asked, and close the connection without a reply: the client cannot know whether it was done."""
    return Action("lose_reply()", Effect.LOSE_REPLY)


def close_after() -> Action:
    """Do what is asked, reply, and close the connection."""
    return Action("close_after()", Effect.CLOSE_AFTER)


def hold() -> Action:
    """Do not read the request until :meth:`Action.release`; those behind it on its connection wait too."""
    return Action("hold()", holds=True)


def withhold_event() -> Action:
    """Do not send the event; :meth:`Action.release` sends it late, and the end of the fault loses it."""
    return Action("withhold_event()", events=True)
