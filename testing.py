"""ZooKeeper for tests, in one place: ``from zoolet.testing import Server, Simulation, Znode, lose_reply``.

These are the public names of :mod:`zoolet.server.testing`, each of which is imported when it is first used; ``help()``
of each says more.

==================  ==========================================================================================
servers             ``Server``, ``Cluster``, ``Proxy``, ``Simulation``, ``Znode``
faults              ``delay``, ``error``, ``drop_request``, ``lose_reply``, ``corrupt_reply``, ``cut_reply``,
                    ``slow_reply``, ``close_after``, ``hold``, ``withhold_event``; ``Fault``, ``Action``
what was requested  ``Recording``, ``OpView``; ``check``, ``Violation``
schedules           ``zoolet_schedules``
``unittest``        ``ZooletTestCase``, ``KazooTestCase``, ``KazooTestHarness``, ``get_global_cluster``
fixtures            ``zoolet_fixture``; their types ``ServerFactory``, ``KazooFactory``, ``ClientFactory``
==================  ==========================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoolet.server.testing import *  # noqa: F403
else:
    from zoolet.server import testing as _testing

    __all__ = _testing.__all__

    def __dir__() -> list[str]:
        return __all__

    def __getattr__(name: str) -> object:
        if name not in __all__:  # above all __path__, which would make zoolet.testing.sim a second copy of a module
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(_testing, name)
