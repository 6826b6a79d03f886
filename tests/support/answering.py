"""A server that sends fixed bytes to its only client, to imitate a server that does not speak ZooKeeper's protocol."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from support.waiting import DEADLINE_S


@contextmanager
def answering_server(answer: bytes) -> Iterator[str]:
    """Run the server, and yield its address. It accepts one client, reads once, sends *answer* and disconnects."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            link, _ = listener.accept()
            with link:
                link.recv(1000)
                link.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(DEADLINE_S)
