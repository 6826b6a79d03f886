"""What the attacks are made with: a target in its own process, a neighbour that measures it, and a hostile client.

The neighbour is this file run as a program: it sends exists("/") every 5 ms over a connection of its own and writes
the start and the latency of each request to a file. It shares no process with the attacker, so that the attacker's
Python does not count as the server's delay.
"""

from __future__ import annotations

import gc
import os
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import Record
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.protocol.records import AuthPacket, CreateRequest, ExistsRequest, RequestHeader

HERE: Final = Path(__file__).parent
TESTS: Final = HERE.parent / "tests"
ADDRESS_SPACE: Final = 4 << 30  # an attack that works must not take the machine's memory
PERIOD_S: Final = 0.005
REPLY_TIMEOUT_S: Final = 30.0  # the neighbour fails when one reply takes longer
SETTLE_S: Final = 0.3  # what an attack leaves behind is measured too
READY_S: Final = 20.0
STOP_S: Final = 10.0

CREATE_TAIL: Final = CreateRequest("", b"", OPEN_ACL_UNSAFE, 0).encode()[8:]
"""What follows path and data in a create request: the open ACL, and flags 0."""
_HEAD: Final = struct.Struct(">iii")
_INT: Final = struct.Struct(">i")
_REPLY: Final = struct.Struct(">iiqi")
_SAMPLE: Final = struct.Struct("dd")


# --- frames ---


def request(op: OpCode, body: bytes | Record, xid: int = 1) -> bytes:
    """Return the frame of a request."""
    return frame(RequestHeader(xid, op).encode() + (body if isinstance(body, bytes) else body.encode()))


def text(value: str) -> bytes:
    """Return a string as it is on the wire."""
    raw = value.encode()
    return _INT.pack(len(raw)) + raw


def creates(paths: Iterable[str], data: bytes = b"", flags: int = 0) -> bytes:
    """Return the frames of many creates; built by hand because there are up to a million of them."""
    tail = _INT.pack(len(data)) + data + CREATE_TAIL[:-4] + _INT.pack(flags)
    fixed, pack, parts = 12 + len(tail), _HEAD.pack, []
    for path in paths:
        raw = path.encode()
        parts.append(pack(fixed + len(raw), 1, 1) + _INT.pack(len(raw)) + raw + tail)
    return b"".join(parts)


def exists(paths: Iterable[str], *, watch: bool = True) -> bytes:
    """Return the frames of many exists requests."""
    tail, pack, parts = bytes([watch]), _HEAD.pack, []
    for path in paths:
        raw = path.encode()
        parts.append(pack(13 + len(raw), 1, 3) + _INT.pack(len(raw)) + raw + tail)
    return b"".join(parts)


# --- the hostile client ---


@dataclass
class Outcome:
    """What a flood got back."""

    replies: int = 0
    events: int = 0
    received: int = 0
    errors: Counter[int] = field(default_factory=Counter)
    closed: bool = False
    seconds: float = 0.0

    def __str__(self) -> str:
        """Return one line for the table."""
        parts = [f"{self.replies:,} replies"]
        parts += [f"{count:,} x {code}" for code, count in self.errors.most_common(3)]
        parts += [f"{self.events:,} events"] if self.events else []
        parts += [f"{self.received / 1e6:,.0f} MB"] if self.received > 1e6 else []
        parts += ["closed"] if self.closed else []
        return ", ".join(parts) + f" in {self.seconds:.1f} s"


class Replies:
    """Counts the frames in a stream without keeping them."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self._rest = b""
        self._skip = 0

    def feed(self, data: bytes) -> None:
        """Count what is in the next bytes of the stream."""
        outcome = self.outcome
        outcome.received += len(data)
        if self._skip >= len(data):
            self._skip -= len(data)
            return
        data = self._rest + data[self._skip :]
        self._skip, at, size = 0, 0, len(data)
        while size - at >= 20:
            length, xid, _, err = _REPLY.unpack_from(data, at)
            if xid == -1:
                outcome.events += 1
            else:
                outcome.replies += 1
                if err:
                    outcome.errors[err] += 1
            at += 4 + length
        self._skip = max(0, at - size)
        self._rest = data[at:]


class Peer:
    """One blocking connection.

    Args:
        port: The server's port on 127.0.0.1.
        source: The address to come from.
        timeout_ms: The session timeout to ask for.
        session: Whether to open a session at once.
        receive_buffer: The size of the kernel's receive buffer; 0 for the default.
    """

    def __init__(
        self,
        port: int,
        *,
        source: str = "127.0.0.1",
        timeout_ms: int = 40_000,
        session: bool = True,
        receive_buffer: int = 0,
    ) -> None:
        self.link = socket.socket()
        if receive_buffer:
            self.link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.link.bind((source, 0))
        self.link.settimeout(REPLY_TIMEOUT_S)
        self.link.connect(("127.0.0.1", port))
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.session_id = 0
        if session:
            self.link.sendall(frame(ConnectRequest(timeout_ms=timeout_ms).encode()))
            self.session_id = ConnectResponse.decode(self.payload()).session_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; the session lives on."""
        self.link.close()

    def reset(self) -> None:
        """Close the socket with RST."""
        self.link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.link.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.link.recv(min(size - len(data), 1 << 20))
            if not piece:
                raise ConnectionError("the server closed the connection")
            data += piece
        return bytes(data)

    def payload(self) -> bytes:
        """Read one frame."""
        return self._exactly(_INT.unpack(self._exactly(4))[0])

    def call(self, op: OpCode, body: bytes | Record = b"", xid: int = 1) -> tuple[int, bytes]:
        """Send a request and return the error code and the body of its reply; events are skipped."""
        self.link.sendall(request(op, body, xid))
        while True:
            data = self.payload()
            got, _, err = struct.unpack_from(">iqi", data)
            if got != -1:
                return err, data[16:]

    def create(self, path: str, data: bytes = b"", *, acl: bytes | None = None, flags: int = 0) -> int:
        """Create a node and return the error code."""
        body = text(path) + _INT.pack(len(data)) + data
        body += CREATE_TAIL[:-4] if acl is None else acl
        return self.call(OpCode.CREATE, body + _INT.pack(flags))[0]

    def authenticate(self, name: str) -> int:
        """Add a digest identity and return the error code."""
        return self.call(OpCode.AUTH, AuthPacket(0, "digest", name.encode()), -4)[0]

    def closed(self) -> bool:
        """Return whether the server has closed the connection; reads what is there."""
        self.link.settimeout(0)
        try:
            while self.link.recv(1 << 16):
                pass
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            with suppress(OSError):
                self.link.settimeout(REPLY_TIMEOUT_S)
        return True

    def flood(
        self,
        data: bytes | Iterable[bytes],
        replies: int = 0,
        *,
        seconds: float = REPLY_TIMEOUT_S,
        outcome: Outcome | None = None,
    ) -> Outcome:
        """Send bytes and read at the same time until all replies are there, the server closes, or time is over.

        Args:
            data: What to send; several pieces are sent one after the other.
            replies: How many replies to wait for.
            seconds: How long at most.
            outcome: Where to count; the counts of an earlier flood go on.
        """
        outcome = outcome or Outcome()
        seen, goal = Replies(outcome), outcome.replies + replies
        pieces: Iterator[bytes] = iter([data] if isinstance(data, bytes) else data)
        rest: memoryview | None = memoryview(next(pieces, b""))
        started = time.monotonic()
        self.link.setblocking(False)
        try:
            while rest is not None or outcome.replies < goal:
                left = started + seconds - time.monotonic()
                if left <= 0:
                    break
                readable, writable, _ = select.select([self.link], [self.link] if rest is not None else [], [], left)
                if readable:
                    got = self.link.recv(1 << 20)
                    if not got:
                        outcome.closed = True
                        break
                    seen.feed(got)
                if writable and rest is not None:
                    rest = rest[self.link.send(rest[: 1 << 18]) :]
                    if not rest:
                        following = next(pieces, None)
                        rest = None if following is None else memoryview(following)
        except (ConnectionError, ValueError):
            outcome.closed = True
        finally:
            outcome.seconds += time.monotonic() - started
            with suppress(OSError):
                self.link.settimeout(REPLY_TIMEOUT_S)
        return outcome


# --- the neighbour ---


class Neighbour:
    """A client in a process of its own that measures how long exists("/") takes.

    Args:
        port: The server's port.
    """

    def __init__(self, port: int) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="zoolet-neighbour-")
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "adversary.py"), str(port), self._file.name],
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
    """Run the neighbour: measure until stdin is closed or the connection is lost."""
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


# --- the target ---


@dataclass
class Measured:
    """What happened to the server and to the neighbour while an attack ran."""

    idle_ms: float = 0.0
    worst_ms: float = 0.0
    slow: int = 0
    seconds: float = 0.0
    base_mb: float = 0.0
    peak_mb: float = 0.0


class Target:
    """A server process as a context manager; at the end of the block it has been stopped.

    Args:
        properties: ZooKeeper's properties, without the prefix ``zookeeper.``.
        options: Further words of the command line.
        descriptors: How many descriptors the process may have; 0 for no limit of its own.
    """

    def __init__(self, properties: dict[str, str], options: list[str], descriptors: int = 0) -> None:
        defined = {"maxClientCnxns": "0", "4lw.commands.whitelist": "*", **properties}
        self._command = [sys.executable, "-m", "zoolet.server", "serve", "--port", "0", *options]
        self._command += [f"-Dzookeeper.{name}={value}" for name, value in defined.items()]
        self._descriptors = descriptors
        self.port = 0
        self.measured: Measured | None = None
        self.stopped = ""

    def _limit(self) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        if self._descriptors:
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._descriptors, self._descriptors))

    def __enter__(self) -> Self:
        self._log = tempfile.NamedTemporaryFile(prefix="zoolet-attacked-")
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=self._log, text=True, preexec_fn=self._limit
        )
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], READY_S)
        line = self.process.stdout.readline() if readable else ""
        match = re.fullmatch(r"zoolet ready on \S+:(\d+)\n", line)
        if match is None:
            self.process.kill()
            raise RuntimeError(f"the daemon did not start: {line!r} {self.log()[-2000:]}")
        self.port = int(match[1])
        return self

    @property
    def pid(self) -> int:
        """The process under attack."""
        return self.process.pid

    def log(self) -> str:
        """Return what the server wrote to stderr."""
        return Path(self._log.name).read_text(errors="replace")

    def alive(self) -> bool:
        """Return whether the process still runs."""
        return self.process.poll() is None

    def __exit__(self, *exc: object) -> None:
        started = time.monotonic()
        if self.alive():
            self.process.terminate()
            try:
                code = self.process.wait(STOP_S)
                self.stopped = "" if code == 0 else f"SIGTERM ended with exit code {code}"
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                self.stopped = f"SIGTERM had no effect in {time.monotonic() - started:.0f} s"
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()

    # --- what can be asked of it ---

    def peer(self, **options: object) -> Peer:
        """Open a connection."""
        return Peer(self.port, **options)  # type: ignore[arg-type]

    def word(self, word: bytes, link: socket.socket | None = None) -> str:
        """Send a four-letter command, over a connection that is open already or over a new one."""
        link = link or socket.create_connection(("127.0.0.1", self.port))
        with link:
            link.settimeout(REPLY_TIMEOUT_S)
            link.sendall(word)
            return b"".join(iter(lambda: link.recv(65536), b"")).decode()

    def metric(self, name: str) -> int:
        """Return a number of mntr."""
        match = re.search(rf"^zk_{name}\t(\d+)", self.word(b"mntr"), re.MULTILINE)
        return int(match[1]) if match else -1

    def memory(self, key: str) -> float:
        """Return a line of /proc/PID/status in MB; 0 if the process is gone."""
        with suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith(key + ":"):
                    return int(line.split()[1]) * 1024 / 1e6
        return 0.0

    def cpu_s(self) -> float:
        """Return the CPU time the process has used, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    @contextmanager
    def under_attack(self, *, neighbour: bool = True) -> Iterator[Measured]:
        """Measure what the block does to the server and, unless disabled, to the neighbour."""
        measured = self.measured = Measured()
        watcher = Neighbour(self.port) if neighbour else None
        if watcher is not None:
            time.sleep(0.5)
        with suppress(OSError):
            Path(f"/proc/{self.pid}/clear_refs").write_text("5")  # VmHWM starts again from here
        measured.base_mb = self.memory("VmRSS")
        started = time.monotonic()
        high = 0.0
        try:
            yield measured
            high = self.memory("VmHWM")
        finally:
            measured.seconds = time.monotonic() - started
            time.sleep(SETTLE_S)
            samples = watcher.stop() if watcher is not None else []
            measured.peak_mb = max(high, self.memory("VmHWM"))
            before = [latency for start, latency in samples if start + latency < started]
            during = [latency for start, latency in samples if start + latency >= started]
            measured.idle_ms = max(before, default=0.0) * 1000
            measured.worst_ms = max(during, default=0.0 if watcher is None else float("inf")) * 1000
            measured.slow = sum(latency > 0.1 for latency in during)


class ApacheTarget(Target):
    """Debian's ZooKeeper as a target, for comparison.

    Args:
        properties: As for :class:`Target`.
    """

    def __init__(self, properties: dict[str, str]) -> None:
        sys.path.insert(0, str(TESTS))
        from support.apache import ApacheZooKeeper

        config = {name: value for name, value in properties.items() if name == "maxClientCnxns"}
        rest = {name: value for name, value in properties.items() if name not in config}
        prefixed = {n if n.startswith(("jute.", "java.")) else "zookeeper." + n: v for n, v in rest.items()}
        if "java.security.auth.login.config" in rest:
            prefixed["zookeeper.authProvider.1"] = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
        self._apache = ApacheZooKeeper(config=config, properties=prefixed)
        self.measured = None
        self.stopped = ""

    def __enter__(self) -> Self:
        self._apache.__enter__()
        self.port = self._apache.port
        process = self._apache._process  # noqa: SLF001
        assert process is not None
        self.process = process  # type: ignore[assignment]
        return self

    def log(self) -> str:
        """Return nothing: its log is not looked at."""
        return ""

    def __exit__(self, *exc: object) -> None:
        self._apache.__exit__(None, None, None)


def until(true: Callable[[], bool], seconds: float, every: float = 0.05) -> float | None:
    """Wait for a condition; return the seconds it took, or None if it did not come true in time."""
    started = time.monotonic()
    while not true():
        if time.monotonic() - started > seconds:
            return None
        time.sleep(every)
    return time.monotonic() - started


if __name__ == "__main__":
    measure(int(sys.argv[1]), sys.argv[2])
