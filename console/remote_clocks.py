"""Estimates of a server's clocks, from its answers to the four-letter command ``cons``.

For each connection, ``cons`` reports ``est``, the wall-clock time when it was established, and ``lresp``, the monotonic
time of the last contact. Both times are read from the server's clocks.

Source: NIOServerCnxn.dumpConnectionInfo.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Final

from ..client.four_letters import Sample, cons_number

CLOCK_ERROR_SECONDS: Final = 2.0
"""Maximum difference of two clocks in seconds that is ignored, because samples are a second apart."""
REBOOT_SECONDS: Final = 600.0
"""Seconds by which a server's monotonic clock must go back to show that its machine was restarted."""


class Clocks:
    """The estimated clocks of a server.

    Attributes:
        ahead: Seconds by which the server's wall clock is ahead of this machine's; 0 if the difference is small.
    """

    def __init__(self) -> None:
        self.ahead = 0.0
        self._established = 0  # when the console's connection was established, in milliseconds of the server's clock
        self._known: frozenset[str] | None = None  # the connections in the previous sample, if it was successful
        # The server's monotonic clock minus this process's monotonic clock, in seconds. The latest contact of a client
        # is slightly before a sample, so the estimates are too low, and the highest one is the most exact.
        self._differences: deque[float] = deque(maxlen=60)

    def add(self, sample: Sample, own: str) -> None:
        """Update the estimates with a sample.

        New connections in the sample have just been established, so they show the server's current time. A connection
        is new if the previous sample does not contain it, or if it is the console's own and appears for the first time.

        Args:
            sample: The sample.
            own: Session id of the console.
        """
        found = sample.connections
        new = found.keys() - (self._known if self._known is not None else found.keys())
        times = [cons_number(found[each], "est") for each in new]
        mine = next(
            (cons_number(facts, "est") for facts in found.values() if facts.get("sid") == own), self._established
        )
        if mine != self._established:
            self._established = mine
            times.append(mine)
        if latest := max(times, default=0):
            seconds = latest / 1000 - (time.time() - time.monotonic() + sample.at)
            self.ahead = seconds if abs(seconds) > CLOCK_ERROR_SECONDS else 0.0
        self._known = frozenset(found) if found else None
        if latest := max((cons_number(facts, "lresp") for facts in found.values()), default=0):
            difference = latest / 1000 - sample.at
            if self._differences and difference < self._differences[-1] - REBOOT_SECONDS:
                self._differences.clear()
            self._differences.append(difference)

    def since(self, facts: Mapping[str, str]) -> float:
        """Return the number of seconds since the server heard from a client."""
        now = time.monotonic() + max(self._differences, default=0.0)
        return max(0.0, now - cons_number(facts, "lresp") / 1000) if cons_number(facts, "lresp") else 0.0
