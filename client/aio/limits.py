"""Limits of time for blocks, with errors that say what did not happen."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from zoolet.client.wire.arguments import checked_timeout


class Limit(NamedTuple):
    """The time limit of a block.

    Args:
        no_waiting: The limit is 0: the block takes what is there, and waits for nobody.
        what: Returns what did not happen.
    """

    no_waiting: bool
    what: Callable[[], str]

    def before_waiting(self) -> None:
        """Raise TimeoutError if the block must not wait for others; call it before each such wait."""
        if self.no_waiting:
            raise TimeoutError(f"{self.what()} at once")


@contextlib.asynccontextmanager
async def timeout_saying(
    seconds: float | None, what: Callable[[], str], facts: Callable[[], str] = lambda: ""
) -> AsyncIterator[Limit]:
    """Limit the time of a block, and say what did not happen in it.

    Args:
        seconds: None for no limit; with 0 the block waits for the server's answers, and for nobody else.
        what: Returns it, such as "/pool had no free lease".
        facts: Returns what is known of the reason, to be put at the end.

    Raises:
        TimeoutError: It took longer.
        ValueError: The limit is negative.
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
