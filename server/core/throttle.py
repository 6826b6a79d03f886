"""The connection throttle: a bucket of tokens. Opening or resuming a session costs one token.

Source: BlueThrottle.
"""

from __future__ import annotations

from .settings import EngineSettings


class ConnectionThrottle:
    """A limit on the number of sessions that are opened or resumed in a short time.

    Args:
        settings: Settings of the server. Only the ``throttle_`` settings are used.
        monotonic_ms: Current time of a monotonic clock, in milliseconds.
    """

    def __init__(self, settings: EngineSettings, monotonic_ms: int) -> None:
        self._settings = settings
        self._tokens = settings.throttle_tokens
        self._last_refill = monotonic_ms

    def try_acquire(self, monotonic_ms: int) -> bool:
        """Return whether a token was left, and use it up. A disabled throttle always returns True."""
        settings = self._settings
        if not settings.throttle_tokens:
            return True
        refills = (monotonic_ms - self._last_refill) // settings.throttle_fill_time
        if refills > 0:
            self._tokens = min(self._tokens + refills * settings.throttle_fill_count, settings.throttle_tokens)
            self._last_refill += refills * settings.throttle_fill_time
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
