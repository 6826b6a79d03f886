"""A load generator for machines without a C compiler, with the command line, report and most operations of zkload.c.

    python benchmarks/pyload.py PORT OP [-c conns] [-d depth] [-n total] [-s bytes] [-k keys] [-w watchers]

Frames are built before the clock starts, and replies are only counted. But Python is slower than the servers under
test, so the ratios between servers are closer to 1 than with zkload.c. Latencies are measured for whole windows of
``depth`` requests.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.framing import Frames, frame
from zoolet.protocol.handshake import ConnectRequest
from zoolet.protocol.operations import OpCode


class Link:
    """A session, and the windows of requests that it still has to send."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = Frames(limit=None)
        self.windows: Iterator[tuple[bytes, int]] = iter(())
        self.pending_replies = 0
        self.window_start = 0.0
        self.call(frame(ConnectRequest(timeout_ms=30_000).encode()), 1)

    def receive(self) -> tuple[int, int]:
        """Read the available data. Return the number of replies and events, and the number of errors among them.

        Raises:
            SystemExit: The server closed the connection.
        """
        data = self.socket.recv(1 << 18)
        if not data:
            raise SystemExit("pyload: the server closed a connection")
        payloads = self._frames.feed(data)
        return len(payloads), sum(payload[12:16] != b"\0\0\0\0" for payload in payloads)

    def call(self, data: bytes, replies: int) -> None:
        """Send data, and wait for a number of replies."""
        self.socket.sendall(data)
        while replies > 0:
            replies -= self.receive()[0]


def request(op: int, body: bytes = b"", xid: int = 1) -> bytes:
    """Return the frame of a request."""
    return frame(r.RequestHeader(xid, op).encode() + body)


def request_builder(op: str, base: str, keys: int, payload: bytes) -> Callable[[int], bytes]:
    """Return a function that builds the k-th request of an operation."""

    def create(path: str, flags: int = 0) -> r.CreateRequest:
        return r.CreateRequest(path, payload, OPEN_ACL_UNSAFE, flags)

    def write(k: int) -> bytes:
        return request(OpCode.SET_DATA, r.SetDataRequest(f"{base}/k{k % keys}", payload, -1).encode())

    def read(k: int) -> bytes:
        return request(OpCode.GET_DATA, r.GetDataRequest(f"{base}/k{k % keys}", False).encode())

    def transaction(k: int) -> bytes:
        made = f"{base}/m{k}"
        parts = [
            (OpCode.CREATE, create(made)),
            (OpCode.SET_DATA, r.SetDataRequest(f"{base}/k{k % keys}", payload, -1)),
            (OpCode.DELETE, r.DeleteRequest(made, -1)),
        ]
        return request(OpCode.MULTI, wire.encode_operations(parts))

    kinds: dict[str, Callable[[int], bytes]] = {
        "ping": lambda k: request(OpCode.PING, xid=-2),
        "get": read,
        "exists": lambda k: request(OpCode.EXISTS, r.ExistsRequest(f"{base}/k{k % keys}", False).encode()),
        "children": lambda k: request(OpCode.GET_CHILDREN2, r.GetChildrenRequest(base, False).encode()),
        "set": write,
        "create": lambda k: request(OpCode.CREATE, create(f"{base}/n{k}").encode()),
        "seq": lambda k: request(OpCode.CREATE, create(f"{base}/lock-", 3).encode()),
        "delete": lambda k: request(OpCode.DELETE, r.DeleteRequest(f"{base}/n{k}", -1).encode()),
        "mixed": lambda k: read(k) if k % 10 else write(k),
        "multi": transaction,
    }
    if op not in kinds:
        raise SystemExit(f"pyload: unknown operation {op}")
    return kinds[op]


def windows(make: Callable[[int], bytes], first: int, step: int, total: int, depth: int) -> list[tuple[bytes, int]]:
    """Return every *step*-th request, starting with *first*, as windows of *depth* requests and their sizes."""
    numbers = range(first, total, step)
    return [
        (b"".join([make(k) for k in numbers[at : at + depth]]), len(numbers[at : at + depth]))
        for at in range(0, len(numbers), depth)
    ]


def send_windows(links: list[Link], work: list[list[tuple[bytes, int]]]) -> tuple[float, list[float], int]:
    """Send all windows, each after the replies to the previous window. Return seconds, window latencies, and errors."""
    selector = selectors.DefaultSelector()
    latencies: list[float] = []
    errors = 0
    started = time.perf_counter()
    for link, own in zip(links, work, strict=True):
        selector.register(link.socket, selectors.EVENT_READ, link)
        link.windows = iter(own)
        send_next_window(link)
    while any(link.pending_replies for link in links):
        for key, _ in selector.select(20):
            link = key.data
            replies, wrong = link.receive()
            errors += wrong
            link.pending_replies -= replies
            if not link.pending_replies:
                latencies.append(time.perf_counter() - link.window_start)
                send_next_window(link)
    return time.perf_counter() - started, latencies, errors


def send_next_window(link: Link) -> None:
    """Send the next window of a link, if any remains, and start its latency measurement."""
    data, link.pending_replies = next(link.windows, (b"", 0))
    link.window_start = time.perf_counter()
    link.socket.sendall(data)


def measure_sessions(port: int, total: int) -> tuple[float, list[float], int]:
    """Open and close sessions, one after the other. Return seconds, latencies, and 0 errors."""
    latencies = []
    started = time.perf_counter()
    for _ in range(total):
        before = time.perf_counter()
        link = Link(port)
        link.call(request(OpCode.CLOSE_SESSION), 1)
        link.socket.close()
        latencies.append(time.perf_counter() - before)
    return time.perf_counter() - started, latencies, 0


def measure_fan_out(port: int, base: str, watchers: int, rounds: int) -> tuple[float, list[float], int]:
    """Change one node that many clients watch, and measure the time until all clients have received the event."""
    links, setter = [Link(port) for _ in range(watchers)], Link(port)
    latencies = []
    for _ in range(rounds):
        for link in links:
            link.call(request(OpCode.GET_DATA, r.GetDataRequest(f"{base}/k0", True).encode()), 1)
        before = time.perf_counter()
        setter.socket.sendall(request(OpCode.SET_DATA, r.SetDataRequest(f"{base}/k0", b"x", -1).encode()))
        for link in links:
            link.call(b"", 1)
        latencies.append(time.perf_counter() - before)
        setter.call(b"", 1)
    return sum(latencies), latencies, 0


def main() -> None:
    """Put the load on the server, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("op")
    for flag, name, default in (("-c", "conns", 1), ("-d", "depth", 1), ("-n", "total", 10_000), ("-s", "size", 100)):
        parser.add_argument(flag, dest=name, type=int, default=default)
    parser.add_argument("-k", dest="keys", type=int, default=100)
    parser.add_argument("-w", dest="watchers", type=int, default=100)
    o = parser.parse_args()
    base, payload = f"/pyload-{os.getpid()}-{time.time_ns()}", b"x" * o.size
    setup = Link(o.port)
    setup.call(request(OpCode.CREATE, r.CreateRequest(base, b"", OPEN_ACL_UNSAFE, 0).encode()), 1)
    for k in range(o.keys):
        setup.call(request(OpCode.CREATE, r.CreateRequest(f"{base}/k{k}", payload, OPEN_ACL_UNSAFE, 0).encode()), 1)
    done = o.total
    if o.op == "connect":
        seconds, latencies, errors = measure_sessions(o.port, o.total)
    elif o.op == "fanout":
        seconds, latencies, errors = measure_fan_out(o.port, base, o.watchers, o.total)
        done = o.total * o.watchers
    else:
        links = [Link(o.port) for _ in range(o.conns)]
        if o.op == "delete":
            make = request_builder("create", base, o.keys, payload)
            send_windows(links, [windows(make, at, o.conns, o.total, 64) for at in range(o.conns)])
        make = request_builder(o.op, base, o.keys, payload)
        seconds, latencies, errors = send_windows(
            links, [windows(make, at, o.conns, o.total, o.depth) for at in range(o.conns)]
        )
    ordered = sorted(latencies) or [0.0]
    p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    report = {"op": o.op, "conns": o.conns, "depth": o.depth, "total": o.total, "seconds": round(seconds, 4)}
    report |= {"ops_per_s": round(done / seconds), "p50_us": round(p50 * 1e6), "p99_us": round(p99 * 1e6)}
    report |= {"max_us": round(ordered[-1] * 1e6), "errors": errors}
    print(json.dumps(report))
    raise SystemExit(1 if errors else 0)


if __name__ == "__main__":
    main()
