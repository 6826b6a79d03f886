"""Time limits for blocks, with errors that name the missing event."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ...protocol.errors import ConnectionLossError
from ..wire.arguments import checked_timeout
from ..wire.states import State

if TYPE_CHECKING:
    from .operations import BaseClient


class _OutageTimer:
    """A timer that interrupts a block when the client has been disconnected for a given time.

    Args:
        block: The timeout of the block.
        seconds: Maximum length of an outage, in seconds.
    """

    def __init__(self, block: asyncio.Timeout, seconds: float) -> None:
        self._block = block
        self._seconds = seconds

    def on_state(self, state: State) -> None:
        """Stop the timer when the client is connected. Start it when the client is disconnected."""
        with contextlib.suppress(RuntimeError):  # the block may be over, or about to end
            if state in (State.CONNECTED, State.READ_ONLY):
                self._block.reschedule(None)
            elif self._block.when() is None:
                self._block.reschedule(asyncio.get_running_loop().time() + self._seconds)


@contextlib.asynccontextmanager
async def limited_outage(client: BaseClient[Any], seconds: float) -> AsyncIterator[None]:
    """Limit how long the client may be disconnected during a block.

    Raises:
        ConnectionLossError: The client was disconnected for *seconds*.
    """
    limit = asyncio.timeout(None)
    timer = _OutageTimer(limit, seconds)
    try:
        async with limit:
            client._core.add_listener(timer)
            timer.on_state(client.state)
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        reason = client._core.session.last_reason
        last = f"; last attempt: {reason}" if reason else ""
        raise ConnectionLossError(None, f"no connection within {seconds:g} s{last}") from None


async def wait_for_cleanup(task: asyncio.Task[Any], seconds: float) -> None:
    """Wait up to *seconds* for a background task that cleans up after a block. The task continues after that.

    Raises:
        Exception: The task failed within *seconds*.
    """
    await asyncio.wait((task,), timeout=seconds)
    if task.done() and not task.cancelled():  # a closing client cancels the task
        task.result()


class Limit(NamedTuple):
    """The time limit of a block.

    Args:
        no_waiting: Whether the limit is 0: the block must not wait for other clients.
        missing: Function that returns the start of the error message, such as "/pool had no free lease".
    """

    no_waiting: bool
    missing: Callable[[], str]

    def check_may_wait(self) -> None:
        """Check that the block may wait for other clients. Call this before each such wait.

        Raises:
            TimeoutError: The limit is 0.
        """
        if self.no_waiting:
            raise TimeoutError(f"{self.missing()} immediately")


@contextlib.asynccontextmanager
async def timeout_with_message(
    seconds: float | None, missing: Callable[[], str], facts: Callable[[], str] = lambda: ""
) -> AsyncIterator[Limit]:
    """Limit the time of a block, with an error message that describes the missing event.

    Args:
        seconds: Time limit in seconds; None for no limit. With 0 the block waits for answers of the server but not for
            other clients.
        missing: Function that returns the start of the error message, such as "/pool had no free lease".
        facts: Function that returns known reasons, which are appended to the error message.

    Raises:
        TimeoutError: The block took longer than *seconds*.
        ValueError: *seconds* is negative.
    """
    no_waiting = seconds is not None and checked_timeout(seconds) == 0
    limit = asyncio.timeout(None if no_waiting else seconds)
    try:
        async with limit:
            yield Limit(no_waiting, missing)
    except TimeoutError:
        if not limit.expired():
            raise
    else:
        return
    finally:
        del limit  # it refers to the task, which may refer to the error
    raise TimeoutError(f"{missing()} within {seconds:g} s{facts()}") from None
