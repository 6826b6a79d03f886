"""A well-behaved client beside the attack: it measures how long exists("/") takes, every 5 ms, in its own process.

The process is this module run as a program: it writes the start and the latency of each request to a file. It shares no
process with the attacker, so that the attacker's Python does not count as the server's delay.
"""

from __future__ import annotations

import gc
import select
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from adversary.client import REPLY_TIMEOUT_S, Peer
from adversary.frames import request
from zoolet.protocol.operations import OpCode
from zoolet.protocol.records import ExistsRequest

PERIOD_S: Final = 0.005
_SAMPLE: Final = struct.Struct("dd")


class Neighbour:
    """A client in a process of its own that measures how long exists("/") takes.

    Args:
        port: The server's port.
    """

    def __init__(self, port: int) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="zoolet-neighbour-")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "adversary.neighbour", str(port), self._file.name],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError("the neighbour could not connect")

    def stop(self) -> list[tuple[float, float]]:
        """Wait for the request in flight; return the start and the latency of each request, in seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(REPLY_TIMEOUT_S + 5)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
        samples = list(_SAMPLE.iter_unpack(Path(self._file.name).read_bytes()))
        self._file.close()
        return [(start, latency) for start, latency in samples]


def measure(port: int, file: str) -> None:
    """Measure until stdin is closed or the server is lost; runs in a process of its own."""
    probe = request(OpCode.EXISTS, ExistsRequest("/", False))
    with Peer(port) as peer, open(file, "wb", buffering=0) as samples:
        peer.authenticate("neighbour:secret")  # where the server asks for it
        for _ in range(10):  # the first requests find cold caches
            peer.call(OpCode.EXISTS, ExistsRequest("/", False))
        gc.disable()
        print("measuring", flush=True)
        while True:
            start = time.monotonic()
            try:
                peer.link.sendall(probe)
                peer.payload()
            except OSError:
                samples.write(_SAMPLE.pack(start, float("inf")))
                return
            samples.write(_SAMPLE.pack(start, time.monotonic() - start))
            if select.select([0], [], [], PERIOD_S)[0]:
                return


if __name__ == "__main__":
    measure(int(sys.argv[1]), sys.argv[2])
