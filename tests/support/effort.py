"""The number of repetitions in a run. ``make test`` is a short run: it tries enough to find in minutes what a change
broke. With ``ZOOLET_FULL=1``, as in ``.ci/run``, a run tries everything. A short run leaves out repetition: more
seeds, more steps of the same kind, longer lists, and a second release of Apache ZooKeeper.
"""

from __future__ import annotations

import os
from typing import Final

FULL: Final = os.environ.get("ZOOLET_FULL") == "1"
"""Whether this is a full run."""


def effort(short: int, full: int) -> int:
    """Return the number of repetitions: *short* in a short run, *full* in a full run."""
    return full if FULL else short
