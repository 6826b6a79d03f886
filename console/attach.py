"""The console of a server that runs in this event loop, with its samples, history and pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from ..server.admin.history import TransactionHistory
from ..server.admin.http import Route, Token
from ..server.admin.samples import Samples
from ..server.net.daemon import Daemon
from .engine_source import EngineSource, ReadLogFiles
from .pages import ConsolePages
from .source import Answer

SAMPLE_SECONDS: Final = 1.0
"""Seconds between two samples."""
MEMORY_CHECK_SECONDS: Final = 0.1
"""Seconds between two calls of :meth:`TransactionHistory.limit_memory`."""


class EngineConsole:
    """The console of a server, which samples the server each second and keeps its last transactions until :meth:`stop`.

    Args:
        daemon: The server.
        history: Number of transactions to keep; 0 disables the history.
        name: Name of the server, such as its address.
        kind: ``daemon`` or ``test``.
        past: Function that returns transactions from the log files; None without log files.
        cluster: Function that returns facts about a member of a cluster; None for a single server.
    """

    def __init__(
        self,
        daemon: Daemon,
        *,
        history: int,
        name: str,
        kind: str = "daemon",
        past: ReadLogFiles | None = None,
        cluster: Callable[[], Answer] | None = None,
    ) -> None:
        connections = daemon.connections
        self._loop = asyncio.get_running_loop()
        self._samples = Samples(daemon.observed)
        self._history = TransactionHistory(daemon.engine, history) if history else None
        self.source: Final = EngineSource(
            daemon.observed,
            connections.set_time,
            connections.deliver,
            self._history,
            self._samples,
            name,
            kind,
            past,
            cluster,
        )
        self._timer = self._loop.call_later(SAMPLE_SECONDS, self._sample)
        self._memory_timer = self._loop.call_later(MEMORY_CHECK_SECONDS, self._limit_memory)

    def routes(self, token: Token) -> Iterator[Route]:
        """Return the routes of the pages. Changes require *token*."""
        return ConsolePages(self.source, token).routes()

    def _sample(self) -> None:
        self._timer = self._loop.call_later(SAMPLE_SECONDS, self._sample)
        self._samples.add()

    def _limit_memory(self) -> None:
        self._memory_timer = self._loop.call_later(MEMORY_CHECK_SECONDS, self._limit_memory)
        if self._history is not None:
            self._history.limit_memory()

    def stop(self) -> None:
        """Stop the timers for samples and for the memory of the history."""
        self._timer.cancel()
        self._memory_timer.cancel()
