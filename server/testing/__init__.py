"""ZooKeeper for tests: an embedded server that starts in milliseconds, with fault injection.

Each name is imported on first use: pytest loads this package in every project that has zoolet installed, and most tests
do not use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoolet.server.testing.checking.checker import check
    from zoolet.server.testing.checking.violation import Violation
    from zoolet.server.testing.cluster.cluster import Cluster
    from zoolet.server.testing.frames.actions import (
        Action,
        close_after,
        corrupt_reply,
        cut_reply,
        delay,
        drop_request,
        error,
        hold,
        lose_reply,
        slow_reply,
        withhold_event,
    )
    from zoolet.server.testing.frames.faults import Fault
    from zoolet.server.testing.frames.requests import OpView
    from zoolet.server.testing.plugin import zoolet_fixture
    from zoolet.server.testing.proxy import Proxy
    from zoolet.server.testing.pytest.factories import ClientFactory, KazooFactory, ServerFactory
    from zoolet.server.testing.recording.recording import Recording
    from zoolet.server.testing.server import Server
    from zoolet.server.testing.sim import Simulation
    from zoolet.server.testing.sim.schedules import zoolet_schedules
    from zoolet.server.testing.sim.trouble import AttemptCancelledError, Trouble
    from zoolet.server.testing.state.populate import Znode
    from zoolet.server.testing.unittest import (
        KazooTestCase,
        KazooTestHarness,
        ZooletTestCase,
        get_global_cluster,
    )

_HOMES = {
    **dict.fromkeys(
        (
            "Action",
            "close_after",
            "corrupt_reply",
            "cut_reply",
            "delay",
            "drop_request",
            "error",
            "hold",
            "lose_reply",
            "slow_reply",
            "withhold_event",
        ),
        "frames.actions",
    ),
    "check": "checking.checker",
    "Violation": "checking.violation",
    "Cluster": "cluster.cluster",
    "Fault": "frames.faults",
    "Proxy": "proxy",
    "Recording": "recording.recording",
    "OpView": "frames.requests",
    "zoolet_fixture": "plugin",
    "zoolet_schedules": "sim.schedules",
    "AttemptCancelledError": "sim.trouble",
    "Trouble": "sim.trouble",
    "Server": "server",
    "ClientFactory": "pytest.factories",
    "KazooFactory": "pytest.factories",
    "ServerFactory": "pytest.factories",
    "Simulation": "sim",
    "Znode": "state.populate",
    "KazooTestCase": "unittest",
    "KazooTestHarness": "unittest",
    "ZooletTestCase": "unittest",
    "get_global_cluster": "unittest",
}

__all__ = [
    "Action",
    "AttemptCancelledError",
    "ClientFactory",
    "Cluster",
    "Fault",
    "KazooFactory",
    "KazooTestCase",
    "KazooTestHarness",
    "OpView",
    "Proxy",
    "Recording",
    "Server",
    "ServerFactory",
    "Simulation",
    "Trouble",
    "Violation",
    "Znode",
    "ZooletTestCase",
    "check",
    "close_after",
    "corrupt_reply",
    "cut_reply",
    "delay",
    "drop_request",
    "error",
    "get_global_cluster",
    "hold",
    "lose_reply",
    "slow_reply",
    "withhold_event",
    "zoolet_fixture",
    "zoolet_schedules",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
