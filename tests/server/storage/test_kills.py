"""A daemon that is killed at random moments, and sometimes stopped: acknowledged writes and sessions survive.

``ZOOLET_KILLS=1000`` selects a long run, where Apache 3.8.0 and 3.9.4 read the files after each kill; ``make kills``
sets it.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final

import pytest
from support.apache import free_port
from support.apache_loader import ApacheLoader
from support.daemon import SERVE, DaemonProcess
from support.stored import recover_state
from support.waiting import DEADLINE_S

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.enums import CreateMode
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode

KILLS: Final = int(os.environ.get("ZOOLET_KILLS", "4"))
WRITERS: Final = 4
DEPTH: Final = 8
"""Number of writes in flight of one writer."""
ALIVE: Final = 50


def request(writer: int, number: int) -> tuple[OpCode, r.CreateRequest | r.DeleteRequest]:
    """Return write *number*: in turn a create, and a delete of the node that was created ALIVE creates earlier."""
    if number % 2 and number // 2 >= ALIVE:
        return OpCode.DELETE, r.DeleteRequest(f"/w{writer}-{number // 2 - ALIVE}", -1)
    path = f"/w{writer}-{number // 2}" + "x" * (number % 2)
    return OpCode.CREATE, r.CreateRequest(path, bytes(100), OPEN_ACL_UNSAFE, CreateMode.PERSISTENT)


def nodes_after(writer: int, count: int) -> set[str]:
    """Return the nodes that exist after the first *count* writes."""
    early = {f"/w{writer}-{number}x" for number in range(min(count // 2, ALIVE))}
    deleted = max(0, count // 2 - ALIVE)
    return early | {f"/w{writer}-{number}" for number in range(deleted, (count + 1) // 2)}


class Writer(threading.Thread):
    """A client that makes a sequence of writes, several in flight, in one session that survives the servers.

    Args:
        number: Number of the writer, which is part of its paths.
        port: The port of all servers.
    """

    def __init__(self, number: int, port: int) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.port = port
        self.session = 0
        self.password = bytes(16)
        self.sent = self.acknowledged = 0
        """The number of sent writes, and of acknowledged writes."""
        self.most = 0
        """The number of writes that may have been executed."""
        self.expired = 0
        self.stopping = False
        self.unexpected: list[str] = []

    def run(self) -> None:
        """Write until ``stopping``."""
        while not self.stopping:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S) as link:
                    self._serve(link)
            except (OSError, EOFError, struct.error):
                time.sleep(0.005)

    def _serve(self, link: socket.socket) -> None:
        with link.makefile("rb") as stream:
            self._write(link, stream)

    def _write(self, link: socket.socket, stream: BinaryIO) -> None:
        link.sendall(frame(ConnectRequest(0, 30_000, self.session, self.password, False).encode()))
        answer = ConnectResponse.decode(self._frame(stream))
        if not answer.session_id:
            self.expired += 1
            self.session = 0
            return
        self.session, self.password = answer.session_id, answer.password or b""
        if not self.acknowledged:
            mine = r.CreateRequest(f"/mine{self.number}", b"", OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL)
            link.sendall(frame(r.RequestHeader(1, OpCode.CREATE).encode() + mine.encode()))
            self._frame(stream)
        self.sent = self.acknowledged  # requests in flight are sent again
        while not self.stopping:
            while self.sent < self.acknowledged + DEPTH:
                op, body = request(self.number, self.sent)
                self.sent += 1
                self.most = max(self.most, self.sent)
                link.sendall(frame(r.RequestHeader(self.sent, op).encode() + body.encode()))
            header, _ = r.ReplyHeader.read_from(self._frame(stream), 0, 16)
            if header.err not in (0, -101, -110):  # a repeated write may have been executed before the kill
                self.unexpected.append(f"/w{self.number}-{self.acknowledged}: {header.err}")
            self.acknowledged += 1

    def _frame(self, stream: BinaryIO) -> bytes:
        head = stream.read(4)
        if len(head) < 4:
            raise EOFError
        (length,) = struct.unpack(">i", head)
        body = stream.read(length)
        if len(body) < length:
            raise EOFError
        return body


@pytest.mark.slow
@pytest.mark.parametrize("releases", [("3.8", "3.9")] if KILLS > 4 else [()], ids=lambda releases: "+".join(releases))
def test_killed_daemon_loses_no_acknowledged_write(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, releases: tuple[str, ...]
) -> None:
    with ExitStack() as stack:
        loaders = [stack.enter_context(ApacheLoader(release)) for release in releases]
        _kill_again_and_again(tmp_path, tmp_path_factory.mktemp("copies"), loaders)


def _kill_again_and_again(tmp_path: Path, work: Path, loaders: list[ApacheLoader]) -> None:
    port = free_port()
    rng = random.Random(1)
    writers = [Writer(number, port) for number in range(WRITERS)]
    options = ("--data-dir", str(tmp_path), "-DsnapCount=300", "-DpreAllocSize=256")
    for turn in range(KILLS * 5 // 4):
        server = DaemonProcess(*options)
        server.command = [*SERVE, "--port", str(port), *options]
        server.process = server.start()
        if not turn:
            for writer in writers:
                writer.start()
        time.sleep(rng.uniform(0, 0.3))
        acknowledged = [writer.acknowledged for writer in writers]
        server.process.send_signal(signal.SIGTERM if turn % 5 == 4 else signal.SIGKILL)
        server.process.communicate()
        engine = recover_state(tmp_path)
        for loader in loaders:  # Apache starts with the remaining files, and sees the same nodes
            assert loader.load(tmp_path, work) == sum(1 for _ in engine.tree.walk())
        for writer, count in zip(writers, acknowledged, strict=True):
            names = {path for path, _ in engine.tree.walk() if path.startswith(f"/w{writer.number}-")}
            assert any(names == nodes_after(writer.number, done) for done in range(count, writer.most + 1))
            assert not count or engine.tree.get(f"/mine{writer.number}") is not None
    for writer in writers:
        writer.stopping = True
    for writer in writers:
        writer.join(DEADLINE_S)
    assert [writer.expired for writer in writers] == [0] * WRITERS
    assert [error for writer in writers for error in writer.unexpected] == []
    assert all(writer.acknowledged for writer in writers)
