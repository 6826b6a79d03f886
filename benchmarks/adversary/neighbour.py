"""A well-behaved client during the attack: it measures the latency of exists("/") every 5 ms, in its own process.

The process runs this module as a program. For each request it writes three numbers to a file: the start, the latency,
and the CPU time that the server used. The process is separate from the attacker, because time in the attacker's Python
must not count as the server's delay. CPU time also excludes other programs on the machine.
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

from adversary.client import REPLY_TIMEOUT_S, HostilePeer
from adversary.frames import request
from zoolet.protocol.operations import OpCode
from zoolet.protocol.records import ExistsRequest

PERIOD_S: Final = 0.005
_SAMPLE_STRUCT: Final = struct.Struct("ddd")


class Neighbour:
    """A client in a separate process, which measures latencies until :meth:`stop`.

    Args:
        port: Port of the server.
        pid: Process id of the server.
    """

    def __init__(self, port: int, pid: int) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="zoolet-neighbour-")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "adversary.neighbour", str(port), str(pid), self._file.name],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError("the neighbour could not connect")

    def stop(self) -> list[tuple[float, float, float]]:
        """Stop the measurement. Return the start, the latency and the server's CPU time of each request, in seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(REPLY_TIMEOUT_S + 5)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
        samples = list(_SAMPLE_STRUCT.iter_unpack(Path(self._file.name).read_bytes()))
        self._file.close()
        return samples


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process's main thread in seconds, or 0 if the system does not report it."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError):
        return 0.0


def measure(port: int, pid: int, file: str) -> None:
    """Measure until stdin is closed or the server is lost, and write the samples to *file*."""
    probe = request(OpCode.EXISTS, ExistsRequest("/", False))
    with HostilePeer(port) as peer, open(file, "wb", buffering=0) as samples:
        peer.authenticate("neighbour:secret")  # some attacks need a server that requires authentication
        for _ in range(10):  # warm up the caches
            peer.call(OpCode.EXISTS, ExistsRequest("/", False))
        gc.disable()
        print("measuring", flush=True)
        while True:
            before = cpu_s(pid)
            start = time.monotonic()
            try:
                peer.link.sendall(probe)
                peer.payload()
            except OSError:
                samples.write(_SAMPLE_STRUCT.pack(start, float("inf"), 0.0))
                return
            latency = time.monotonic() - start
            samples.write(_SAMPLE_STRUCT.pack(start, latency, cpu_s(pid) - before))
            if select.select([0], [], [], PERIOD_S)[0]:
                return


if __name__ == "__main__":
    measure(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
