"""Wait until something is true, in blocking code and in event loops, and the error for a timeout."""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from zoolet.server.testing.frames.interceptor import Interceptor
from zoolet.server.testing.state.views import NodeView

FIRST_PAUSE: Final = 0.0005
"""Seconds between the first two calls of a predicate; each pause is 1.5 times as long as the one before."""
MAX_PAUSE: Final = 0.02
"""The most seconds between two calls."""
QUIET: Final = 0.05
"""Seconds without a request, after which clients count as idle."""
_CONTENDERS: Final = {
    "kazoo": re.compile(r"__r?lock__-?\d{9,10}$"),
    "curator": re.compile(r"(?:__WRIT__|__READ__|lock-|lease-|latch-)-?\d{9,10}$"),
}


Condition = tuple[Callable[[], Any], float, Callable[[], str]]
"""The condition, its limit in seconds, and a function that describes the unmet condition."""


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
    __tracebackhide__ = True
    deadline, pause = time.monotonic() + seconds, FIRST_PAUSE
    while not (value := predicate()):
        if time.monotonic() > deadline:
            raise too_late()
        time.sleep(pause)
        pause = min(pause * 1.5, MAX_PAUSE)
    return value


async def wait_in_loop(predicate: Callable[[], Any], seconds: float, too_late: Callable[[], TimeoutError]) -> Any:
    """Wait as :func:`wait` does, without blocking, in the running loop and in its time, which may be virtual."""
    __tracebackhide__ = True
    now = asyncio.get_running_loop().time
    deadline, pause = now() + seconds, FIRST_PAUSE
    while not (value := predicate()):
        if now() > deadline:
            raise too_late()
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, MAX_PAUSE)
    return value


# --- what is waited for ---


def name_of_predicate(predicate: Callable[..., Any]) -> str:
    """Return the name of a predicate, and where it is defined, for a message."""
    name = getattr(predicate, "__name__", repr(predicate))
    code = getattr(predicate, "__code__", None)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name


def contenders(tree: Mapping[str, NodeView], path: str) -> list[str]:
    """Return the nodes of those that hold or wait for a lock, election, semaphore or party at a path, in no order.

    Of names of kazoo's and of Curator's kind, which naming ``both`` makes, those of one kind are returned: the more.
    """
    prefix = path.rstrip("/") + "/"
    children = [
        at
        for at, node in tree.items()
        if at.startswith(prefix) and "/" not in at[len(prefix) :] and node.ephemeral_owner
    ]
    by_naming = [[at for at in children if pattern.search(at)] for pattern in _CONTENDERS.values()]
    return max(by_naming, key=len) or children


def is_contender(path: str) -> bool:
    """Return whether a node has the name of one that holds or waits for a lock."""
    return any(pattern.search(path) for pattern in _CONTENDERS.values())


def describe_node(node: NodeView | None, path: str, data: bytes | None) -> str:
    """Return why a node is not as it was waited for."""
    if node is None:
        return f"{path} did not appear"
    return f"{path} has {node.data!r} and not {data!r}"


class Idle:
    """Whether the clients of a server are idle: for a while none has sent a request, and no request waits.

    Args:
        interceptor: The requests that have passed.
        time: Returns the seconds of some clock.
    """

    def __init__(self, interceptor: Interceptor, time: Callable[[], float]) -> None:
        self._interceptor = interceptor
        self._time = time
        self._requests = -1
        self._since = time()

    def look(self) -> bool:
        """Return whether they are idle now; called repeatedly."""
        interceptor, now = self._interceptor, self._time()
        waiting = any(connection.waiting_request() is not None for connection in interceptor.connections.values())
        if waiting or interceptor.requests != self._requests:
            self._requests, self._since = interceptor.requests, now
            return False
        return now - self._since >= QUIET

    def describe(self) -> str:
        """Return why they are not idle."""
        waiting = [connection.waiting_request() for connection in self._interceptor.connections.values()]
        entries = [entry for entry in waiting if entry is not None]
        held = [f"{request.view.title} waits because of {faults or 'its server'}" for request, faults in entries]
        return "clients were not idle" + (": " + ", ".join(held) if held else ": they went on sending requests")


# --- too late ---


def timeout_error(what: str, timeout: float, last_operations: Iterable[object], *, blocking: bool) -> TimeoutError:
    """Return the error for something that was not true in time, with the last operations of the server.

    Args:
        what: What was not so: ``/a did not appear``.
        timeout: The timeout, in seconds.
        last_operations: The operations to list in the message.
        blocking: Whether the wait blocked its thread; the message has advice if it blocked an event loop.
    """
    operations = "".join(f"\n  {operation}" for operation in last_operations) or "\n  none"
    advice = ""
    if blocking and _in_a_loop():
        advice = (
            "\nthis thread's event loop was blocked meanwhile; in asyncio code use: await server.until(predicate), or "
            "until_node(...) and so on in place of wait_for_node(...)"
        )
    return TimeoutError(f"after {timeout} s: {what}; the last operations were:{operations}{advice}")


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
