"""The admin port: endless, numerous and expensive requests, and answers that the client does not read.

The neighbour is a client of the ZooKeeper port. Requests on the admin port must not affect its latency.
"""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, suppress
from typing import Final
from urllib.parse import quote
from urllib.request import urlopen

from adversary.case import EPHEMERAL_FLAG, MAX_NEIGHBOUR_MS, MAX_RSS_MB, Report, attack
from adversary.floods import populate
from adversary.frames import creates, exists
from adversary.target import Target

ADMIN_OPTIONS: Final = ["--admin-port", "0"]
HOST_HEADER: Final = b"Host: 127.0.0.1\r\n\r\n"


def connect(stack: ExitStack, port: int) -> socket.socket:
    """Connect to a port of the server. *stack* closes the connection."""
    return stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))


def get_status_line(port: int, path: str) -> str:
    """Return the first line of an answer, or an empty text if no answer arrives within five seconds."""
    with suppress(OSError), ExitStack() as stack:
        link = connect(stack, port)
        link.sendall(f"GET {path} HTTP/1.1\r\nConnection: close\r\n".encode() + HOST_HEADER)
        return link.recv(4096).partition(b"\r\n")[0].decode()
    return ""


@attack("27-http-unfinished", latency_ms=MAX_NEIGHBOUR_MS, rss_mb=MAX_RSS_MB, options=ADMIN_OPTIONS, apache=False)
def http_unfinished(target: Target, report: Report) -> None:
    """300 connections send endless headers, byte by byte. Health checks must still be answered."""
    port = target.admin_port()
    with ExitStack() as stack, target.under_attack():
        links = []
        for _ in range(300):
            with suppress(OSError):
                links.append(connect(stack, port))
        until = time.monotonic() + 4
        while time.monotonic() < until:
            for link in links:
                with suppress(OSError):
                    link.sendall(b"GET /healthz HTTP/1.1\r\nX: y" if time.monotonic() % 1 < 0.5 else b"y")
            time.sleep(0.05)
        answer = get_status_line(port, "/healthz")
    report.got = f"{len(links)} of 300 connected; /healthz: {answer or 'no answer'}"
    report.require("200" in answer, "a health check was not answered")


@attack("27-http-pipelined", latency_ms=MAX_NEIGHBOUR_MS, rss_mb=MAX_RSS_MB, options=ADMIN_OPTIONS, apache=False)
def http_pipelined(target: Target, report: Report) -> None:
    """20 connections each pipeline 500 requests for all metrics, and read the answers."""
    answers = _flood(target, b"GET /metrics HTTP/1.1\r\n" + HOST_HEADER, 500)
    report.got = f"{answers / 1e6:.1f} MB of answers in 4 s"
    report.require(answers, "nothing was answered")


@attack("27-http-health", latency_ms=MAX_NEIGHBOUR_MS, rss_mb=MAX_RSS_MB, options=ADMIN_OPTIONS, apache=False)
def http_health(target: Target, report: Report) -> None:
    """20 connections each pipeline 2,000 health checks, and read the answers."""
    answers = _flood(target, b"GET /healthz HTTP/1.1\r\n" + HOST_HEADER, 2000)
    report.got = f"{answers / 1e6:.1f} MB of answers in 4 s"
    report.require(answers, "nothing was answered")


def _flood(target: Target, request: bytes, count: int) -> int:
    port, read = target.admin_port(), 0
    with ExitStack() as stack:
        links = [connect(stack, port) for _ in range(20)]
        with target.under_attack():
            for link in links:
                link.setblocking(False)
                with suppress(OSError):
                    link.send(request * count)
            until = time.monotonic() + 4
            while time.monotonic() < until:
                for link in links:
                    with suppress(OSError):
                        read += len(link.recv(1 << 18))
                time.sleep(0.002)
    return read


@attack("27-http-unread", latency_ms=MAX_NEIGHBOUR_MS, rss_mb=MAX_RSS_MB, options=ADMIN_OPTIONS, apache=False)
def http_unread(target: Target, report: Report) -> None:
    """64 connections each request all metrics 1,000 times, and read nothing."""
    port = target.admin_port()
    data = (b"GET /metrics HTTP/1.1\r\n" + HOST_HEADER) * 1000
    with ExitStack() as stack:
        links = [connect(stack, port) for _ in range(64)]
        with target.under_attack():
            for link in links:
                link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                link.settimeout(0.2)
                with suppress(OSError):
                    link.sendall(data)
            time.sleep(3)
    report.got = f"/healthz afterwards: {get_status_line(port, '/healthz')}"


@attack("27-http-bodies", latency_ms=MAX_NEIGHBOUR_MS, rss_mb=MAX_RSS_MB, options=ADMIN_OPTIONS, apache=False)
def http_bodies(target: Target, report: Report) -> None:
    """200 connections without the token announce a restore of 1 GB, and send as much of it as the server reads."""
    port = target.admin_port()
    head = b"POST /commands/restore HTTP/1.1\r\nContent-Length: 1000000000\r\n" + HOST_HEADER
    refused = 0
    with ExitStack() as stack, target.under_attack():
        for _ in range(200):
            link = connect(stack, port)
            with suppress(OSError):
                link.settimeout(0.05)
                link.sendall(head)
                for _ in range(20):
                    link.sendall(bytes(1 << 16))
            with suppress(OSError):
                refused += link.recv(64).startswith(b"HTTP/1.1 40")
    report.got = f"{refused} of 200 were answered with a refusal"
    report.require(refused > 100, "restores without the token were not refused")


@attack("28-console-searches", latency_ms=MAX_NEIGHBOUR_MS, options=ADMIN_OPTIONS, apache=False)
def console_searches(target: Target, report: Report) -> None:
    """32 searches through 200,000 nodes with a glob that is slow to match, and as many lists of locks."""
    stem = "/t/" + "a" * 60
    for first in range(0, 200_000, 20_000):
        parents = ["/t"] if first == 0 else []
        populate(target, [*parents, *(f"{stem}{number:06}" for number in range(first, first + 20_000))])
    port = target.admin_port()
    searches = b"GET /console/api/search?name=" + b"*a" * 60 + b"*b HTTP/1.1\r\n" + HOST_HEADER
    locks = b"GET /console/api/locks HTTP/1.1\r\n" + HOST_HEADER
    with ExitStack() as stack:
        links = [connect(stack, port) for _ in range(32)]
        with target.under_attack():
            for number, link in enumerate(links):
                link.sendall(searches if number % 2 else locks)
            time.sleep(5)
            answer = get_status_line(port, "/healthz")
    report.got = f"/healthz: {answer or 'no answer'}"
    report.require("200" in answer, "a health check was not answered")


MAX_ANSWER_BYTES: Final = (8 << 20) + 1_000
"""Maximum size of an answer of the console in bytes."""
LONG_TEXT: Final = "x" * 900_000
LOCK_NODE: Final = "/l/9c7e980a02c6499346ac9bf4e550501a__lock__"


@attack("28-console-content", cpu_ms=20.0, rss_mb=600, options=ADMIN_OPTIONS, apache=False)
def console_content(target: Target, report: Report) -> None:
    """Each request of the console, on a tree with long names, locks with large data, and nested msgpack and JSON."""
    nested = {
        "/m": b"\x91" * 900 + b"\xdc\xf9\xfc" + b"\x01" * 64_000,
        "/j": b"[" * 3_000 + b"1," * 20_000 + b"1" + b"]" * 3_000,
    }
    for path, data in nested.items():
        populate(target, [path], data)
    populate(target, ["/long", "/l"])
    port, sizes = target.admin_port(), {}
    with target.peer() as peer:
        names = [f"/long/{number:02}{LONG_TEXT}" for number in range(40)]
        peer.flood(creates(names, flags=EPHEMERAL_FLAG) + exists(names), 80, seconds=60)
        peer.flood(creates([LOCK_NODE] * 100, LONG_TEXT.encode(), flags=EPHEMERAL_FLAG | 2), 100, seconds=60)
        session = hex(peer.session_id)
        with target.under_attack():
            for page in (
                *("overview", "samples", "children?path=/long&limit=500", "children?path=/l&limit=500&sort=size"),
                *("node?path=/m&whole=1", "node?path=/j&whole=1", f"node?path={quote(LOCK_NODE)}0000000000&whole=1"),
                *("subtree?path=/", "sessions", f"session?id={session}", "locks", f"locks?session={session}"),
                *("history?limit=500", f"history?session={session}", f"search?text={'x' * 50}y"),
            ):
                with urlopen(f"http://127.0.0.1:{port}/console/api/{page}", timeout=60) as answer:
                    sizes[page] = len(answer.read())
    largest = max(sizes, key=sizes.__getitem__)
    report.got = f"{len(sizes)} answers; the largest: {sizes[largest] / 1e6:.1f} MB for {largest}"
    report.require(sizes[largest] <= MAX_ANSWER_BYTES, f"an answer is larger than {MAX_ANSWER_BYTES:,} bytes")
    report.require(min(sizes.values()) > 0, "an answer is empty")
