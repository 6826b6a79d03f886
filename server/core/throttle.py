"""The connection throttle: a bucket of tokens, one for each session that is opened or resumed.

Source: BlueThrottle.
"""

from __future__ import annotations

from zoolet.server.core.settings import Settings


class ConnectionThrottle:
    """Limits how many sessions may be opened or resumed in a short time.

    Args:
        settings: The size of the bucket, and how it is refilled.
        monotonic_ms: Milliseconds on a monotonic clock.
    """

    def __init__(self, settings: Settings, monotonic_ms: int) -> None:
        self._settings = settings
        self._left = settings.throttle_tokens
        self._filled = monotonic_ms

    def try_acquire(self, monotonic_ms: int) -> bool:
        """Take a token and return True, or return False if there is none. A disabled throttle always returns True."""
        settings = self._settings
        if not settings.throttle_tokens:
            return True
        refills = (monotonic_ms - self._filled) // settings.throttle_fill_time
        if refills > 0:
            self._left = min(self._left + refills * settings.throttle_fill_count, settings.throttle_tokens)
            self._filled += refills * settings.throttle_fill_time
        if self._left < 1:
            return False
        self._left -= 1
        return True
