"""A daemon under many kinds of load for half an hour: does it grow, leak, stall, or answer wrongly?

    make soak                     30 minutes
    make soak MINUTES=5           less

The daemon has a data directory with snapshots and purge, TLS, an admin port and an audit log. The load consists of:

- 2,000 sessions, a tenth of them over TLS, each with an ephemeral node and a watch. Every second twenty are closed,
  five expire, five are reset, and as many new ones start.
- An open page of the console, which follows the overview and reads locks, sessions, history and metrics.
- Writes that fire watches.
- Ten clients that watch everything and do not read.
- Three clients that contend for a lock.
- Three clients behind a proxy, whose history is checked.

A neighbour in a separate process measures exists("/") every 5 ms, and how much CPU the server uses until its reply.

The exit code is 0 if all of these conditions hold, and otherwise 1:

- After the warm-up (a fifth of the time) resident memory grows by at most 2 %.
- At the end no more descriptors are open than at the start.
- After a tenth of the time the server uses at most 20 ms of CPU for each reply to the neighbour.
- The server disconnects no client, logs no traceback, and stops in time.
- The lock never has two holders, and its tokens grow.
- The histories are consistent.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final, Self
from urllib.request import urlopen

from adversary.frames import request
from adversary.neighbour import Neighbour
from adversary.target import Target
from kazoo.client import KazooClient
from support.histories import one
from support.tls_clients import CERTIFICATE_OPTIONS, client_context

from zoolet.client import Client
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.enums import AddWatchMode, CreateMode, Xid
from zoolet.protocol.errors import NoNodeError, ZooKeeperError
from zoolet.protocol.framing import Frames, frame
from zoolet.protocol.handshake import ConnectRequest
from zoolet.protocol.operations import OpCode
from zoolet.server.admin.descriptors import raise_limit
from zoolet.testing import Proxy, check

SESSIONS: Final = 2000
SESSION_TIMEOUT_MS: Final = 9000
WATCHED_NODES: Final = 200
"""Number of nodes that are watched and written."""
SLOW_READERS: Final = 10
CLOSED_PER_SECOND, EXPIRED_PER_SECOND, RESET_PER_SECOND = 20, 5, 5  # sessions that end per second in each way
TURNS_PER_SECOND: Final = CLOSED_PER_SECOND + EXPIRED_PER_SECOND + RESET_PER_SECOND
"""Number of turns per second, over which the load is spread: requests that arrive together would wait in line."""
MAX_OPENED_PER_TURN: Final = 20
"""Maximum number of sessions to open per turn."""
WRITES_PER_SECOND: Final = 100
"""Number of writes per second. A fifth are creates and deletes."""
WARM_UP_SHARE: Final = 0.2
"""Warm-up, as a share of the run time. Later, the memory in the first such share is compared with the last share.
Latencies count from the middle of the warm-up.
"""
MAX_GROWTH: Final = 0.02
MAX_REPLY_CPU_S: Final = 0.02
"""Maximum CPU time of the server until a reply to the neighbour, in seconds, without other programs."""
SESSIONS_PER_TLS_SESSION: Final = 10
"""Ratio of all sessions to sessions over TLS."""
PAGE_PATHS: Final = (
    "api/locks",
    "api/sessions?order=writes",
    "api/history?fold=1",
    "api/children?path=/soak/e&sort=time",
)
"""Paths below ``/console/`` that the open page reads every five seconds."""
PING: Final = frame(struct.pack(">ii", Xid.PING, OpCode.PING))
LINGER_RESET: Final = struct.pack("ii", 1, 0)


class Member(asyncio.Protocol):
    """A session of the crowd: it owns an ephemeral node, pings, and sets its watch again whenever the watch fires."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        self._crowd = crowd
        self._number = number
        self._frames = Frames(limit=None)
        self._opened = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open a session."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._crowd.members[self._number] = self
        transport.write(frame(ConnectRequest(0, SESSION_TIMEOUT_MS, 0, bytes(16), False).encode()))

    def data_received(self, data: bytes) -> None:
        """Create the node and the watch when the session is open, and set the watch again when it has fired."""
        for payload in self._frames.feed(data):
            if not self._opened:
                self._opened = True
                path = f"/soak/e/{self._number}"
                create = r.CreateRequest(path, b"here", OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL)
                self.send(request(OpCode.CREATE, create))
                self._watch()
            elif payload[:4] == b"\xff\xff\xff\xff":
                self._crowd.count["events"] += 1
                self._watch()
            else:
                self._crowd.count["replies"] += 1

    def _watch(self) -> None:
        self.send(request(OpCode.GET_DATA, r.GetDataRequest(f"/soak/w/{self._number % WATCHED_NODES}", True)))

    def send(self, data: bytes) -> None:
        """Send data, unless the connection is closed."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        """Report the loss to the crowd, which distinguishes losses from sessions that this program ended."""
        self._crowd.lost(self._number, self)


class Crowd:
    """Two thousand sessions. Every second, thirty are replaced, and a third of all sessions send a ping."""

    def __init__(self, port: int, tls_port: int, rng: Random) -> None:
        self._port = port
        self._tls_port = tls_port
        self._context = client_context()
        self._rng = rng
        self.members: dict[int, Member] = {}
        self._next = 0
        self._ended: set[Member] = set()
        self.count: Counter[str] = Counter()

    def lost(self, number: int, member: Member) -> None:
        """Remove a member whose connection is closed. Count it as lost unless this program closed the connection."""
        self.members.pop(number, None)
        if member not in self._ended:
            self.count["lost"] += 1
        self._ended.discard(member)

    async def run(self, until: float) -> None:
        """Open, end and ping sessions until a time."""
        loop, turn = asyncio.get_running_loop(), 0
        began = time.monotonic()
        while time.monotonic() < until:
            for _ in range(min(SESSIONS - len(self.members), MAX_OPENED_PER_TURN)):
                await self._open(loop)
            members = list(self.members.values())
            for member in members[turn % (3 * TURNS_PER_SECOND) :: 3 * TURNS_PER_SECOND]:
                member.send(PING)
            if len(members) == SESSIONS:
                self._churn(self._rng.choice(members), turn % TURNS_PER_SECOND)
            turn += 1
            await asyncio.sleep(max(began + turn / TURNS_PER_SECOND - time.monotonic(), 0.001))
        for member in list(self.members.values()):
            self._end(member, request(OpCode.CLOSE_SESSION, b""))
        await asyncio.sleep(1.0)

    async def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        number, self._next = self._next, self._next + 1
        self.count["opened"] += 1
        port, context = (self._port, None) if number % SESSIONS_PER_TLS_SESSION else (self._tls_port, self._context)
        await loop.create_connection(lambda: Member(self, number), "127.0.0.1", port, ssl=context)

    def _churn(self, member: Member, turn: int) -> None:
        """End a session. The turn within the second decides how: by a request, by expiry or by a reset."""
        if turn < CLOSED_PER_SECOND:
            self._end(member, request(OpCode.CLOSE_SESSION, b""))
        elif turn < CLOSED_PER_SECOND + EXPIRED_PER_SECOND:
            self._end(member)
        else:
            assert member.transport is not None
            link = member.transport.get_extra_info("socket")
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
            self._end(member, abort=True)

    def _end(self, member: Member, data: bytes = b"", *, abort: bool = False) -> None:
        self._ended.add(member)
        if member.transport is not None:
            member.send(data) if data else None
            member.transport.abort() if abort else member.transport.close()


async def write(hosts: str, until: float, count: Counter[str]) -> None:
    """Write the watched nodes, and create and delete other nodes."""
    async with Client(hosts, timeout=10.0) as zk:
        number = 0
        while time.monotonic() < until:
            began = time.monotonic()
            for _ in range(WRITES_PER_SECOND // 10):
                number += 1
                await zk.set(f"/soak/w/{number % WATCHED_NODES}", b"%064d" % number)
            for _ in range(WRITES_PER_SECOND // 50):
                path = await zk.create("/soak/n-", b"x" * 500, sequential=True)
                await zk.delete(path)
            count["writes"] = number
            await asyncio.sleep(max(began + 0.1 - time.monotonic(), 0))


async def read_nothing(port: int, until: float) -> None:
    """Watch everything for half a minute without reading, and reset the connection."""
    while time.monotonic() < until:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(frame(ConnectRequest(0, SESSION_TIMEOUT_MS, 0, bytes(16), False).encode()))
        add = r.AddWatchRequest("/soak", AddWatchMode.PERSISTENT_RECURSIVE)
        writer.write(request(OpCode.ADD_WATCH, add))
        for _ in range(10):
            await asyncio.sleep(min(3.0, max(until - time.monotonic(), 0)))
            writer.write(PING)
        writer.transport.abort()


class HolderCheck:
    """A check of the lock's holders: at most one at a time, with increasing tokens."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._inside = 0
        self._token = 0
        self.rounds: Counter[str] = Counter()
        self.wrong: list[str] = []

    def enter(self, name: str, token: int = 0) -> None:
        """Record a new holder, and check that the lock was free and that the token increased."""
        with self._guard:
            self._inside += 1
            self.rounds[name] += 1
            if self._inside > 1:
                self.wrong.append(f"{name} is the second holder")
            if token and token <= self._token:
                self.wrong.append(f"the token {token} of {name} is not above {self._token}")
            self._token = max(token, self._token)

    def leave(self) -> None:
        """Record that the lock is free."""
        with self._guard:
            self._inside -= 1


async def contend(hosts: str, name: str, holders: HolderCheck, until: float) -> None:
    """Acquire and release the lock repeatedly until *until*, and report each holder to *holders*."""
    async with Client(hosts, timeout=10.0) as zk:
        while time.monotonic() < until:
            async with zk.lock("/soak-lock") as lease:
                holders.enter(name, lease.token)
                await asyncio.sleep(0.01)
                holders.leave()


def contend_with_kazoo(hosts: str, holders: HolderCheck, stop: threading.Event) -> None:
    """Acquire and release the lock repeatedly with kazoo, in a thread, until *stop* is set. Report each holder."""
    zk = KazooClient(hosts, timeout=10.0)
    zk.start()
    while not stop.is_set():
        with zk.Lock("/soak-lock", "kazoo"):
            holders.enter("kazoo")
            time.sleep(0.01)
            holders.leave()
    zk.stop()
    zk.close()


async def check_histories(port: int, until: float, seed: int, stories: list[str]) -> int:
    """Record and check histories of ten seconds, repeatedly. Return the number of checked requests."""
    checked = 0
    rng = Random(seed)
    while time.monotonic() < until - 5:
        async with Proxy(f"127.0.0.1:{port}") as proxy:
            with proxy.recording() as recording:
                ends = min(time.monotonic() + 10, until)
                await asyncio.gather(*(_use_nodes(proxy.hosts, rng, ends) for _ in range(3)))
            found = await asyncio.to_thread(check, recording)
            checked += len(recording)
            if found is not None:
                stories.append(found.story)
            await _delete_history_nodes(proxy.hosts)
        await asyncio.sleep(min(20.0, max(until - time.monotonic(), 0)))
    return checked


async def _delete_history_nodes(hosts: str) -> None:
    """Delete the nodes that the clients of the history have created, to keep the tree small."""
    async with Client(hosts, timeout=10.0) as zk:
        for path in ("/q", *(f"/n{number}" for number in range(6))):
            with suppress(NoNodeError):
                await zk.delete(path, recursive=True)


async def _use_nodes(hosts: str, rng: Random, until: float) -> None:
    async with Client(hosts, timeout=10.0) as zk:
        while time.monotonic() < until:
            try:
                await one(zk, rng)
            except ZooKeeperError:
                pass
            await asyncio.sleep(0.02)


def follow_overview(url: str, until: float, count: Counter[str]) -> None:
    """Read and count the events of the console's overview, in a thread."""
    with urlopen(f"{url}console/api/events", timeout=30.0) as events:
        while time.monotonic() < until and events.readline():
            count["lines of the overview"] += 1


def read_page(url: str, until: float, count: Counter[str]) -> None:
    """Read the parts of the page and the metrics every five seconds, in a thread."""
    while time.monotonic() < until:
        for name in (*(f"console/{each}" for each in PAGE_PATHS), "metrics"):
            with urlopen(url + name, timeout=30.0) as answer:
                count["bytes of pages"] += len(answer.read())
        time.sleep(5.0)


async def watch_memory(target: Target, until: float, samples: list[float], crowd: Crowd) -> None:
    """Sample the memory every second, and print it every minute."""
    began = time.monotonic()
    while time.monotonic() < until:
        samples.append(target.memory("VmRSS"))
        passed = time.monotonic() - began
        if len(samples) % 60 == 0:
            facts = ", ".join(f"{number:,} {name}" for name, number in sorted(crowd.count.items()))
            print(
                f"{passed / 60:4.0f} min  {samples[-1]:6.1f} MB  {target.cpu_s() / passed:4.0%} CPU  {facts}",
                flush=True,
            )
        await asyncio.sleep(1.0)


def descriptors(target: Target) -> int:
    """Return the number of the daemon's open descriptors."""
    return len(os.listdir(f"/proc/{target.pid}/fd"))


async def run(target: DurableTarget, minutes: float, seed: int) -> list[str]:
    """Run all loads against a daemon, and return a line for each broken condition."""
    hosts = f"127.0.0.1:{target.port}"
    async with Client(hosts, timeout=10.0) as zk:
        for path in ("/soak/e", *(f"/soak/w/{number}" for number in range(WATCHED_NODES))):
            await zk.create(path, b"%064d" % 0, parents=True)
    await asyncio.sleep(0.5)
    before = descriptors(target)
    until = time.monotonic() + minutes * 60
    crowd, holders = Crowd(target.port, target.tls_port, Random(seed)), HolderCheck()
    memory: list[float] = []
    stories: list[str] = []
    neighbour = Neighbour(target.port, target.pid)
    began = time.monotonic()
    stop = threading.Event()
    thread = threading.Thread(target=contend_with_kazoo, args=(hosts, holders, stop))
    thread.start()
    try:
        async with asyncio.TaskGroup() as group:
            for job in (
                crowd.run(until), write(hosts, until, crowd.count), watch_memory(target, until, memory, crowd),
                contend(hosts, "one", holders, until), contend(hosts, "two", holders, until),
                *(read_nothing(target.port, until) for _ in range(SLOW_READERS)),
                asyncio.to_thread(follow_overview, target.admin_url, until, crowd.count),
                asyncio.to_thread(read_page, target.admin_url, until, crowd.count),
            ):  # fmt: skip
                group.create_task(job)
            sampling = group.create_task(check_histories(target.port, until, seed, stories))
    finally:
        stop.set()
        measured = neighbour.stop()
    await asyncio.to_thread(thread.join)
    checked = sampling.result()
    counted = [each for each in measured if began + WARM_UP_SHARE / 2 * minutes * 60 < each[0] < until]
    latencies, used = sorted(each[1] for each in counted), sorted(each[2] for each in counted)
    await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 + 3)
    after = descriptors(target)
    fifth = max(round(len(memory) * WARM_UP_SHARE), 1)
    warm, last = max(memory[fifth : 2 * fifth]), max(memory[-fifth:])
    place = len(counted) * 999 // 1000
    print(f"\nmemory {warm:.1f} MB after the warm-up, {last:.1f} MB at the end: {last / warm - 1:+.1%}")
    print(f"descriptors {before} before, {after} after; {target.snapshots()} snapshots kept")
    print(f'exists("/") worst {latencies[-1] * 1000:.1f} ms, 99.9 % {latencies[place] * 1000:.1f} ms')
    print(f"CPU of the server until its reply: worst {used[-1] * 1000:.1f} ms, 99.9 % {used[place] * 1000:.1f} ms")
    print(f"{sum(holders.rounds.values()):,} rounds of the lock ({dict(holders.rounds)}), {checked:,} requests checked")
    wrong = list(holders.wrong) + stories
    if last > warm * (1 + MAX_GROWTH):
        wrong.append(f"memory has grown by {last / warm - 1:.1%}; {MAX_GROWTH:.0%} is the limit")
    if after > before:
        wrong.append(f"{after - before} descriptors more are open than before")
    if used[-1] > MAX_REPLY_CPU_S:
        slow = sum(each > MAX_REPLY_CPU_S for each in used)
        wrong.append(
            f"the server used more than {MAX_REPLY_CPU_S * 1000:.0f} ms of CPU until {slow} of {len(used):,} replies"
        )
    if crowd.count["lost"]:
        wrong.append(f"{crowd.count['lost']} sessions were disconnected by the server")
    if not checked or not all(holders.rounds[name] for name in ("one", "two", "kazoo")):
        wrong.append("something did not run at all")
    return wrong


class DurableTarget(Target):
    """A daemon with a data directory, snapshots and purge, TLS, an admin port and an audit log."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        properties = {"snapCount": "20000", "autopurge.purgeInterval": "1", "maxSessionTimeout": "60000"}
        audit = {"audit.enable": "true", "zoolet.auditFile": f"{folder}/audit.log"}
        ports = ["--secure-port", "0", *CERTIFICATE_OPTIONS, "--admin-port", "0"]
        super().__init__({**properties, **audit}, ["--data-dir", folder, *ports])

    def __enter__(self) -> Self:
        super().__enter__()
        assert self.process.stdout is not None
        self.tls_port = int(self.process.stdout.readline().rpartition(":")[2])
        self.admin_url = self.process.stdout.readline().split()[-1]
        return self

    def snapshots(self) -> int:
        """Return the number of snapshots in the data directory."""
        return sum(1 for _ in Path(self.folder).rglob("snapshot.*"))


def main() -> int:
    """Parse the command line, run the soak test, and return the exit code."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    raise_limit()  # the clients are in this process
    if options.minutes < 0.5:
        parser.error("--minutes must be 0.5 at least")
    print(f"this takes {options.minutes:g} minutes", flush=True)
    with tempfile.TemporaryDirectory(prefix="zoolet-soak-") as folder, DurableTarget(folder) as target:
        wrong = asyncio.run(run(target, options.minutes, options.seed))
        log = target.log()
    if "Traceback" in log:
        wrong.append(f"the daemon logged a traceback: {log[log.index('Traceback') :][:2000]}")
    if target.stopped:
        wrong.append(target.stopped)
    print("\n".join(f"WRONG: {line}" for line in wrong) or "all in order")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
