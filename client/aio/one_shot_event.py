"""An event that happens once, with a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

from .call import wrong_thread_error


class OneShotEvent:
    """An event that happens once. ``await`` returns its reason. The truth value shows whether it has happened.

    Args:
        loop: The only event loop that may await the event; None for any loop.

    Attributes:
        reason: Reason of the event; empty until it happens.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop
        self._happened = False
        self._noticed = False  # whether the program has learned of the event
        self._event: asyncio.Event | None = None  # created by the first wait, because most events are never awaited
        self.reason = ""

    def set(self, reason: str) -> None:
        """Record that the event has happened. Only the first reason is kept."""
        if not self._happened:
            self._happened = True
            self.reason = reason
            if self._event is not None:
                self._event.set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'set: ' + self.reason if self._happened else 'not set'}>"

    def __bool__(self) -> bool:
        return self.is_set()

    def is_set(self) -> bool:
        """Return whether the event has happened."""
        self._noticed = self._happened
        return self._happened

    async def wait(self) -> str:
        """Wait until the event happens, and return the reason.

        Raises:
            RuntimeError: The call comes from outside the event loop's thread.
        """
        if not self._happened:
            if self._loop is not None and self._loop is not asyncio._get_running_loop():
                raise wrong_thread_error(self)
            self._event = self._event or asyncio.Event()
            await self._event.wait()
        self._noticed = True
        return self.reason

    def __await__(self) -> Generator[Any, None, str]:
        return self.wait().__await__()
