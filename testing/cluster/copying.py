"""Copy the whole state of an engine, for members that lag too far."""

from __future__ import annotations

from ...server.core.engine import Engine
from ...server.storage.live import take_snapshot
from ...server.storage.recovery import replace
from ...server.storage.snapshot import Snapshot


def copy_state(source: Engine, target: Engine) -> None:
    """Replace the state of *target* by the state of *source*; the connections of *target* are closed."""
    record, target.record = target.record, None
    last_id = target.sessions.highest_id
    replace(target, take_snapshot(source))
    target.sessions.continue_after(last_id)  # each member generates its own ids
    target.sessions.touch_all(target.monotonic_ms)
    target.record = record


class ClusterSnapshot:
    """The tree of a cluster at one point in time.

    Args:
        of: The cluster.
        copy: The tree.
    """

    def __init__(self, of: object, copy: Snapshot) -> None:
        self.of = of
        self.copy = copy
