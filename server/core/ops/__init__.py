"""One function or three for each operation, found through the tables of :mod:`~zoolet.server.core.ops.registry`."""

from zoolet.server.core.ops import multi, reads, reconfig, sessions, watching, writes

__all__ = ["multi", "reads", "reconfig", "sessions", "watching", "writes"]
