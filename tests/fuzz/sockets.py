"""Minutes of broken bytes over real sockets against a real daemon, while a well-behaved client goes on working.

Several attackers do what :func:`fuzz.inprocess.script` says, on sockets. Beside them a neighbour sets and gets its own
node, and every answer has to be right and there within a second. A janitor, who may do everything, deletes what the
attackers have made from time to time, so that the daemon's memory can be compared with what it was. At the end the
daemon must be alive, must have logged no error, must have as much memory as before, and must stop on SIGTERM::

    python -m fuzz.sockets [--minutes 5] [--seed 1]
"""

from __future__ import annotations

import argparse
import re
import socket
import struct
import sys
import tempfile
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from random import Random, SystemRandom
from typing import IO, Final

from fuzz import frames
from fuzz.inprocess import GROWTH, POOL, RENEWED, script
from support.daemon import DaemonProcess

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import Record
from zoolet.protocol.framing import Frames
from zoolet.protocol.handshake import ConnectResponse
from zoolet.protocol.operations import OpCode

ATTACKERS: Final = 4
SOCKETS: Final = 5
REPLY_TIMEOUT_S: Final = 1.0
"""Seconds in which the neighbour has to have its answer."""
SWEEP_S: Final = 2.0
"""Seconds between two turns of the janitor."""
OURS: Final = "/neighbour"
OURS_AND_SYSTEM: Final = frozenset({OURS, "/zookeeper", "/zookeeper/config", "/zookeeper/quota"})
_LINGER_NOT: Final = struct.pack("ii", 1, 0)  # a close that resets


class Plain:
    """A client that waits for each answer.

    Args:
        address: Host and port.
        seconds: How long it waits.
    """

    def __init__(self, address: tuple[str, int], seconds: float) -> None:
        self.socket = socket.create_connection(address, seconds)
        self.socket.settimeout(seconds)
        self._frames = Frames(limit=None)
        self._payloads: list[bytes] = []
        self._xid = 0
        try:
            self.socket.sendall(frames.HELLO)
            self.session = ConnectResponse.decode(self._payload()).session_id
        except BaseException:
            self.socket.close()
            raise

    def _payload(self) -> bytes:
        while not self._payloads:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._payloads += self._frames.feed(data)
        return self._payloads.pop(0)

    def call(self, op: int, request: Record, xid: int | None = None) -> tuple[int, bytes]:
        """Send a request; return the error code and the body of its answer.

        Raises:
            OSError: The connection is lost, or there was no answer in time.
            ValueError: It is the answer to another request.
        """
        self._xid += 1
        xid = self._xid if xid is None else xid
        self.socket.sendall(frames.header(xid, op, request.encode()))
        while True:
            payload = self._payload()
            answer = r.ReplyHeader.decode(payload)
            if answer.xid == xid:
                return answer.err, payload[16:]
            if answer.xid != -1:
                raise ValueError(f"request {xid} was answered with {answer.xid}")

    def close(self) -> None:
        """Close the socket; the session lives on."""
        self.socket.close()


class Siege:
    """What the threads share.

    Args:
        address: The daemon's.
        seed: Where the attackers' choices come from.
    """

    def __init__(self, address: tuple[str, int], seed: int) -> None:
        self.address = address
        self.seed = seed
        self.over = threading.Event()
        self.found: list[str] = []
        self.sent = self.received = self.connections = 0
        self.pairs = 0
        self.slowest = 0.0
        self.session = 0  # the newest that the daemon has opened, as far as is known here

    def finding(self, what: str) -> None:
        """Keep and show what must not be."""
        self.found.append(what)
        print(f"FOUND: {what}", flush=True)


class Attacker(threading.Thread):
    """Sends what no client sends, on several sockets.

    Args:
        siege: What the threads share.
        number: Which of the attackers it is.
    """

    def __init__(self, siege: Siege, number: int) -> None:
        super().__init__(name=f"attacker {number}", daemon=True)
        self.siege = siege
        self.number = number
        self.rng = Random(f"{siege.seed}:attacker:{number}")
        self.sockets: list[socket.socket | None] = [None] * SOCKETS

    def run(self) -> None:
        """Attack until the siege is over."""
        siege, rng = self.siege, self.rng
        while not siege.over.is_set():
            pool = frames.pool(rng, POOL // 4)
            for number, (kind, *rest) in enumerate(script(rng, pool, lambda: siege.session - rng.randrange(12))):
                if siege.over.is_set() or number > RENEWED * 500:
                    break
                if kind in ("data", "hello"):
                    self._send(rest[0] % SOCKETS, rest[1], fresh=kind == "hello")
                elif kind == "drop":
                    self._drop(rest[0] % SOCKETS)
                else:
                    time.sleep(0.001)
        for slot in range(SOCKETS):
            self._drop(slot)

    def _send(self, slot: int, data: bytes, *, fresh: bool) -> None:
        siege = self.siege
        try:
            if fresh:
                self._drop(slot)
            open_ = self.sockets[slot]
            if open_ is None:
                open_ = self.sockets[slot] = socket.create_connection(siege.address, REPLY_TIMEOUT_S)
                siege.connections += 1
                if not fresh:
                    open_.sendall(frames.HELLO)
                    self._greeted(open_.recv(1 << 16))
            open_.settimeout(REPLY_TIMEOUT_S)
            open_.sendall(data)
            siege.sent += len(data)
            if self.rng.random() < 0.9:  # now and then it does not read for a while
                self._read(slot, open_)
        except OSError:
            self._drop(slot)

    def _greeted(self, answer: bytes) -> None:
        if len(answer) >= 40:
            self.siege.session = max(self.siege.session, ConnectResponse.decode(answer, 4).session_id)

    def _read(self, slot: int, open_: socket.socket) -> None:
        open_.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                data = open_.recv(1 << 18)
                if not data:
                    self._drop(slot)
                    return
                self.siege.received += len(data)

    def _drop(self, slot: int) -> None:
        open_, self.sockets[slot] = self.sockets[slot], None
        if open_ is None:
            return
        with suppress(OSError):
            how = self.rng.random()
            if how < 0.3:
                open_.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
            elif how < 0.6:
                open_.shutdown(socket.SHUT_WR)
        open_.close()


def neighbour(siege: Siege, client: Plain) -> None:
    """Set and get, and look at every answer."""
    number = 0
    while not siege.over.is_set():
        number += 1
        began = time.monotonic()
        data = b"%d" % number
        try:
            first, _ = client.call(OpCode.SET_DATA, r.SetDataRequest(OURS, data, -1))
            second, body = client.call(OpCode.GET_DATA, r.GetDataRequest(OURS, False))
            if first or second or r.GetDataResponse.decode(body).data != data:
                siege.finding(f"pair {number} of the neighbour: errors {first} and {second}, body {body!r}")
        except (OSError, ValueError) as error:
            if siege.over.is_set():
                break
            siege.finding(f"pair {number} of the neighbour, after {time.monotonic() - began:.1f} s: {error!r}")
            client.close()
            client = Plain(siege.address, 20 * REPLY_TIMEOUT_S)
            client.socket.settimeout(REPLY_TIMEOUT_S)
        siege.pairs += 1
        siege.slowest = max(siege.slowest, time.monotonic() - began)
        time.sleep(0.005)
    client.close()


def sweep(address: tuple[str, int]) -> int:
    """Delete all nodes but our own; return how many there were."""
    with closing(Plain(address, 20.0)) as client:
        client.call(OpCode.AUTH, r.AuthPacket(0, "digest", frames.SUPER), xid=-4)
        client.call(OpCode.SET_ACL, r.SetACLRequest("/", OPEN_ACL_UNSAFE, -1))
        pending, found = ["/"], []
        while pending:
            path = pending.pop()
            found.append(path)
            err, body = client.call(OpCode.GET_CHILDREN, r.GetChildrenRequest(path, False))
            if not err:
                names = r.GetChildrenResponse.decode(body).children
                pending += [f"{path.rstrip('/')}/{name}" for name in names]
        for path in reversed(found):
            if path not in OURS_AND_SYSTEM and path != "/":
                client.call(OpCode.DELETE, r.DeleteRequest(path, -1))
        client.call(OpCode.CLOSE_SESSION, r.EmptyRequest())
    return len(found)


def janitor(siege: Siege) -> None:
    """Sweep from time to time."""
    while not siege.over.wait(SWEEP_S):
        with suppress(OSError, ValueError):  # the daemon's end is found elsewhere
            sweep(siege.address)


def resident(pid: int) -> int:
    """Return the bytes of memory that a process has; 0 where the system does not tell."""
    status = Path(f"/proc/{pid}/statm")
    return int(status.read_text().split()[1]) * 4096 if status.exists() else 0


def options(folder: Path) -> list[str]:
    """Return the settings of the daemon: everything that can be reached is switched on."""
    users = "\n".join(f'user_{user}="{password}"' for user, password in frames.SASL_USERS.items())
    jaas = folder / "jaas.conf"
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    jaas.write_text(f"Server {{\n{module} required\n{users};\n}};\n")
    return [
        f"-Dzookeeper.DigestAuthenticationProvider.superDigest={frames.SUPER_DIGEST}",
        f"-Djava.security.auth.login.config={jaas}",
        "-Dzookeeper.tickTime=200",
        "-Dzookeeper.maxClientCnxns=0",
        "-Dzookeeper.4lw.commands.whitelist=*",
        "-Dzookeeper.reconfigEnabled=true",
        "-Dzookeeper.enforceQuota=true",
        "-Dzookeeper.nio.sessionlessCnxnTimeout=1000",
        "-Dzookeeper.znode.container.checkIntervalMs=500",
    ]


def besiege(daemon: DaemonProcess, seed: int, seconds: float) -> Siege:
    """Attack a daemon for so long; return what was seen."""
    siege = Siege((daemon.host, daemon.port), seed)
    client = Plain(siege.address, REPLY_TIMEOUT_S)
    client.call(OpCode.CREATE, r.CreateRequest(OURS, b"", OPEN_ACL_UNSAFE, 0))
    for _ in range(20):  # attackers resume the newest sessions, and the neighbour's is not to be among them
        other = Plain(siege.address, REPLY_TIMEOUT_S)
        siege.session = other.session
        other.close()
    threads = [
        *(Attacker(siege, number) for number in range(ATTACKERS)),
        threading.Thread(target=neighbour, args=(siege, client), daemon=True),
        threading.Thread(target=janitor, args=(siege,), daemon=True),
    ]
    began = shown = time.monotonic()
    early = 0
    for thread in threads:
        thread.start()
    while (now := time.monotonic()) < began + seconds and daemon.process.poll() is None:
        time.sleep(min(0.2, seconds / 20))
        if not early and now >= began + seconds / 10:
            early = resident(daemon.process.pid)
        if now - shown >= 10:
            shown = now
            print(
                f"{now - began:>5.0f} s  {siege.sent >> 20:,} MiB sent  {siege.received >> 20:,} MiB received  "
                f"{siege.connections:,} connections  {siege.pairs:,} pairs, slowest {siege.slowest * 1000:.0f} ms  "
                f"{resident(daemon.process.pid) >> 20} MB  {len(siege.found)} found",
                flush=True,
            )
    siege.over.set()
    for thread in threads:
        thread.join(30.0)
    if daemon.process.poll() is not None:
        siege.finding(f"the daemon has ended with exit code {daemon.process.returncode}")
        return siege
    left = sweep(siege.address)
    late = resident(daemon.process.pid)
    print(
        f"{siege.sent >> 20:,} MiB on {siege.connections:,} connections, {siege.pairs:,} pairs of the neighbour, "
        f"slowest {siege.slowest * 1000:.0f} ms; memory {early >> 20} MB at a tenth, {late >> 20} MB at the end; "
        f"{left} nodes at the end",
        flush=True,
    )
    if late - early > GROWTH:
        siege.finding(f"memory grew from {early >> 20} to {late >> 20} MB")
    if siege.pairs < seconds:
        siege.finding(f"the neighbour had only {siege.pairs} pairs answered")
    return siege


def errors(log: IO[bytes]) -> list[str]:
    """Return the lines of a log that tell of a defect."""
    log.seek(0)
    return [
        line.decode("utf-8", "replace").rstrip()
        for line in log
        if re.search(rb"^\S+ \S+ (ERROR|CRITICAL) |^Traceback|^\w*(Error|Exception)\b|Warning: ", line)
    ]


def fuzz(seed: int, minutes: float) -> int:
    """Start a daemon, attack it, stop it; return how many findings there were."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        found = 0
        try:
            with DaemonProcess(*options(Path(folder)), stderr=log) as daemon:
                found += len(besiege(daemon, seed, minutes * 60).found)
        except AssertionError as error:  # of the exit code
            print(f"FOUND: {error}")
            found += 1
        logged = errors(log)
        for line in logged[:20]:
            print(f"FOUND in the log: {line}")
        return found + len(logged)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Fuzz a daemon over sockets.")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    print(f"over sockets: seed {seed}, {arguments.minutes:g} minutes", flush=True)
    found = fuzz(seed, arguments.minutes)
    print(f"{found} findings")
    return found > 0


if __name__ == "__main__":
    sys.exit(main())
