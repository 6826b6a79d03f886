"""An Apache ZooKeeper ensemble of three members, each a process that can be killed and started again."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from support.apache import free_port, jars_of, require_apache

MEMBERS: Final = 3
READY_S: Final = 60.0


class Member:
    """One member.

    Args:
        home: Its folder, with ``zoo.cfg`` and its data.
        port: Its client port.
    """

    def __init__(self, home: Path, port: int) -> None:
        self.port = port
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, without waiting."""
        command = ["java", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no"]
        command += ["-cp", ":".join(map(str, jars_of("3.8")))]
        command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._home / "zoo.cfg")]
        with open(self._home / "log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill the process: nothing is written or said any more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def mode(self) -> str:
        """Return ``leader``, ``follower``, or an empty text while it does not serve."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                text = b""
                while piece := connection.recv(4096):
                    text += piece
        except OSError:
            return ""
        return text.partition(b"Mode: ")[2].split(b"\n")[0].decode()


class Ensemble:
    """Three members as a context manager; inside it they have a leader.

    Attributes:
        members: The members.
        hosts: A connection string with all of them.
    """

    def __init__(self) -> None:
        require_apache()
        self._folder = Path(
            tempfile.mkdtemp(prefix="zoolet-ensemble-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        )
        ports = [(free_port(), free_port(), free_port()) for _ in range(MEMBERS)]
        servers = [
            f"server.{number}=127.0.0.1:{peer}:{election}" for number, (_, peer, election) in enumerate(ports, 1)
        ]
        self.members = []
        for number, (port, _, _) in enumerate(ports, 1):
            home = self._folder / str(number)
            (home / "data").mkdir(parents=True)
            (home / "data" / "myid").write_text(str(number))
            lines = ["tickTime=200", "initLimit=50", "syncLimit=10", "4lw.commands.whitelist=*", "maxClientCnxns=0"]
            lines += ["admin.enableServer=false", f"dataDir={home / 'data'}", f"clientPort={port}", *servers]
            lines += ["clientPortAddress=127.0.0.1", "minSessionTimeout=400", "maxSessionTimeout=60000"]
            (home / "zoo.cfg").write_text("\n".join(lines) + "\n")
            self.members.append(Member(home, port))
        self.hosts = ",".join(f"127.0.0.1:{member.port}" for member in self.members)

    def __enter__(self) -> Self:
        try:
            for member in self.members:
                member.start()
            self.wait_for_leader(MEMBERS)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            member.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def wait_for_leader(self, serving: int = 2) -> Member:
        """Wait until so many members serve, and one of them leads; return that one."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            modes = [member.mode() for member in self.members]
            if "leader" in modes and sum(map(bool, modes)) >= serving:
                return self.members[modes.index("leader")]
            time.sleep(0.05)
        logs = "\n".join((self._folder / str(number) / "log").read_text()[-1000:] for number in range(1, MEMBERS + 1))
        raise RuntimeError(f"the ensemble has no leader:\n{logs}")
