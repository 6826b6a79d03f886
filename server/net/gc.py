"""Keep the garbage collector from stopping the server.

A tree of a million nodes is a million objects that a full collection looks at, for nothing: nodes are freed the moment
they are deleted. A full collection of a million nodes takes 0.1 s and more. So what has survived is set aside
(``gc.freeze``) whenever the tree has grown by a good deal, and the collector only ever looks at what came after.
"""

from __future__ import annotations

import gc
from typing import Final

THRESHOLDS: Final = (50_000, 50, 100)
"""Allocations before a young collection, and how many of each before the next older: worst pause 25 ms, not 138, in
500,000 creates.
"""
GROWTH: Final = 50_000
"""Nodes by which the tree grows before the survivors are set aside."""


class GcTuner:
    """The collector's settings while a server runs; a context manager that puts the old ones back."""

    def __init__(self) -> None:
        self._before = gc.get_threshold()
        self._frozen_at = 0

    def __enter__(self) -> GcTuner:
        self._before = gc.get_threshold()
        gc.set_threshold(*THRESHOLDS)
        return self

    def __exit__(self, *exc: object) -> None:
        gc.set_threshold(*self._before)
        if self._frozen_at:
            gc.unfreeze()

    def grown(self, nodes: int) -> None:
        """Record the size of the tree; called now and then."""
        if nodes - self._frozen_at > GROWTH:
            gc.freeze()
            self._frozen_at = nodes
        elif nodes < self._frozen_at // 2:
            self._frozen_at = nodes
