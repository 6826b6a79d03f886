"""The server's counters and summaries, as plain numbers. The reports in ``server/admin`` format these numbers."""

from __future__ import annotations

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
    "unread_of_all",
    "watches",
    "watches_per_connection",
)
"""The limits whose violations are counted."""
HALF_WINDOW_MS: Final = 300_000
"""Half of a summary's window, in milliseconds. Quantiles cover the last five to ten minutes."""
_STEPS: Final = 8
"""Number of buckets for each doubling of the value. It makes quantiles accurate to 6 %."""
MAX_NAMESPACES: Final = 100
"""Maximum number of namespaces (first parts of paths) with a counter of their own. The others share one counter."""

SummaryMark = tuple[int | None, dict[int, int]]
"""A moment in a summary: the start of the current half of the window, and the counts of its values by bucket."""


class Summary:
    """A summary of observed values: their number, sum and extremes, and the quantiles of the last minutes.

    Attributes:
        count: Number of values.
        total: Sum of the values.
        least: The smallest value; 0 before the first value.
        most: The largest value; 0 before the first value.
    """

    __slots__ = ("_before", "_began", "_recent", "count", "least", "most", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = self.least = self.most = 0.0
        self._recent: dict[int, int] = {}  # number of values by bucket
        self._before: dict[int, int] = {}
        self._began: int | None = None  # start of the current half of the window, in monotonic milliseconds

    def observe(self, value: float, times: int = 1) -> None:
        """Add a value *times* times."""
        if not self.count or value < self.least:
            self.least = value
        if value > self.most:
            self.most = value
        self.count += times
        self.total += value * times
        # The bucket depends on the highest bit of the number of thousandths, and on the three bits after it.
        thousandths = int(value * 1000)
        shift = max(thousandths.bit_length() - 4, 0)
        bucket = shift * _STEPS + (thousandths >> shift)
        self._recent[bucket] = self._recent.get(bucket, 0) + times

    def rotate(self, monotonic_ms: int) -> None:
        """Start the next half of the window if it is time, and discard values that are older than the window."""
        if self._began is None:
            self._began = monotonic_ms
        elapsed = monotonic_ms - self._began
        if elapsed >= HALF_WINDOW_MS:
            self._before = self._recent if elapsed < 2 * HALF_WINDOW_MS else {}
            self._recent, self._began = {}, monotonic_ms

    def mark(self) -> SummaryMark:
        """Return a mark of this moment for :meth:`quantile`."""
        return self._began, self._recent.copy()

    def quantile(self, part: float, since: SummaryMark | None = None) -> float:
        """Return a quantile of the values in the window, accurate to 6 %. Return NaN if the window is empty.

        Args:
            part: The fraction of values that are not above the quantile, such as 0.99.
            since: A mark, not older than half of the window. Only values after the mark count; None for all values.
        """
        counts = self._recent.copy()  # a copy, because the log's thread may add values
        if since is None or since[0] != self._began:
            for bucket, count in self._before.items():
                counts[bucket] = counts.get(bucket, 0) + count
        if since is not None:
            for bucket, count in since[1].items():
                counts[bucket] = max(counts.get(bucket, 0) - count, 0)
        wanted = ceil(part * sum(counts.values()))
        for bucket in sorted(counts):
            wanted -= counts[bucket]
            if wanted <= 0 and counts[bucket]:
                return self._middle(bucket)
        return nan

    def _middle(self, bucket: int) -> float:
        if bucket < 2 * _STEPS:
            return bucket / 1000  # each small number of thousandths has its own bucket
        shift = bucket // _STEPS - 1
        low = (bucket - shift * _STEPS) << shift
        return min(max((low + (1 << shift) / 2) / 1000, self.least), self.most)

    def average(self) -> float:
        """Return the mean, rounded to four places as in ZooKeeper."""
        return round(self.total / self.count, 4) if self.count else 0.0


SUMMARIES: Final = {
    "dbinittime": "Time to recover the data at startup, in milliseconds",
    "fsynctime": "Time of a sync of the log, in milliseconds",
    "loop_lag": "Delay of the event loop's clock, in milliseconds; high values mean high load",
    "node_changed_watch_count": "Connections that an event about changed data was sent to",
    "node_children_watch_count": "Connections that an event about changed children was sent to",
    "node_created_watch_count": "Connections that an event about a created node was sent to",
    "node_deleted_watch_count": "Connections that an event about a deleted node was sent to",
    "readlatency": "Time to answer a read, in milliseconds, sampled from one batch of requests in 64",
    "snapshottime": "Time to write a snapshot, in milliseconds",
    "startup_txns_loaded": "Transactions that were loaded at startup",
    "sync_processor_batch_size": "Writes per sync of the log",
    "updatelatency": "Time to answer a write, in milliseconds, including its sync",
}
"""The descriptions of the summaries by name. Summaries that ZooKeeper also provides have ZooKeeper's names."""


class Metrics:
    """Counters since the start, or since the last reset.

    Latencies are milliseconds between reading a batch of requests and passing its replies to the socket.

    Attributes:
        packets_received: Number of requests, including connect requests and four-letter commands.
        packets_sent: Number of replies, without events and answers to four-letter commands.
        latency_count: Number of requests with a measured latency.
        latency_total: Sum of these latencies in milliseconds.
        latency_min: The smallest latency in milliseconds; 0 before the first request.
        latency_max: The largest latency in milliseconds; 0 before the first request.
        bytes_received: Number of bytes of requests.
        bytes_sent: Number of bytes of replies and events.
        auth_failed: Failed logins.
        super_logins: Logins as the super user.
        connects: Connect requests.
        resumed: Connect requests that name a session.
        throttled: Connect requests that the connection throttle has rejected.
        handshakes_failed: Failed TLS handshakes.
        sessions_expired: Expired sessions.
        sessionless_expired: Connections that were closed because they opened no session.
        stalls: Number of pauses of the server process. Sessions are extended after each pause.
        stalled_ms: Total length of these pauses in milliseconds.
        refused: Number of requests or connections that were rejected, by limit.
        quota_exceeded: Number of writes that a quota has rejected, by the first part of the path.
        snapshot_errors: Snapshots that could not be written.
        summaries: The summaries by name.
    """

    def __init__(self) -> None:
        self.packets_received = 0
        self.packets_sent = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.latency_count = 0
        self.latency_total = 0.0
        self.latency_min = 0.0
        self.latency_max = 0.0
        self.auth_failed = 0
        self.super_logins = 0
        self.connects = 0
        self.resumed = 0
        self.throttled = 0
        self.handshakes_failed = 0
        self.sessions_expired = 0
        self.sessionless_expired = 0
        self.stalls = 0
        self.stalled_ms = 0
        self.refused: dict[str, int] = dict.fromkeys(LIMITS, 0)
        self.quota_exceeded: dict[str, int] = {}
        self.snapshot_errors = 0
        self.summaries: dict[str, Summary] = {name: Summary() for name in SUMMARIES}

    def count_refusal(self, limit: str) -> None:
        """Count a request or connection that was rejected because of a limit, one of :data:`LIMITS`."""
        self.refused[limit] += 1

    def count_exceeded_quota(self, path: str) -> None:
        """Count a write that a quota has rejected."""
        namespace = path[1:].partition("/")[0]
        if namespace not in self.quota_exceeded and len(self.quota_exceeded) >= MAX_NAMESPACES:
            namespace = "others"
        self.quota_exceeded[namespace] = self.quota_exceeded.get(namespace, 0) + 1

    def count_latency(self, requests: int, milliseconds: float) -> None:
        """Count a batch of requests. *milliseconds* is the latency of each of them."""
        if not self.latency_count or milliseconds < self.latency_min:
            self.latency_min = milliseconds
        if milliseconds > self.latency_max:
            self.latency_max = milliseconds
        self.latency_count += requests
        self.latency_total += milliseconds * requests

    def latency_average(self) -> float:
        """Return the mean latency, rounded to four places as in ZooKeeper."""
        return round(self.latency_total / self.latency_count, 4) if self.latency_count else 0.0

    def rotate(self, monotonic_ms: int) -> None:
        """Discard old values of all summaries. See :meth:`Summary.rotate`."""
        for summary in self.summaries.values():
            summary.rotate(monotonic_ms)

    def reset(self) -> None:
        """Reset all counters and summaries to 0."""
        vars(self).update(vars(Metrics()))
