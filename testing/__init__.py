"""ZooKeeper for tests, in one place: ``from zoolet.testing import Server, Simulation, Znode, lose_reply``.

``help()`` describes each name. Each name is imported when it is first used, because pytest loads this package in every
project with zoolet installed, and most tests do not use it.

==================  ==========================================================================================
servers             ``Server``, ``Cluster``, ``Proxy``, ``Simulation``, ``Znode``
faults              ``delay``, ``error``, ``drop_request``, ``lose_reply``, ``corrupt_reply``, ``cut_reply``,
                    ``slow_reply``, ``close_after``, ``hold``, ``withhold_event``; ``Fault``, ``Action``
requests            ``Recording``, ``OpView``; ``check``, ``Violation``
state               ``NodeView``, ``SessionView``, ``WatchView``
schedules           ``zoolet_schedules``, ``Chaos``, ``AttemptCancelledError``; ``StuckError``, ``TooLongError``
``unittest``        ``ZooletTestCase``, ``KazooTestCase``, ``KazooTestHarness``, ``get_global_cluster``
fixtures            ``zoolet_fixture``; types: ``ServerFactory``, ``KazooFactory``, ``ClientFactory``
==================  ==========================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if __name__ != "zoolet.testing":
    raise ImportError("import zoolet.testing, not testing")

if TYPE_CHECKING:
    from .checking.checker import check
    from .checking.violation import Violation
    from .cluster.cluster import Cluster
    from .frames.actions import (
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
    from .frames.faults import Fault
    from .frames.requests import OpView
    from .proxy import Proxy
    from .pytest.factories import ClientFactory, KazooFactory, ServerFactory, zoolet_fixture
    from .recording.recording import Recording
    from .server import Server
    from .sim import Simulation
    from .sim.chaos import AttemptCancelledError, Chaos
    from .sim.loop import StuckError, TooLongError
    from .sim.schedules import zoolet_schedules
    from .state.populate import Znode
    from .state.views import NodeView, SessionView, WatchView
    from .unittest import (
        KazooTestCase,
        KazooTestHarness,
        ZooletTestCase,
        get_global_cluster,
    )

_MODULE_BY_NAME = {
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
    "zoolet_fixture": "pytest.factories",
    "zoolet_schedules": "sim.schedules",
    "AttemptCancelledError": "sim.chaos",
    "Chaos": "sim.chaos",
    "Server": "server",
    "ClientFactory": "pytest.factories",
    "KazooFactory": "pytest.factories",
    "ServerFactory": "pytest.factories",
    "Simulation": "sim",
    "StuckError": "sim.loop",
    "TooLongError": "sim.loop",
    "Znode": "state.populate",
    "NodeView": "state.views",
    "SessionView": "state.views",
    "WatchView": "state.views",
    "KazooTestCase": "unittest",
    "KazooTestHarness": "unittest",
    "ZooletTestCase": "unittest",
    "get_global_cluster": "unittest",
}

__all__ = [
    "Action",
    "AttemptCancelledError",
    "Chaos",
    "ClientFactory",
    "Cluster",
    "Fault",
    "KazooFactory",
    "KazooTestCase",
    "KazooTestHarness",
    "NodeView",
    "OpView",
    "Proxy",
    "Recording",
    "Server",
    "ServerFactory",
    "SessionView",
    "Simulation",
    "StuckError",
    "TooLongError",
    "Violation",
    "WatchView",
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


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    home = _MODULE_BY_NAME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
