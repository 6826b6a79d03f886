"""Samples of a server, one for each second of the last hour, for charts."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from zoolet.server.admin.observed import Observed

HOUR: Final = 3600
"""Seconds that are kept."""
COLUMNS: Final = (
    "time",
    "requests",
    "writes",
    "read_ms",
    "write_ms",
    "sessions",
    "connections",
    "watches",
    "nodes",
    "data_bytes",
    "memory",
)
"""Seconds since the epoch; requests and writes a second; the 99th percentile of their milliseconds in the last minutes;
then counts, and bytes.
"""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Samples:
    """A sample each second. Each costs 15 us.

    Args:
        observed: The server.
        now: Returns the seconds since the epoch.
    """

    def __init__(self, observed: Observed, now: Callable[[], float] = time.time) -> None:
        self._observed = observed
        self._now = now
        self._packets, self._zxid, self._taken = self._counters()
        self.rows: deque[tuple[float, ...]] = deque(maxlen=HOUR)

    def _counters(self) -> tuple[int, int, float]:
        engine = self._observed.engine
        return engine.metrics.packets_received, engine.zxid, self._now()

    def add(self) -> tuple[float, ...]:
        """Add a sample, and return it."""
        engine = self._observed.engine
        packets, zxid, now = self._counters()
        seconds = max(now - self._taken, 0.001)
        requests = max(packets - self._packets, 0)  # srst has set it back
        writes = min(max(zxid - self._zxid, 0), max(requests, 1))  # a restore goes far ahead
        self._packets, self._zxid, self._taken = packets, zxid, now
        summaries = engine.metrics.summaries
        row = (
            round(now, 3),
            round(requests / seconds, 1),
            round(writes / seconds, 1),
            _known(summaries["readlatency"].quantile(0.99)),
            _known(summaries["updatelatency"].quantile(0.99)),
            len(engine.sessions.alive),
            len(engine.connections),
            engine.watches.active,
            self._observed.node_count(),
            engine.tree.data_size,
            memory(),
        )
        self.rows.append(row)
        return row


def _known(value: float) -> float:
    return round(value, 3) if value == value else 0.0


def memory() -> int:
    """Return the bytes of memory that the process has; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        return 0
