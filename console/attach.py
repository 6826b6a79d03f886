"""The console of a server in this event loop: samples, history and pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from ..server.admin.history import TransactionHistory
from ..server.admin.http import Route, Token
from ..server.admin.samples import Samples
from ..server.net.daemon import Daemon
from .engine_source import EngineSource, PastOf
from .pages import ConsolePages
from .source import Answer

SAMPLE_EVERY_S: Final = 1.0
"""Seconds between two samples."""
TIDY_EVERY_S: Final = 0.1
"""Seconds between two calls of :meth:`TransactionHistory.limit_memory`."""


class EngineConsole:
    """Samples a server each second and keeps its last transactions, until :meth:`stop`.

    Args:
        daemon: The server.
        history: Number of transactions to keep; 0 for none.
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
        past: PastOf | None = None,
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
        self._timer = self._loop.call_later(SAMPLE_EVERY_S, self._sample)
        self._tidy_timer = self._loop.call_later(TIDY_EVERY_S, self._tidy)

    def routes(self, token: Token) -> Iterator[Route]:
        """Return the routes of the pages. Changes require *token*."""
        return ConsolePages(self.source, token).routes()

    def _sample(self) -> None:
        self._timer = self._loop.call_later(SAMPLE_EVERY_S, self._sample)
        self._samples.add()

    def _tidy(self) -> None:
        self._tidy_timer = self._loop.call_later(TIDY_EVERY_S, self._tidy)
        if self._history is not None:
            self._history.limit_memory()

    def stop(self) -> None:
        """Stop sampling."""
        self._timer.cancel()
        self._tidy_timer.cancel()
