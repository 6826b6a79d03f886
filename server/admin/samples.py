"""Samples of a server's metrics for charts, one for each second of the last hour and each minute of the last day."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from ..core.metrics import SummaryMark
from .observed import MonitoredServer

HOUR_SAMPLES: Final = 3600
"""Number of seconds whose samples are kept."""
DAY_SAMPLES: Final = 1440
"""Number of minutes whose samples are kept."""
PERCENTILE_SECONDS: Final = 60
"""Number of seconds that a percentile covers."""
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
"""The columns of a sample: the time in seconds since the epoch, requests and writes per second, the 99th percentiles of
the latencies of reads and writes in the last minute in milliseconds, counts, and sizes in bytes.
"""
Row = tuple[float, ...]
"""A sample: a number for each of :data:`COLUMNS`."""
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class SampleBuffer:
    """The samples of an hour and of a day. Older samples are discarded.

    Attributes:
        hour: The samples of the last hour, one per second.
        day: One sample per minute of the last day, with the maximum of each column.
    """

    def __init__(self) -> None:
        self.hour: Final[deque[Row]] = deque(maxlen=HOUR_SAMPLES)
        self.day: Final[deque[Row]] = deque(maxlen=DAY_SAMPLES)

    def add(self, row: Row) -> Row:
        """Add a sample to both lists, and return it."""
        self.hour.append(row)
        if self.day and self.day[-1][0] // PERCENTILE_SECONDS == row[0] // PERCENTILE_SECONDS:
            self.day[-1] = tuple(map(max, self.day[-1], row))
        else:
            self.day.append(row)
        return row


class Samples:
    """The samples of a server, one per second. Each sample costs 20 to 70 us.

    Args:
        observed: The view of the server.
        now: A function that returns the seconds since the epoch.
    """

    def __init__(self, observed: MonitoredServer, now: Callable[[], float] = time.time) -> None:
        self._observed = observed
        self._now = now
        self._packets, self._zxid, self._taken = self._counters()
        self._marks: deque[tuple[SummaryMark, SummaryMark]] = deque(maxlen=PERCENTILE_SECONDS)
        self.rows: Final = SampleBuffer()

    def _counters(self) -> tuple[int, int, float]:
        engine = self._observed.engine
        return engine.metrics.packets_received, engine.zxid, self._now()

    def add(self) -> Row:
        """Take a sample of the current metrics, add it to :attr:`rows`, and return it."""
        engine = self._observed.engine
        packets, zxid, now = self._counters()
        seconds = max(now - self._taken, 0.001)
        requests = max(packets - self._packets, 0)  # srst may have reset the counter
        writes = min(max(zxid - self._zxid, 0), max(requests, 1))  # a restore may advance the zxid far
        self._packets, self._zxid, self._taken = packets, zxid, now
        summaries = engine.metrics.summaries
        latencies = summaries["readlatency"], summaries["updatelatency"]
        since = self._marks[0] if self._marks else (None, None)
        self._marks.append((latencies[0].mark(), latencies[1].mark()))
        row = (
            round(now, 3),
            round(requests / seconds, 1),
            round(writes / seconds, 1),
            *(_rounded_or_zero(each.quantile(0.99, mark)) for each, mark in zip(latencies, since, strict=True)),
            len(engine.sessions.alive),
            len(engine.connections),
            engine.watches.active,
            self._observed.node_count(),
            engine.tree.reported_bytes,
            resident_bytes(),
        )
        return self.rows.add(row)


def _rounded_or_zero(value: float) -> float:
    return round(value, 3) if value == value else 0.0


def resident_bytes() -> int:
    """Return the resident memory of the process in bytes, or 0 if the system does not report it."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
