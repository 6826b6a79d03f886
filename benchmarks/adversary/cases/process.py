"""The process: its exit on SIGTERM, and its file descriptors."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, suppress

from adversary.case import MAX_NEIGHBOUR_MS, MEGABYTE, Report, attack
from adversary.client import HostilePeer
from adversary.floods import populate
from adversary.frames import request
from adversary.target import Target, until
from zoolet.protocol.operations import OpCode
from zoolet.protocol.records import (
    ExistsRequest,
    GetDataRequest,
)


def connect_unread_client(target: Target) -> HostilePeer:
    """Connect a client that does not read 20 MB of replies."""
    populate(target, ["/m"], bytes(MEGABYTE))
    peer = target.peer(receive_buffer=4096)
    peer.link.sendall(request(OpCode.GET_DATA, GetDataRequest("/m", False)) * 20)
    time.sleep(0.5)
    return peer


@attack("17-sigterm", apache=False)
def sigterm(target: Target, report: Report) -> None:
    """SIGTERM while a client does not read 20 MB of replies: exit code 0 within 5.5 s."""
    with connect_unread_client(target):
        started = time.monotonic()
        target.signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            target.process.wait(8)
        took = time.monotonic() - started
    report.got = f"exit code {target.process.poll()} after {took:.2f} s"
    report.require(target.process.poll() == 0, "no exit code 0")
    report.require(took < 5.5, "it took more than 5.5 s")


@attack("17-sigterm-twice", apache=False)
def sigterm_twice(target: Target, report: Report) -> None:
    """A second SIGTERM, half a second after the first, stops the process immediately."""
    with connect_unread_client(target):
        target.signal(signal.SIGTERM)
        time.sleep(0.5)
        first = target.alive()
        started = time.monotonic()
        if first:
            target.signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            target.process.wait(8)
        took = time.monotonic() - started
    waited = "it still ran after 0.5 s" if first else "the first was enough"
    report.got = f"{waited}; exit code {target.process.poll()} after {took:.2f} s"
    report.require(not target.alive() and took < 0.5, "the second SIGTERM did not end it at once")


@attack("18-descriptors", latency_ms=MAX_NEIGHBOUR_MS, descriptors=128, apache=False)
def descriptors(target: Target, report: Report) -> None:
    """200 connections to a process with 128 descriptors. Open connections keep working, and the server recovers."""
    with ExitStack() as stack:
        early = target.peer(session=False)
        peer = stack.enter_context(target.peer())
        with target.under_attack():
            links = []
            for _ in range(200):
                link = stack.enter_context(socket.socket())
                link.settimeout(1)
                with suppress(OSError):
                    link.connect(("127.0.0.1", target.port))
                links.append(link)
            time.sleep(0.5)
            busy = -target.cpu_s()
            time.sleep(2)
            busy += target.cpu_s()
            error, _ = peer.call(OpCode.EXISTS, ExistsRequest("/", False))
            early.link.settimeout(2)
            try:
                answer = target.four_letter_command(b"mntr", early.link)
            except OSError as problem:
                answer = repr(problem)
            for link in links:
                link.close()
            time.sleep(1.5)
            recovered = until(lambda: can_open_session(target), 10)
    lines = re.findall(r"^\d{4}-.*(?:descriptor|EMFILE|Too many open).*$", target.log(), re.MULTILINE)
    report.got = f"mntr {len(answer)} bytes, {len(lines)} log lines, {busy / 2:.0%} CPU meanwhile, "
    report.got += "no recovery" if recovered is None else "recovered"
    report.require(error == 0 and "zk_server_state" in answer, "a connection that was there did not work")
    report.require(lines, "no log line says that descriptors ran out")
    report.require(len(lines) < 50, "the log is flooded")
    report.require(recovered is not None, "it did not recover")


def can_open_session(target: Target) -> bool:
    """Return whether a session can be opened."""
    with suppress(OSError), target.peer() as peer:
        return peer.session_id != 0
    return False
