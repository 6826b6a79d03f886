"""The tuning of the garbage collector, which avoids pauses of the server.

A full collection traverses every node of the tree without finding garbage, because deleted nodes are freed by their
reference counts. With a million nodes it takes 0.1 s and more. So all existing objects are exempted (``gc.freeze``)
at the start and each time the tree has grown by 50,000 nodes, and collections traverse only newer objects.
"""

from __future__ import annotations

import gc
from typing import Final

THRESHOLDS: Final = (5_000, 500, 100)
"""The thresholds of the three generations. Collecting 5,000 new objects takes 3 ms."""
FREEZE_NODES: Final = 50_000
"""Growth of the tree, in nodes, between two calls of ``gc.freeze``."""


class GcTuner:
    """A context manager that sets the collector's thresholds while a server runs, and restores them."""

    def __init__(self) -> None:
        self._before = gc.get_threshold()
        self._frozen_at = 0

    def __enter__(self) -> GcTuner:
        self._before = gc.get_threshold()
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
        return self

    def __exit__(self, *exc: object) -> None:
        gc.set_threshold(*self._before)
        gc.unfreeze()

    def freeze_if_grown(self, nodes: int) -> None:
        """Freeze the existing objects if the tree has grown by :data:`FREEZE_NODES` nodes. Call this at each tick.

        Args:
            nodes: The size of the tree.
        """
        if nodes - self._frozen_at > FREEZE_NODES:
            gc.freeze()
            self._frozen_at = nodes
        elif nodes < self._frozen_at // 2:
            self._frozen_at = nodes
