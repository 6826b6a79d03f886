"""What the server counts of itself: plain numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Metrics:
    """Counters since the start, or since they were last reset.

    Latencies are milliseconds, from the moment a batch of requests was read to the moment its replies were handed to
    the socket.
    """

    packets_received: int = 0
    packets_sent: int = 0
    latency_count: int = 0
    latency_total: float = 0.0
    latency_min: float = 0.0
    latency_max: float = 0.0
    auth_failed: int = 0

    def answered(self, requests: int, milliseconds: float) -> None:
        """Count a batch of requests that took so long."""
        if not self.latency_count or milliseconds < self.latency_min:
            self.latency_min = milliseconds
        if milliseconds > self.latency_max:
            self.latency_max = milliseconds
        self.latency_count += requests
        self.latency_total += milliseconds * requests

    def latency_average(self) -> float:
        """Give the mean latency, rounded to four places as ZooKeeper does."""
        return round(self.latency_total / self.latency_count, 4) if self.latency_count else 0.0

    def reset(self) -> None:
        """Set everything back to 0."""
        fresh = Metrics()
        for name in self.__slots__:
            setattr(self, name, getattr(fresh, name))
