"""The server's counters and summaries: plain numbers, which reports format."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, nan
from typing import Final

LIMITS: Final = (
    "acl_entries",
    "connections",
    "frames",
    "identities",
    "multi_operations",
    "multi_read",
    "partial_requests",
    "set_watches",
    "unread",
    "unread_total",
    "watches",
    "watches_per_connection",
)
"""The limits whose violations are counted."""
WINDOW_MS: Final = 300_000
"""Milliseconds of half of a summary's window: quantiles are of the last five to ten minutes."""
_STEPS: Final = 8
"""Buckets for each doubling: a quantile is exact to 6 %."""
MAX_NAMESPACES: Final = 100
"""The most first parts of paths that are counted apart; the others are counted together."""


class Summary:
    """Numbers that were observed: how many, their sum and extremes, and the quantiles of the last minutes.

    Attributes:
        count: How many.
        total: Their sum.
        least: The least; 0 if there was none.
        most: The greatest.
    """

    __slots__ = ("_before", "_began", "_recent", "count", "least", "most", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = self.least = self.most = 0.0
        self._recent: dict[int, int] = {}  # how many there are by bucket
        self._before: dict[int, int] = {}
        self._began: int | None = None  # the half of the window that runs, in monotonic milliseconds

    def observe(self, value: float, times: int = 1) -> None:
        """Add a number, or the same several times."""
        if not self.count or value < self.least:
            self.least = value
        if value > self.most:
            self.most = value
        self.count += times
        self.total += value * times
        # The bucket of a number is that of its thousandths: the place of their highest bit, and the three after it.
        thousandths = int(value * 1000)
        shift = max(thousandths.bit_length() - 4, 0)
        bucket = shift * _STEPS + (thousandths >> shift)
        self._recent[bucket] = self._recent.get(bucket, 0) + times

    def rotate(self, monotonic_ms: int) -> None:
        """Forget what is older than the window."""
        if self._began is None:
            self._began = monotonic_ms
        elapsed = monotonic_ms - self._began
        if elapsed >= WINDOW_MS:
            self._before = self._recent if elapsed < 2 * WINDOW_MS else {}
            self._recent, self._began = {}, monotonic_ms

    def quantile(self, part: float) -> float:
        """Return the number that a part of the last ones do not exceed, to 6 %; NaN if there were none."""
        counts = dict(self._before)
        for bucket, count in self._recent.copy().items():  # the log's thread may add to it
            counts[bucket] = counts.get(bucket, 0) + count
        wanted = ceil(part * sum(counts.values()))
        for bucket in sorted(counts):
            wanted -= counts[bucket]
            if wanted <= 0:
                return self._middle(bucket)
        return nan

    def _middle(self, bucket: int) -> float:
        if bucket < 2 * _STEPS:
            return bucket / 1000  # exactly
        shift = bucket // _STEPS - 1
        low = (bucket - shift * _STEPS) << shift
        return min(max((low + (1 << shift) / 2) / 1000, self.least), self.most)

    def average(self) -> float:
        """Return the mean, rounded to four places as ZooKeeper does."""
        return round(self.total / self.count, 4) if self.count else 0.0


def _summaries(*names: str) -> dict[str, Summary]:
    return {name: Summary() for name in names}


SUMMARIES: Final = (
    "dbinittime",
    "fsynctime",
    "loop_lag",
    "node_changed_watch_count",
    "node_children_watch_count",
    "node_created_watch_count",
    "node_deleted_watch_count",
    "readlatency",
    "snapshottime",
    "startup_txns_loaded",
    "sync_processor_batch_size",
    "updatelatency",
)
"""The summaries, by ZooKeeper's names where it has them; times are milliseconds."""


@dataclass(slots=True)
class Metrics:
    """Counters since the start, or since they were last reset.

    Latencies are milliseconds from the moment a batch of requests was read to the moment its replies were passed to the
    socket.

    Args:
        bytes_received: Bytes of requests.
        bytes_sent: Bytes of replies and events.
        auth_failed: Failed logins.
        super_logins: Logins as the super user.
        connects: Connect requests.
        resumed: Those of them that name a session.
        throttled: Those of them that the connection throttle has refused.
        handshakes_failed: TLS handshakes that have failed.
        sessions_expired: Sessions that have expired.
        sessionless_expired: Connections that were closed because they opened no session.
        stalls: How often the server process was paused for so long that its sessions were given more time.
        stalled_ms: For how many milliseconds in total.
        refused: How many requests or connections were refused, by limit.
        quota_exceeded: How many writes a quota has refused, by the first part of the path.
        snapshot_errors: Snapshots that could not be written.
        summaries: The summaries by name.
    """

    packets_received: int = 0
    packets_sent: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    latency_count: int = 0
    latency_total: float = 0.0
    latency_min: float = 0.0
    latency_max: float = 0.0
    auth_failed: int = 0
    super_logins: int = 0
    connects: int = 0
    resumed: int = 0
    throttled: int = 0
    handshakes_failed: int = 0
    sessions_expired: int = 0
    sessionless_expired: int = 0
    stalls: int = 0
    stalled_ms: int = 0
    refused: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LIMITS, 0))
    quota_exceeded: dict[str, int] = field(default_factory=dict)
    snapshot_errors: int = 0
    summaries: dict[str, Summary] = field(default_factory=lambda: _summaries(*SUMMARIES))

    def refuse(self, limit: str) -> None:
        """Count a refusal because of a limit, one of :data:`LIMITS`."""
        self.refused[limit] += 1

    def exceed_quota(self, path: str) -> None:
        """Count a write that a quota has refused."""
        namespace = path[1:].partition("/")[0]
        if namespace not in self.quota_exceeded and len(self.quota_exceeded) >= MAX_NAMESPACES:
            namespace = "others"
        self.quota_exceeded[namespace] = self.quota_exceeded.get(namespace, 0) + 1

    def answered(self, requests: int, milliseconds: float) -> None:
        """Count a batch of requests, each of which took *milliseconds*."""
        if not self.latency_count or milliseconds < self.latency_min:
            self.latency_min = milliseconds
        if milliseconds > self.latency_max:
            self.latency_max = milliseconds
        self.latency_count += requests
        self.latency_total += milliseconds * requests

    def latency_average(self) -> float:
        """Return the mean latency, rounded to four places as ZooKeeper does."""
        return round(self.latency_total / self.latency_count, 4) if self.latency_count else 0.0

    def rotate(self, monotonic_ms: int) -> None:
        """Forget, of the quantiles, what is older than their window."""
        for summary in self.summaries.values():
            summary.rotate(monotonic_ms)

    def reset(self) -> None:
        """Set everything back to 0."""
        fresh = Metrics()
        for name in self.__slots__:
            setattr(self, name, getattr(fresh, name))
