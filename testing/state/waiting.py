"""Waits for conditions, in blocking code and in event loops, and their errors after a timeout."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from ...protocol.recipe_names import NAMINGS, parse_contender
from ..frames.interceptor import Interceptor
from .real_time import REAL
from .views import NodeView

FIRST_PAUSE_SECONDS: Final = 0.0005
"""Seconds between the first two calls of a predicate. Each pause is 1.5 times as long as the previous one."""
MAX_PAUSE_SECONDS: Final = 0.02
"""Maximum number of seconds between two calls of a predicate."""
IDLE_SECONDS: Final = 0.05
"""Seconds without a request until clients count as idle."""
Condition = tuple[Callable[[], Any], float, Callable[[], str]]
"""A condition, its timeout in seconds, and a function that describes the unmet condition."""


def bind(predicate: Callable[..., Any], server: object) -> Callable[[], Any]:
    """Return *predicate* as a function without parameters. If it has a parameter, *server* is bound to it.

    Raises:
        TypeError: *predicate* is not callable.
    """
    if not callable(predicate):
        raise TypeError(f"predicate must be a function, not {predicate!r}")
    try:
        inspect.signature(predicate).bind()
    except TypeError:
        return partial(predicate, server)
    except ValueError:  # some builtins have no signature, so they are called without arguments
        return predicate
    return predicate


def wait(predicate: Callable[[], Any], seconds: float, make_error: Callable[[], TimeoutError]) -> Any:
    """Block until *predicate* returns a true value, and return that value.

    Args:
        predicate: Function to call repeatedly.
        seconds: The timeout, in real time.
        make_error: Function that returns the error to raise after the timeout.
    """
    __tracebackhide__ = True
    deadline, pause = REAL.seconds() + seconds, FIRST_PAUSE_SECONDS
    while not (value := predicate()):
        if REAL.seconds() > deadline:
            raise make_error()
        REAL.sleep(pause)
        pause = min(pause * 1.5, MAX_PAUSE_SECONDS)
    return value


async def wait_in_loop(predicate: Callable[[], Any], seconds: float, make_error: Callable[[], TimeoutError]) -> Any:
    """Wait like :func:`wait`, but without blocking the running loop, and in its time, which may be virtual."""
    __tracebackhide__ = True
    now = asyncio.get_running_loop().time
    deadline, pause = now() + seconds, FIRST_PAUSE_SECONDS
    while not (value := predicate()):
        if now() > deadline:
            raise make_error()
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, MAX_PAUSE_SECONDS)
    return value


# --- conditions ---


def describe_predicate(predicate: Callable[..., Any]) -> str:
    """Return the name of a predicate and the place of its definition, for a message."""
    name = getattr(predicate, "__name__", repr(predicate))
    code = getattr(predicate, "__code__", None)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name


def contenders(tree: Mapping[str, NodeView], path: str) -> list[str]:
    """Return the nodes of the clients that hold or wait for a lock, election, semaphore or party, unordered.

    The naming ``both`` creates nodes with kazoo's names and nodes with Curator's names. Only the larger of the two
    groups is returned. If no name has a known form, all ephemeral children are returned.
    """
    prefix = path.rstrip("/") + "/"
    children = [
        at
        for at, node in tree.items()
        if at.startswith(prefix) and "/" not in at[len(prefix) :] and node.ephemeral_owner
    ]
    nodes = [node for at in children if (node := parse_contender(at)) is not None]
    return max(([node.name for node in nodes if node.row.naming == naming] for naming in NAMINGS), key=len) or children


def describe_node(node: NodeView | None, path: str, data: bytes | None) -> str:
    """Return the reason why a node does not match the expectation."""
    if node is None:
        return f"{path} did not appear"
    return f"{path}: expected the data {data!r}, found {node.data!r}"


class IdleCheck:
    """A check whether the clients of a server are idle: no request arrived for 50 ms, and no request waits.

    Args:
        interceptor: Requests of the clients.
        time: Function that returns the seconds of a clock.
    """

    def __init__(self, interceptor: Interceptor, time: Callable[[], float]) -> None:
        self._interceptor = interceptor
        self._time = time
        self._request_count = -1
        self._since = time()

    def is_idle(self) -> bool:
        """Return whether the clients are idle now. Call this repeatedly."""
        interceptor, now = self._interceptor, self._time()
        waiting = any(connection.waiting_request() is not None for connection in interceptor.connections.values())
        if waiting or interceptor.non_ping_count != self._request_count:
            self._request_count, self._since = interceptor.non_ping_count, now
            return False
        return now - self._since >= IDLE_SECONDS

    def describe(self) -> str:
        """Return the reason why the clients are not idle."""
        waiting = [connection.waiting_request() for connection in self._interceptor.connections.values()]
        entries = [entry for entry in waiting if entry is not None]
        held = [f"{each.request.view.title} waits because of {each.matched or 'its server'}" for each in entries]
        return "clients were not idle" + (": " + ", ".join(held) if held else ": they kept sending requests")


# --- timeouts ---


def timeout_error(
    description: str, timeout: float, last_operations: Iterable[object], *, blocking: bool
) -> TimeoutError:
    """Return the error for a condition that was not true in time, with the last operations of the server.

    Args:
        description: Description of the unmet condition, such as ``/a did not appear``.
        timeout: The timeout in seconds.
        last_operations: Operations to list in the message.
        blocking: Whether the wait blocked its thread. If it blocked an event loop, the message contains advice.
    """
    operations = "".join(f"\n  {operation}" for operation in last_operations) or "\n  none"
    advice = ""
    if blocking and _is_in_event_loop():
        advice = (
            "\nthis call blocked the thread's event loop; in asyncio code use 'await server.until(predicate)', or the "
            "named variants, such as until_node(...) instead of wait_for_node(...)"
        )
    return TimeoutError(f"after {timeout} s: {description}; the last operations were:{operations}{advice}")


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
