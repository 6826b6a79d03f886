"""A real Apache ZooKeeper for comparisons: it runs on a free port and keeps its data in memory.

There are two releases. Release 3.8.0 is Debian's package ``zookeeper``, and ``make apache-3.9`` puts release 3.9.4 into
the cache. A short run (see :mod:`support.effort`) compares with the newest installed release. If a release is missing,
its tests are skipped; with ``ZOOLET_REQUIRE_APACHE=1`` (3.8) or ``ZOOLET_REQUIRE_APACHE_3_9=1`` (3.9) they fail.
``ZOOLET_NO_APACHE=1`` skips the tests of both releases.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

import pytest
from support.effort import FULL
from support.fetch_apache import apache_folder
from support.waiting import DEADLINE_S

MAX_PORT_TRIES: Final = 3
_ports: Final = random.SystemRandom()
"""A source without a seed, because two test processes must not choose the same port."""
JARS = Path("/usr/share/java")
NEEDED_JARS = (
    "zookeeper*.jar",
    "slf4j-*.jar",
    "netty*.jar",
    "snappy*.jar",
    "metrics-core*.jar",
    "commons-*.jar",
    "jackson-*.jar",
)


def server_jars(release: str) -> list[Path]:
    """Return the installed jars of a release's server."""
    if release == "3.9":
        return sorted(apache_folder().glob("*.jar"))
    return [jar for pattern in NEEDED_JARS for jar in sorted(JARS.glob(pattern))]


def admin_jars() -> list[Path]:
    """Return the jars of Jetty, which the admin server of a real ZooKeeper needs, or no jars if it is not installed."""
    jetty = sorted(JARS.glob("jetty9-*.jar"))
    return [*jetty, *sorted(JARS.glob("servlet-api*.jar"))] if jetty else []


ALL_RELEASES: Final = ("3.8", "3.9")
RELEASES: Final = (
    ALL_RELEASES if FULL else next(((one,) for one in reversed(ALL_RELEASES) if server_jars(one)), ("3.8",))
)
"""The releases to compare with."""


def require_apache(release: str = "3.8") -> None:
    """Skip the test if this release of Apache ZooKeeper is not installed, or fail it if the release is required."""
    if os.environ.get("ZOOLET_NO_APACHE") == "1":
        pytest.skip("no real ZooKeeper is wanted: ZOOLET_NO_APACHE=1")
    missing = [] if shutil.which("java") else ["java"]
    if release == "3.9":
        if not server_jars("3.9"):
            missing.append(str(apache_folder()))
        remedy, wanted = "make apache-3.9", "ZOOLET_REQUIRE_APACHE_3_9"
    else:
        if not (JARS / "zookeeper.jar").exists():
            missing.append("zookeeper.jar")
        remedy, wanted = "apt-get install zookeeper default-jre-headless", "ZOOLET_REQUIRE_APACHE"
    if not missing:
        return
    reason = f"no real ZooKeeper {release} here: {' and '.join(missing)} missing ({remedy})"
    if os.environ.get(wanted) == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def skip_unless_required(reason: str) -> None:
    """Skip a test for a missing tool or release, or fail it if comparisons are required."""
    if os.environ.get("ZOOLET_REQUIRE_APACHE") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def free_port() -> int:
    """Return a free port that the system never assigns to a client, so a restarted server can listen on it again."""
    while True:
        port = _ports.randrange(12_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class PortTakenError(RuntimeError):
    """Another process took the port between its choice and the start."""


class ApacheZooKeeper:
    """A real ZooKeeper server, as a context manager.

    Args:
        release: The release, "3.8" or "3.9".
        config: Further lines of its zoo.cfg.
        properties: Java system properties.
        admin: Whether to start its admin server as well, on ``admin_port``.
    """

    def __init__(
        self,
        release: str = "3.8",
        *,
        config: dict[str, str] | None = None,
        properties: dict[str, str] | None = None,
        admin: bool = False,
    ) -> None:
        require_apache(release)
        self.release = release
        self.admin_port = 0
        self._admin = admin
        self.port = free_port()
        self.hosts = f"127.0.0.1:{self.port}"
        self._config = {"tickTime": "2000", "maxClientCnxns": "0", "4lw.commands.whitelist": "*", **(config or {})}
        self._properties = {"zookeeper.forceSync": "no", "zookeeper.extendedTypesEnabled": "true", **(properties or {})}
        self._home = ""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ApacheZooKeeper:
        for _ in range(MAX_PORT_TRIES - 1):
            try:
                return self._start()
            except PortTakenError:
                self._stop()
                self.port = free_port()
                self.hosts = f"127.0.0.1:{self.port}"
        return self._start()

    def _start(self) -> ApacheZooKeeper:
        self._home = tempfile.mkdtemp(prefix="zoolet-oracle-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        address = {"clientPort": str(self.port), "clientPortAddress": "127.0.0.1"}
        lines = {"dataDir": self._home, **self._config, **address}
        lines["admin.enableServer"] = str(self._admin).lower()
        if self._admin:
            self.admin_port = free_port()
            lines |= {"admin.serverPort": str(self.admin_port), "admin.serverAddress": "127.0.0.1"}
        cfg = Path(self._home, "zoo.cfg")
        cfg.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        jars = ":".join(map(str, [*server_jars(self.release), *(admin_jars() if self._admin else [])]))
        command = [
            "java",
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # for a process of seconds, more compilation costs more than it saves
            "-cp",
            jars,
            *(f"-D{k}={v}" for k, v in self._properties.items()),
        ]
        command += ["org.apache.zookeeper.server.ZooKeeperServerMain", str(cfg)]
        with open(Path(self._home, "log"), "wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self._wait()
        return self

    def _wait(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as link:
                    link.sendall(b"srvr")
                    if b"Mode:" in link.recv(4096):  # ruok would be answered earlier
                        return
                time.sleep(0.02)
            except OSError:
                time.sleep(0.05)
        log = Path(self._home, "log").read_text(errors="replace")
        if "Address already in use" in log:
            raise PortTakenError(self.port)
        raise RuntimeError(f"the real ZooKeeper did not start:\n{log[-3000:]}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._home, ignore_errors=True)
