"""Copies of the whole state of an engine, for members that lag too far, and for snapshots."""

from __future__ import annotations

from ...server.core.engine import Engine
from ...server.storage.live import take_snapshot
from ...server.storage.recovery import replace
from ...server.storage.snapshot import Snapshot


def copy_state(source: Engine, target: Engine) -> None:
    """Replace the state of *target* with a copy of the state of *source*, and close the connections of *target*."""
    record, target.record = target.record, None
    last_id = target.sessions.highest_id
    replace(target, take_snapshot(source))
    target.sessions.continue_after(last_id)  # each member generates its own ids
    target.sessions.touch_all(target.monotonic_ms)
    target.record = record


class ClusterSnapshot:
    """The tree of a cluster at one point in time.

    Args:
        cluster: The cluster that the snapshot belongs to.
        copy: The tree.
    """

    def __init__(self, cluster: object, copy: Snapshot) -> None:
        self.cluster = cluster
        self.copy = copy
