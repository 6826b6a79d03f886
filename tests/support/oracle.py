"""A real Apache ZooKeeper, for comparison: Debian's package ``zookeeper`` (3.8.0), started on a free port, its data in
memory.

``ZOOLET_REQUIRE_ORACLE=1`` makes its absence a failure instead of a reason to skip.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

import pytest

JARS = Path("/usr/share/java")
NEEDED = (
    "zookeeper*.jar",
    "slf4j-*.jar",
    "netty*.jar",
    "snappy*.jar",
    "metrics-core*.jar",
    "commons-*.jar",
    "jackson-*.jar",
)


def require_oracle() -> None:
    """Skip the test, or fail it if the oracle was asked for, where there is no real ZooKeeper."""
    missing = [
        what
        for what, there in (("java", shutil.which("java")), ("zookeeper.jar", (JARS / "zookeeper.jar").exists()))
        if not there
    ]
    if not missing:
        return
    reason = f"no real ZooKeeper here: {' and '.join(missing)} missing (apt-get install zookeeper default-jre-headless)"
    if os.environ.get("ZOOLET_REQUIRE_ORACLE") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Oracle:
    """A real ZooKeeper as a context manager.

    Args:
        config: Further lines of its zoo.cfg.
        properties: Java system properties.
    """

    def __init__(self, *, config: dict[str, str] | None = None, properties: dict[str, str] | None = None) -> None:
        require_oracle()
        self.port = free_port()
        self.hosts = f"127.0.0.1:{self.port}"
        self._config = {"tickTime": "2000", "maxClientCnxns": "0", "4lw.commands.whitelist": "*", **(config or {})}
        self._properties = {"zookeeper.forceSync": "no", "zookeeper.extendedTypesEnabled": "true", **(properties or {})}
        self._home = ""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Oracle:
        self._home = tempfile.mkdtemp(prefix="zoolet-oracle-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        lines = {**self._config, "dataDir": self._home, "clientPort": str(self.port), "clientPortAddress": "127.0.0.1"}
        lines["admin.enableServer"] = "false"
        cfg = Path(self._home, "zoo.cfg")
        cfg.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        jars = ":".join(str(jar) for pattern in NEEDED for jar in sorted(JARS.glob(pattern)))
        command = [
            "java",
            "-Xmx512m",
            "-XX:+UseSerialGC",
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
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=5) as link:
                    link.sendall(b"srvr")
                    if b"Mode:" in link.recv(4096):  # ruok would be answered before sessions are
                        return
                time.sleep(0.02)
            except OSError:
                time.sleep(0.05)
        log = Path(self._home, "log").read_text(errors="replace")
        raise RuntimeError(f"the real ZooKeeper did not start:\n{log[-3000:]}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._home, ignore_errors=True)
