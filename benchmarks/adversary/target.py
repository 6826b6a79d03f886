"""The server under attack, in a separate process, and the measurements during an attack."""

from __future__ import annotations

import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from adversary.client import REPLY_TIMEOUT_S, HostilePeer
from adversary.neighbour import Neighbour

TESTS: Final = Path(__file__).parents[2] / "tests"
ADDRESS_SPACE: Final = 4 << 30  # bytes; a successful attack must not exhaust the machine's memory
SETTLE_S: Final = 0.3  # time to measure after an attack, to include its aftermath
READY_TIMEOUT_S: Final = 20.0
STOP_TIMEOUT_S: Final = 10.0


@dataclass
class AttackMeasurements:
    """Measurements of the server and the neighbour. *idle_ms* and *base_mb* are from before the attack.

    *slow* is the number of the neighbour's requests that took more than 100 ms.
    """

    idle_ms: float = 0.0
    worst_ms: float = 0.0
    worst_cpu_ms: float = 0.0
    slow: int = 0
    seconds: float = 0.0
    base_mb: float = 0.0
    peak_mb: float = 0.0


class Target:
    """A server process, as a context manager that stops the process with SIGTERM.

    Args:
        properties: ZooKeeper's properties, without the prefix ``zookeeper.``.
        options: Further words of the command line.
        descriptors: Maximum number of descriptors of the process, or 0 for the inherited limit.
    """

    def __init__(self, properties: dict[str, str], options: list[str], descriptors: int = 0) -> None:
        defined = {"maxClientCnxns": "0", "4lw.commands.whitelist": "*", **properties}
        self._command = [sys.executable, "-m", "zoolet", "serve", "--port", "0", *options]
        self._command += [f"-Dzookeeper.{name}={value}" for name, value in defined.items()]
        self._descriptors = descriptors
        self.port = 0
        self.measured: AttackMeasurements | None = None
        self.stopped = ""

    def _set_limits(self) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        if self._descriptors:
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._descriptors, self._descriptors))

    def __enter__(self) -> Self:
        self._log = tempfile.NamedTemporaryFile(prefix="zoolet-attacked-")
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=self._log, text=True, preexec_fn=self._set_limits
        )
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], READY_TIMEOUT_S)
        line = self.process.stdout.readline() if readable else ""
        match = re.fullmatch(r"zoolet ready on \S+:(\d+)\n", line)
        if match is None:
            self.process.kill()
            raise RuntimeError(f"the daemon did not start: {line!r} {self.log()[-2000:]}")
        self.port = int(match[1])
        return self

    @property
    def pid(self) -> int:
        """Process id of the server under attack."""
        return self.process.pid

    def log(self) -> str:
        """Return the server's output on stderr."""
        return Path(self._log.name).read_text(errors="replace")

    def alive(self) -> bool:
        """Return whether the process is running."""
        return self.process.poll() is None

    def __exit__(self, *exc: object) -> None:
        started = time.monotonic()
        if self.alive():
            self.process.terminate()
            try:
                code = self.process.wait(STOP_TIMEOUT_S)
                self.stopped = "" if code == 0 else f"SIGTERM ended with exit code {code}"
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                self.stopped = f"SIGTERM had no effect in {time.monotonic() - started:.0f} s"
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()

    # --- queries and actions ---

    def peer(self, **options: object) -> HostilePeer:
        """Open a connection to the server, with options of :class:`HostilePeer`."""
        return HostilePeer(self.port, **options)  # type: ignore[arg-type]

    def four_letter_command(self, command: bytes, link: socket.socket | None = None) -> str:
        """Send a four-letter command over *link*, or over a new connection, and return the answer."""
        link = link or socket.create_connection(("127.0.0.1", self.port))
        with link:
            link.settimeout(REPLY_TIMEOUT_S)
            link.sendall(command)
            return b"".join(iter(lambda: link.recv(65536), b"")).decode()

    def admin_port(self) -> int:
        """Return the port of the daemon's admin server, from the next line of its output. Call this only once.

        Raises:
            RuntimeError: The line does not contain an admin port.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        match = re.fullmatch(r"zoolet admin on http://\S+:(\d+)/\n", line)
        if match is None:
            raise RuntimeError(f"the daemon has no admin port: {line!r}")
        return int(match[1])

    def metric(self, name: str) -> int:
        """Return the value of a key of ``mntr``, or -1 if the key is missing."""
        match = re.search(rf"^zk_{name}\t(\d+)", self.four_letter_command(b"mntr"), re.MULTILINE)
        return int(match[1]) if match else -1

    def memory(self, key: str) -> float:
        """Return a memory size from /proc/PID/status in MB, or 0 if the process has exited."""
        with suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith(key + ":"):
                    return int(line.split()[1]) * 1024 / 1e6
        return 0.0

    def cpu_s(self) -> float:
        """Return the CPU time that the process has used, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        os.kill(self.pid, number)

    @contextmanager
    def under_attack(self, *, neighbour: bool = True) -> Iterator[AttackMeasurements]:
        """Measure the effect of the block on the server and, by default, on the neighbour."""
        measured = self.measured = AttackMeasurements()
        watcher = Neighbour(self.port, self.pid) if neighbour else None
        if watcher is not None:
            time.sleep(0.5)
        with suppress(OSError):
            Path(f"/proc/{self.pid}/clear_refs").write_text("5")  # resets VmHWM, the peak of the memory
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
            before = [latency for start, latency, _ in samples if start + latency < started]
            during = [latency for start, latency, _ in samples if start + latency >= started]
            cpu = [used for start, latency, used in samples if start + latency >= started]
            measured.worst_cpu_ms = max(cpu, default=0.0) * 1000
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
        self._server = ApacheZooKeeper(config=config, properties=prefixed)
        self.measured = None
        self.stopped = ""

    def __enter__(self) -> Self:
        self._server.__enter__()
        self.port = self._server.port
        process = self._server._process  # noqa: SLF001
        assert process is not None
        self.process = process  # type: ignore[assignment]
        return self

    def log(self) -> str:
        """Return an empty text, because the log of ZooKeeper is not checked."""
        return ""

    def __exit__(self, *exc: object) -> None:
        self._server.__exit__(None, None, None)


def until(condition: Callable[[], bool], seconds: float, every: float = 0.05) -> float | None:
    """Poll a condition. Return the elapsed seconds, or None if it did not become true within *seconds*."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > seconds:
            return None
        time.sleep(every)
    return time.monotonic() - started
