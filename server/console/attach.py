"""The console of a server that runs in this event loop: what listens to it and measures it, and the pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from zoolet.server.admin.history import History
from zoolet.server.admin.samples import Samples
from zoolet.server.console.engine_source import EngineSource, PastOf
from zoolet.server.console.pages import ConsolePages
from zoolet.server.console.source import Answer
from zoolet.server.net.daemon import Daemon

EVERY: Final = 1.0
"""Seconds between two samples."""
DIGEST_EVERY: Final = 0.1
"""Seconds between two digests of transactions."""


class EngineConsole:
    """Samples a server each second, and keeps its last transactions, until :meth:`stop`.

    Args:
        daemon: The server.
        history: How many transactions are kept; 0 for none.
        name: What it is called, such as its address.
        kind: ``daemon`` or ``test``.
        past: As for :class:`EngineSource`.
        cluster: As for :class:`EngineSource`.
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
        self._history = History(daemon.engine, history) if history else None
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
        self._timer = self._loop.call_later(EVERY, self._sample)
        self._digest_timer = self._loop.call_later(DIGEST_EVERY, self._digest)

    def pages(self, token: str | None, is_open: bool) -> ConsolePages:
        """Return the pages; arguments as for :class:`ConsolePages`."""
        return ConsolePages(self.source, token, is_open=is_open)

    def _sample(self) -> None:
        self._timer = self._loop.call_later(EVERY, self._sample)
        self._samples.add()

    def _digest(self) -> None:
        self._digest_timer = self._loop.call_later(DIGEST_EVERY, self._digest)
        if self._history is not None:
            self._history.tidy()

    def stop(self) -> None:
        """Stop sampling."""
        self._timer.cancel()
        self._digest_timer.cancel()
