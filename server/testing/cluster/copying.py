"""Copies of the whole state of an engine, for a member that is too far behind."""

from __future__ import annotations

from zoolet.server.core.engine import Engine
from zoolet.server.storage.live import snapshot_of
from zoolet.server.storage.recovery import replace
from zoolet.server.storage.snapshot import Snapshot


def copy_state(source: Engine, target: Engine) -> None:
    """Replace the state of one engine by that of another; the connections of the one are closed."""
    record, target.record = target.record, None
    last_id = target.sessions.highest_id
    replace(target, snapshot_of(source))
    target.sessions.continue_after(last_id)  # each member makes ids of its own
    target.sessions.touch_all(target.monotonic_ms)
    target.record = record


class ClusterSnapshot:
    """The tree of a cluster at some moment.

    Args:
        of: The cluster.
        copy: The tree.
    """

    def __init__(self, of: object, copy: Snapshot) -> None:
        self.of = of
        self.copy = copy
