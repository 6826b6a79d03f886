"""The client for threads: the same API without ``await``, including leases and recipes::

from zoolet.client.blocking import Client
from zoolet.client.blocking.recipes import Counter

with Client("127.0.0.1:2181") as zk, zk.lock("/locks/report") as lease:
    Counter(zk, "/reports").add()
    lease.raise_if_lost()
"""

from __future__ import annotations

from .client import Client

__all__ = ["Client"]
