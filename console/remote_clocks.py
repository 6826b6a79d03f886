"""The clocks of a server that is only known by its answers to four-letter commands.

The command ``cons`` gives for each connection ``est``, the time of day when it was established, and ``lresp``, the last
contact by a monotonic clock. Both are by the clocks of the server.

Source: NIOServerCnxn.dumpConnectionInfo.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Final

from ..client.four_letters import Sample, cons_number

CLOCK_ERROR: Final = 2.0
"""Maximum difference of two clocks in seconds that is ignored, because samples are a second apart."""
REBOOTED: Final = 600.0
"""If a server's monotonic clock goes back by more than this many seconds, its machine was restarted."""


class Clocks:
    """The clocks of a server, as far as its answers to cons show them.

    Attributes:
        ahead: Difference of its clock from the clock of this process, in seconds.
    """

    def __init__(self) -> None:
        self.ahead = 0.0
        self._own = 0  # when the console's connection was established, in milliseconds of the server's clock
        self._known: frozenset[str] | None = None  # the connections of the sample before, if it was successful
        # The monotonic clock of the server minus the one of this process, in seconds. The latest contact of a client is
        # a little before a sample, so the greatest number is the best.
        self._differences: deque[float] = deque(maxlen=60)

    def add(self, sample: Sample, own: str) -> None:
        """Add a sample. Its new connections have just been established, so they show the server's time: those that the
        previous sample does not contain, and the console's own connection when it first appears.

        Args:
            sample: The sample.
            own: Session id of the console.
        """
        found = sample.connections
        new = found.keys() - (self._known if self._known is not None else found.keys())
        times = [cons_number(found[each], "est") for each in new]
        mine = next((cons_number(facts, "est") for facts in found.values() if facts.get("sid") == own), self._own)
        if mine != self._own:
            self._own = mine
            times.append(mine)
        if latest := max(times, default=0):
            seconds = latest / 1000 - (time.time() - time.monotonic() + sample.at)
            self.ahead = seconds if abs(seconds) > CLOCK_ERROR else 0.0
        self._known = frozenset(found) if found else None
        if latest := max((cons_number(facts, "lresp") for facts in found.values()), default=0):
            difference = latest / 1000 - sample.at
            if self._differences and difference < self._differences[-1] - REBOOTED:
                self._differences.clear()
            self._differences.append(difference)

    def since(self, facts: Mapping[str, str]) -> float:
        """Return the number of seconds since the server heard from a client."""
        now = time.monotonic() + max(self._differences, default=0.0)
        return max(0.0, now - cons_number(facts, "lresp") / 1000) if cons_number(facts, "lresp") else 0.0
