"""How much a run tries. ``make test`` tries enough to find in minutes what a change broke; with ``ZOOLET_FULL=1``, as
``.ci/run`` sets it, a run tries everything. Nothing is left out of a short run but repetition: further seeds, more
steps of the same kind, longer lists.
"""

from __future__ import annotations

import os
from typing import Final

FULL: Final = os.environ.get("ZOOLET_FULL") == "1"
"""Whether this run tries everything."""


def effort(short: int, full: int) -> int:
    """Return how often to try something, in a short run and in a full one."""
    return full if FULL else short
