"""The handlers of the operations, registered in the tables of :mod:`~zoolet.server.core.ops.dispatch`."""

from zoolet.server.core.ops import multi, reads, reconfig, session_ops, watch_ops, writes

__all__ = ["multi", "reads", "reconfig", "session_ops", "watch_ops", "writes"]
