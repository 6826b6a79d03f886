"""Minutes of broken bytes over real sockets against a real daemon, while a well-behaved client keeps working.

Several attackers run the actions of :func:`fuzz.inprocess.action_stream` on sockets. At the same time a neighbour sets
and gets its own node, and must receive every correct answer within a second. A janitor with all permissions
periodically deletes the attackers' nodes, which makes the daemon's memory comparable. At the end the daemon must be
alive, must have logged no error, must use no more memory than before, and must stop on SIGTERM::

    python -m fuzz.sockets [--minutes 5] [--seed 1]
"""

from __future__ import annotations

import argparse
import re
import socket
import sys
import tempfile
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from random import Random, SystemRandom
from typing import IO, Final

from fuzz import frames
from fuzz.inprocess import EPOCHS_PER_POOL, MAX_GROWTH_BYTES, POOL_FRAMES, action_stream
from support.daemon import DaemonProcess
from support.waiting import DEADLINE_S
from support.wire import RESET_ON_CLOSE, Wire

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.handshake import ConnectResponse
from zoolet.protocol.operations import OpCode

ATTACKERS: Final = 4
SOCKETS: Final = 5
REPLY_TIMEOUT_S: Final = 1.0
"""Limit for the neighbour's answers, in seconds."""
SWEEP_S: Final = 2.0
"""Seconds between two sweeps of the janitor."""
NEIGHBOUR_NODE: Final = "/neighbour"
PERMANENT_NODES: Final = frozenset({NEIGHBOUR_NODE, "/zookeeper", "/zookeeper/config", "/zookeeper/quota"})


def open_plain_session(address: tuple[str, int], seconds: float) -> Wire:
    """Open a session of a client that waits up to *seconds* for each answer."""
    return Wire(address[1], wait=seconds).welcomed()


class Siege:
    """State shared by the threads.

    Args:
        address: Address of the daemon.
        seed: Seed of the attackers' choices.
    """

    def __init__(self, address: tuple[str, int], seed: int) -> None:
        self.address = address
        self.seed = seed
        self.over = threading.Event()
        self.found: list[str] = []
        self.sent = self.received = self.connections = 0
        self.pairs = 0
        self.slowest = 0.0
        self.session = 0  # the newest known session of the daemon

    def finding(self, what: str) -> None:
        """Record and print a finding."""
        self.found.append(what)
        print(f"FOUND: {what}", flush=True)


class Attacker(threading.Thread):
    """A thread that sends broken frames on several sockets.

    Args:
        siege: State shared by the threads.
        number: Number of this attacker.
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
            pool = frames.make_pool(rng, POOL_FRAMES // 4)
            for number, (kind, *rest) in enumerate(action_stream(rng, pool, lambda: siege.session - rng.randrange(12))):
                if siege.over.is_set() or number > EPOCHS_PER_POOL * 500:
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
            if self.rng.random() < 0.9:  # sometimes do not read for a while
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
                open_.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            elif how < 0.6:
                open_.shutdown(socket.SHUT_WR)
        open_.close()


def neighbour(siege: Siege, client: Wire) -> None:
    """Set and get the neighbour's node, and check every answer, until the siege is over."""
    number = 0
    while not siege.over.is_set():
        number += 1
        began = time.monotonic()
        data = b"%d" % number
        try:
            first = client.set_data(NEIGHBOUR_NODE, data)
            second, body = client.ask(OpCode.GET_DATA, r.GetDataRequest(NEIGHBOUR_NODE, False)), client.body
            if first or second or r.GetDataResponse.decode(body).data != data:
                siege.finding(f"pair {number} of the neighbour: errors {first} and {second}, body {body!r}")
        except (OSError, EOFError, ValueError) as error:
            if siege.over.is_set():
                break
            siege.finding(f"pair {number} of the neighbour, after {time.monotonic() - began:.1f} s: {error!r}")
            client.close()
            client = open_plain_session(siege.address, 20 * REPLY_TIMEOUT_S)
            client.wait = REPLY_TIMEOUT_S
        siege.pairs += 1
        siege.slowest = max(siege.slowest, time.monotonic() - began)
        time.sleep(0.005)
    client.close()


def sweep(address: tuple[str, int]) -> int:
    """Delete all nodes except the neighbour's; return their number."""
    with closing(open_plain_session(address, 20.0)) as client:
        client.ask(OpCode.AUTH, r.AuthPacket(0, "digest", frames.SUPER), xid=-4)
        client.ask(OpCode.SET_ACL, r.SetACLRequest("/", OPEN_ACL_UNSAFE, -1))
        pending, found = ["/"], []
        while pending:
            path = pending.pop()
            found.append(path)
            if not client.ask(OpCode.GET_CHILDREN, r.GetChildrenRequest(path, False)):
                names = r.GetChildrenResponse.decode(client.body).children
                pending += [f"{path.rstrip('/')}/{name}" for name in names]
        for path in reversed(found):
            if path not in PERMANENT_NODES and path != "/":
                client.delete(path)
        client.ask(OpCode.CLOSE_SESSION)
    return len(found)


def janitor(siege: Siege) -> None:
    """Delete the attackers' nodes periodically until the siege is over."""
    while not siege.over.wait(SWEEP_S):
        with suppress(OSError, EOFError, ValueError):  # besiege() detects a dead daemon
            sweep(siege.address)


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes, or 0 if the system does not report it."""
    status = Path(f"/proc/{pid}/statm")
    return int(status.read_text().split()[1]) * 4096 if status.exists() else 0


def daemon_options(folder: Path) -> list[str]:
    """Return the options of the daemon, which enable every reachable feature."""
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
    """Attack a daemon for *seconds*; return the results."""
    siege = Siege((daemon.host, daemon.port), seed)
    client = open_plain_session(siege.address, REPLY_TIMEOUT_S)
    client.create(NEIGHBOUR_NODE)
    for _ in range(20):  # attackers resume the newest sessions; these protect the neighbour's
        other = open_plain_session(siege.address, REPLY_TIMEOUT_S)
        siege.session = other.id
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
            early = resident_bytes(daemon.process.pid)
        if now - shown >= 10:
            shown = now
            print(
                f"{now - began:>5.0f} s  {siege.sent >> 20:,} MiB sent  {siege.received >> 20:,} MiB received  "
                f"{siege.connections:,} connections  {siege.pairs:,} pairs, slowest {siege.slowest * 1000:.0f} ms  "
                f"{resident_bytes(daemon.process.pid) >> 20} MB  {len(siege.found)} found",
                flush=True,
            )
    siege.over.set()
    for thread in threads:
        thread.join(DEADLINE_S)
    if daemon.process.poll() is not None:
        siege.finding(f"the daemon has ended with exit code {daemon.process.returncode}")
        return siege
    left = sweep(siege.address)
    late = resident_bytes(daemon.process.pid)
    print(
        f"{siege.sent >> 20:,} MiB on {siege.connections:,} connections, {siege.pairs:,} pairs of the neighbour, "
        f"slowest {siege.slowest * 1000:.0f} ms; memory {early >> 20} MB at a tenth, {late >> 20} MB at the end; "
        f"{left} nodes at the end",
        flush=True,
    )
    if late - early > MAX_GROWTH_BYTES:
        siege.finding(f"memory grew from {early >> 20} to {late >> 20} MB")
    if siege.pairs < seconds:
        siege.finding(f"the neighbour had only {siege.pairs} pairs answered")
    return siege


def defect_lines(log: IO[bytes]) -> list[str]:
    """Return the lines of a log that indicate a defect."""
    log.seek(0)
    return [
        line.decode("utf-8", "replace").rstrip()
        for line in log
        if re.search(rb"^\S+ \S+ (ERROR|CRITICAL) |^Traceback|^\w*(Error|Exception)\b|Warning: ", line)
    ]


def fuzz(seed: int, minutes: float) -> int:
    """Start a daemon, attack it, and stop it. Return the number of findings."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        found = 0
        try:
            with DaemonProcess(*daemon_options(Path(folder)), stderr=log) as daemon:
                found += len(besiege(daemon, seed, minutes * 60).found)
        except AssertionError as error:  # wrong exit code
            print(f"FOUND: {error}")
            found += 1
        logged = defect_lines(log)
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
