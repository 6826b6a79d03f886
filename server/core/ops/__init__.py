"""The handlers of the operations, registered in the tables of :mod:`~zoolet.server.core.ops.dispatch`.

A handler that rejects a request raises the error of the first check that fails, so clients can see the order of the
checks. The order is the same as in the ZooKeeper method named under ``Source``, and ``tests/differential`` compares it.
"""

from . import multi, reads, reconfig, session_ops, straight, watch_ops, writes

__all__ = ["multi", "reads", "reconfig", "session_ops", "straight", "watch_ops", "writes"]
