"""Wait until a predicate is true, in blocking code and in the server's loop, and the error for a timeout."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

FIRST_PAUSE: Final = 0.0005
"""Seconds between the first two calls of a predicate; each pause is 1.5 times as long as the one before."""
LONGEST_PAUSE: Final = 0.02
"""The most seconds between two calls."""


def bind(predicate: Callable[..., Any], server: object) -> Callable[[], Any]:
    """Return *predicate* as a function without parameters; *server* is bound to its parameter if it has one."""
    try:
        inspect.signature(predicate).bind()
    except TypeError:
        return partial(predicate, server)
    except ValueError:  # a builtin without a signature
        return predicate
    return predicate


def wait(predicate: Callable[[], Any], seconds: float, too_late: Callable[[], TimeoutError]) -> Any:
    """Block until *predicate* is true, and return what it returned.

    Args:
        predicate: Called repeatedly.
        seconds: The timeout, in real time.
        too_late: Returns the error to raise after the timeout.
    """
    deadline, pause = time.monotonic() + seconds, FIRST_PAUSE
    while not (value := predicate()):
        if time.monotonic() > deadline:
            raise too_late()
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE)
    return value


async def wait_in_loop(predicate: Callable[[], Any], seconds: float, too_late: Callable[[], TimeoutError]) -> Any:
    """Wait as :func:`wait` does, without blocking, in the running loop and in its time, which may be virtual."""
    now = asyncio.get_running_loop().time
    deadline, pause = now() + seconds, FIRST_PAUSE
    while not (value := predicate()):
        if now() > deadline:
            raise too_late()
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE)
    return value


def timeout_error(
    predicate: Callable[..., Any], timeout: float, last_operations: Iterable[object], *, blocking: bool
) -> TimeoutError:
    """Return the error for a predicate that was not true in time, with the last operations of the server.

    Args:
        predicate: The predicate.
        timeout: The timeout, in seconds.
        last_operations: The operations to list in the message.
        blocking: Whether the wait blocked its thread; the message has advice if it blocked an event loop.
    """
    name = getattr(predicate, "__name__", repr(predicate))
    code = getattr(predicate, "__code__", None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
    operations = "".join(f"\n  {operation}" for operation in last_operations) or "\n  none"
    advice = ""
    if blocking and _in_a_loop():
        advice = (
            "\nthis thread's event loop was blocked meanwhile; in asyncio code with a server in another thread, such "
            "as that of the fixture zoolet, use: await asyncio.to_thread(server.wait_for, predicate)"
        )
    return TimeoutError(f"{name}{place} was not true within {timeout} s; the last operations were:{operations}{advice}")


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
