"""Pauses of the server's process: requests of clients that have left, and the expiry of sessions."""

from __future__ import annotations

import selectors
import signal
import socket
import time
from contextlib import ExitStack, suppress

from adversary.case import EPHEMERAL_FLAG, Report, attack
from adversary.client import HostilePeer
from adversary.frames import creates, encode_acl, request
from adversary.target import Target
from zoolet.protocol.codec import int_at
from zoolet.protocol.enums import Perm
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest
from zoolet.protocol.operations import OpCode
from zoolet.protocol.records import (
    ExistsRequest,
    GetChildrenRequest,
)


@attack("1-reset-before-accept")
def reset_before_accept(target: Target, report: Report) -> None:
    """Blind writes from 127.0.0.2, reset before they are accepted, to a node that only 127.0.0.1 may write to."""
    attempts, chunk = 1000, 40
    with target.peer() as owner:
        owner.create("/guarded", acl=encode_acl([(Perm.ALL, "ip", "127.0.0.1")]))
        owner.create("/open")
        with target.under_attack(neighbour=False):
            for first in range(0, attempts, chunk):
                target.signal(signal.SIGSTOP)
                try:
                    for number in range(first, first + chunk):
                        peer = target.peer(source="127.0.0.2", session=False)
                        hello = frame(ConnectRequest().encode())
                        peer.link.sendall(hello + creates([f"/open/{number}", f"/guarded/{number}"]))
                        peer.reset()
                finally:
                    target.signal(signal.SIGCONT)
                with target.peer():  # connections are accepted in order, so all earlier ones were accepted
                    pass
            time.sleep(0.2)
        count = {}
        for path in ("/guarded", "/open"):
            body = owner.call(OpCode.GET_CHILDREN, GetChildrenRequest(path, False))[1]
            count[path] = int_at(body)[0]
    report.got = f"{count['/guarded']} of {attempts} guarded, {count['/open']} of {attempts} open writes"
    report.require(count["/guarded"] == 0, "a blind write took another address")


def keep_pinging(peers: list[HostilePeer], until_s: float, every: float) -> None:
    """Ping on all connections until a time, and read the answers. Skip connections that the server closed."""
    ping = request(OpCode.PING, b"", -2)
    with selectors.DefaultSelector() as selector:
        for peer in peers:
            peer.link.setblocking(False)
            selector.register(peer.link, selectors.EVENT_READ)
        due = time.monotonic()
        while (now := time.monotonic()) < until_s:
            if now >= due:
                due += every
                for peer in peers:
                    with suppress(OSError):
                        peer.link.send(ping)
            for key, _ in selector.select(max(0.0, min(due, until_s) - time.monotonic())):
                link = key.fileobj
                assert isinstance(link, socket.socket)
                try:
                    ended = not link.recv(65536)
                except BlockingIOError:
                    continue
                except OSError:
                    ended = True
                if ended:
                    selector.unregister(link)


@attack("2-stall")
def stall(target: Target, report: Report) -> None:
    """The server is stopped for 9 s. Sessions of 4 s survive if their clients keep pinging; the others expire."""
    many, stopped_s, timeout_s, tick_s = 50, 9.0, 4.0, 2.0
    with ExitStack() as stack:
        observer = stack.enter_context(target.peer())
        pinging = [stack.enter_context(target.peer(timeout_ms=4000)) for _ in range(many)]
        for number, peer in enumerate(pinging):
            peer.create(f"/pinging{number}", flags=EPHEMERAL_FLAG)
        keep_pinging(pinging, time.monotonic() + 3, 1.3)
        silent = [stack.enter_context(target.peer(timeout_ms=4000)) for _ in range(many)]
        for number, peer in enumerate(silent):
            peer.create(f"/silent{number}", flags=EPHEMERAL_FLAG)

        def left(prefix: str) -> int:
            names = [f"/{prefix}{number}" for number in range(many)]
            return sum(observer.call(OpCode.EXISTS, ExistsRequest(name, False))[0] == 0 for name in names)

        with target.under_attack(neighbour=False):
            target.signal(signal.SIGSTOP)
            try:
                keep_pinging(pinging, time.monotonic() + stopped_s, 1.3)
            finally:
                target.signal(signal.SIGCONT)
            keep_pinging(pinging, time.monotonic() + 0.5, 1.3)
            at_once = left("pinging")
            keep_pinging(pinging, time.monotonic() + timeout_s + tick_s, 1.3)
        alive = sum(not peer.closed() for peer in pinging)
        nodes, dead = left("pinging"), left("silent")
    report.got = f"{at_once} then {alive} of {many} alive, {nodes} ephemerals; {dead} of {many} dead ones still there"
    report.require(alive == nodes == many, f"{many - min(alive, nodes)} sessions were expired though they pinged")
    report.require(dead == 0, f"{dead} dead sessions were not expired within timeout + tick")
