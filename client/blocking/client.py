"""The client for threads: the same API without ``await``.

It runs the asyncio client in a separate thread with an event loop, and duplicates no code:
:mod:`~zoolet.client.blocking.proxy` creates its methods from the methods of the asyncio client, and ``make faces``
writes its types to client.pyi. Its own methods are in :mod:`~zoolet.client.blocking.thread_client`. Any number of
threads may use it at the same time.
"""

from __future__ import annotations

from .. import client as async_client
from . import recipes  # noqa: F401 - the import creates the classes of the objects that calls return
from .proxy import blocking_class
from .thread_client import DIRECT_MEMBERS, ThreadClient

__all__ = ["Client"]

DOC = """A ZooKeeper client for threads: ``with Client("127.0.0.1:2181") as zk:``.

    Arguments, results and errors are the same as for :class:`zoolet.client.Client`. Each operation also accepts a
    ``timeout`` in seconds, after which it is cancelled and raises TimeoutError. The operation may still have been
    applied. A call that is interrupted by a signal, such as Ctrl-C, is also cancelled.
    """
Client = blocking_class(
    async_client.Client,
    ThreadClient,
    hidden=("aclose",),
    direct=DIRECT_MEMBERS,
    module="zoolet.client.blocking",
    doc=DOC,
)
