"""The client for threads: the same surface without ``await``.

It runs the asyncio client in a loop of its own, in a thread of its own, and nothing of it is written twice: its methods
are made of the asyncio client's by :mod:`~zoolet.client.blocking.proxy`, its types by ``make faces``, into client.pyi;
:mod:`~zoolet.client.blocking.thread_client` is what it has of its own. Any number of threads may use it at once.
"""

from __future__ import annotations

from zoolet.client.aio import client as aio
from zoolet.client.blocking import recipes  # noqa: F401 - the classes of what calls return are made there
from zoolet.client.blocking.proxy import face_of
from zoolet.client.blocking.thread_client import DIRECT, HIDDEN, ThreadClient

__all__ = ["Client"]

DOC = """A ZooKeeper client for threads; ``with Client("127.0.0.1:2181") as zk:``.

    Arguments, results and errors are those of :class:`zoolet.client.Client`. Each operation takes a ``timeout``, too:
    the seconds after which it is cancelled, and raises TimeoutError; it may have been applied. So is a call that is
    interrupted by a signal, such as Ctrl-C.
    """
Client = face_of(aio.Client, ThreadClient, hidden=HIDDEN, direct=DIRECT, module=__name__, doc=DOC)
