"""The garbage collector ignores objects that are older than the running server."""

from __future__ import annotations

import gc

from zoolet.server.net.gc import GcTuner


def test_garbage_collector_skips_older_objects_while_server_runs() -> None:
    thresholds = gc.get_threshold()
    older: list[object] = [[]]

    with GcTuner():
        traversed = gc.get_objects()

    assert not any(each is older for each in traversed)
    assert any(each is older for each in gc.get_objects())
    assert gc.get_threshold() == thresholds
