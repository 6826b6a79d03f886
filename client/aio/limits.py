"""Time limits for blocks, with errors that name what did not happen."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from ..wire.arguments import checked_timeout


class Limit(NamedTuple):
    """The time limit of a block.

    Args:
        no_waiting: Whether the limit is 0: the block must not wait for other clients.
        what: Function that returns a text for what did not happen.
    """

    no_waiting: bool
    what: Callable[[], str]

    def before_waiting(self) -> None:
        """Check that the block may wait for other clients. Call this before each such wait.

        Raises:
            TimeoutError: The limit is 0.
        """
        if self.no_waiting:
            raise TimeoutError(f"{self.what()} immediately")


@contextlib.asynccontextmanager
async def timeout_saying(
    seconds: float | None, what: Callable[[], str], facts: Callable[[], str] = lambda: ""
) -> AsyncIterator[Limit]:
    """Limit the time of a block. The error names what did not happen.

    Args:
        seconds: Time limit in seconds; None for no limit. With 0 the block waits for answers of the server but not for
            other clients.
        what: Function that returns a text for what did not happen, such as "/pool had no free lease".
        facts: Function that returns known reasons, which are appended to the error message.

    Raises:
        TimeoutError: The block took longer than *seconds*.
        ValueError: *seconds* is negative.
    """
    no_waiting = seconds is not None and checked_timeout(seconds) == 0
    limit = asyncio.timeout(None if no_waiting else seconds)
    try:
        async with limit:
            yield Limit(no_waiting, what)
    except TimeoutError:
        if not limit.expired():
            raise
        raise TimeoutError(f"{what()} within {seconds:g} s{facts()}") from None
