"""The server: a deterministic core, and a thin asyncio shell around it.

The server for tests is in :mod:`zoolet.testing`, the ``zoolet`` command in :mod:`zoolet.cli`.
"""

from __future__ import annotations

if __name__ != "zoolet.server":
    raise ImportError("import zoolet.server, not server")


def __getattr__(name: str) -> object:
    """Import ``Observer`` when it is first used, because most programs do not need it."""
    if name != "Observer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .observer import Observer

    return Observer
