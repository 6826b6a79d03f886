"""An event that happens once, with a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any


class OneShotEvent:
    """An event that happens once: ``await`` it for the reason, or ask ``is_set()``, which is its truth value, too.

    Attributes:
        reason: Why it happened; empty until then.
    """

    def __init__(self) -> None:
        self._happened = False
        self._event: asyncio.Event | None = None  # made when something first waits: mostly nothing does
        self.reason = ""

    def set(self, reason: str) -> None:
        """Record that it has happened; the first reason counts."""
        if not self._happened:
            self._happened = True
            self.reason = reason
            if self._event is not None:
                self._event.set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'set: ' + self.reason if self._happened else 'not set'}>"

    def __bool__(self) -> bool:
        return self._happened

    def is_set(self) -> bool:
        """Return whether it has happened."""
        return self._happened

    async def wait(self) -> str:
        """Wait until it happens, and return the reason."""
        if not self._happened:
            self._event = self._event or asyncio.Event()
            await self._event.wait()
        return self.reason

    def __await__(self) -> Generator[Any, None, str]:
        return self.wait().__await__()
