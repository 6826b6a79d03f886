"""ZooKeeper for tests: an embedded server that starts in milliseconds, with fault injection.

Each name is imported on first use: pytest loads this package in every project that has zoolet installed, and most tests
do not use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoolet.server.testing.actions import (
        Action,
        close_after,
        delay,
        drop_request,
        error,
        hold,
        lose_reply,
        withhold_event,
    )
    from zoolet.server.testing.faults import Fault
    from zoolet.server.testing.populate import Znode
    from zoolet.server.testing.server import Server
    from zoolet.server.testing.sim import Simulation
    from zoolet.server.testing.unittest import KazooTestCase, KazooTestHarness, ZooletTestCase

_HOMES = {
    **dict.fromkeys(
        (
            "Action",
            "close_after",
            "delay",
            "drop_request",
            "error",
            "hold",
            "lose_reply",
            "withhold_event",
        ),
        "actions",
    ),
    "Fault": "faults",
    "Server": "server",
    "Simulation": "sim",
    "Znode": "populate",
    "KazooTestCase": "unittest",
    "KazooTestHarness": "unittest",
    "ZooletTestCase": "unittest",
}

__all__ = [
    "Action",
    "Fault",
    "KazooTestCase",
    "KazooTestHarness",
    "Server",
    "Simulation",
    "Znode",
    "ZooletTestCase",
    "close_after",
    "delay",
    "drop_request",
    "error",
    "hold",
    "lose_reply",
    "withhold_event",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
