"""ZooKeeper for tests: embedded, started in milliseconds, and broken on purpose.

Everything here is imported when it is first asked for: pytest loads this package in every project that has zoolet
installed, and most of them test something else.
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
    from zoolet.server.testing.cases import KazooTestCase, KazooTestHarness, ZooletTestCase
    from zoolet.server.testing.faults import Fault
    from zoolet.server.testing.harness import Server
    from zoolet.server.testing.population import Znode
    from zoolet.server.testing.sim import Simulation

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
    "Server": "harness",
    "Simulation": "sim",
    "Znode": "population",
    "KazooTestCase": "cases",
    "KazooTestHarness": "cases",
    "ZooletTestCase": "cases",
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
