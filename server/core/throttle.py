"""The connection throttle: a bucket of tokens. Opening or resuming a session costs one token.

Source: BlueThrottle.
"""

from __future__ import annotations

from .settings import EngineSettings


class ConnectionThrottle:
    """Limits how many sessions may be opened or resumed in a short time.

    Args:
        settings: Settings of the server (the ``throttle_`` settings are used).
        monotonic_ms: Current time of a monotonic clock, in milliseconds.
    """

    def __init__(self, settings: EngineSettings, monotonic_ms: int) -> None:
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
