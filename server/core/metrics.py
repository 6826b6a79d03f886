"""The server's counters: plain numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
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


@dataclass(slots=True)
class Metrics:
    """Counters since the start, or since they were last reset.

    Latencies are milliseconds from the moment a batch of requests was read to the moment its replies were passed to the
    socket.

    Args:
        auth_failed: Failed logins.
        super_logins: Logins as the super user.
        stalls: How often the server process was paused for so long that its sessions were given more time.
        stalled_ms: For how many milliseconds in total.
        refused: How many requests or connections were refused, by limit.
    """

    packets_received: int = 0
    packets_sent: int = 0
    latency_count: int = 0
    latency_total: float = 0.0
    latency_min: float = 0.0
    latency_max: float = 0.0
    auth_failed: int = 0
    super_logins: int = 0
    stalls: int = 0
    stalled_ms: int = 0
    refused: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LIMITS, 0))

    def refuse(self, limit: str) -> None:
        """Count a refusal because of a limit, one of :data:`LIMITS`."""
        self.refused[limit] += 1

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

    def reset(self) -> None:
        """Set everything back to 0."""
        fresh = Metrics()
        for name in self.__slots__:
            setattr(self, name, getattr(fresh, name))
