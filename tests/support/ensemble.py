"""An Apache ZooKeeper ensemble of three members, each a process that can be killed and restarted."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from support.apache import free_port, require_apache, server_jars
from support.links import Links
from support.waiting import DEADLINE_S

MEMBERS: Final = 3


class Member:
    """One member of the ensemble: a server process and its folder.

    Args:
        home: Its folder, with ``zoo.cfg`` and its data.
        port: Its client port.
        release: Its release.
    """

    def __init__(self, home: Path, port: int, release: str = "3.8") -> None:
        self.port = port
        self._home = home
        self._release = release
        self.properties: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, without waiting until the member serves."""
        command = ["java", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no"]
        command += ["-Dzookeeper.extendedTypesEnabled=true", *self.properties]
        command += ["-cp", ":".join(map(str, server_jars(self._release)))]
        command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._home / "zoo.cfg")]
        with open(self._home / "log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def mode(self) -> str:
        """Return ``leader`` or ``follower``, or an empty string while the member does not serve."""
        return self.ask(b"srvr").partition(b"Mode: ")[2].split(b"\n")[0].decode()

    def ask(self, word: bytes) -> bytes:
        """Return the answer to a four-letter command, or an empty string if the member does not answer."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(word)
                text = b""
                while piece := connection.recv(4096):
                    text += piece
        except OSError:
            return b""
        return text


class Ensemble:
    """Three members, as a context manager whose block starts once a leader is elected.

    Args:
        release: Their release.
        config: Further lines of each ``zoo.cfg``.
        linked: Whether the members talk through ``links``.
        properties: Java system properties.

    Attributes:
        members: The members.
        hosts: A connection string with all of them.
        quorum: The quorum addresses of all of them.
        links: The network between them.
    """

    def __init__(
        self,
        release: str = "3.8",
        config: Mapping[str, object] | None = None,
        *,
        linked: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        require_apache(release)
        self._folder = Path(
            tempfile.mkdtemp(prefix="zoolet-ensemble-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        )
        ports = [(free_port(), free_port(), free_port()) for _ in range(MEMBERS)]
        self.links = Links([peer_ports for _, *peer_ports in ports]) if linked else None
        self.members = []
        for number, (port, _, _) in enumerate(ports, 1):
            home = self._folder / str(number)
            (home / "data").mkdir(parents=True)
            (home / "data" / "myid").write_text(str(number))
            lines = ["tickTime=200", "initLimit=50", "syncLimit=10", "4lw.commands.whitelist=*", "maxClientCnxns=0"]
            lines += ["admin.enableServer=false", f"dataDir={home / 'data'}", f"clientPort={port}"]
            lines += ["clientPortAddress=127.0.0.1", "minSessionTimeout=400", "maxSessionTimeout=60000"]
            lines += [f"{key}={value}" for key, value in (config or {}).items()]
            lines += [self._line(number, other, ports) for other in range(1, MEMBERS + 1)]
            (home / "zoo.cfg").write_text("\n".join(lines) + "\n")
            member = Member(home, port, release)
            member.properties = [f"-D{key}={value}" for key, value in (properties or {}).items()]
            self.members.append(member)
        self.hosts = ",".join(f"127.0.0.1:{member.port}" for member in self.members)
        self.quorum = ",".join(f"127.0.0.1:{peer}" for _, peer, _ in ports)

    def _line(self, number: int, other: int, ports: list[tuple[int, int, int]]) -> str:
        """Return the configuration line of member *number* about member *other*."""
        _, peer, election = ports[other - 1]
        if self.links is not None and number != other:
            peer, election = (link.port for link in self.links.between[number - 1, other - 1])
        return f"server.{other}=127.0.0.1:{peer}:{election}"

    def __enter__(self) -> Self:
        if self.links is not None:
            self.links.start()
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
        if self.links is not None:
            self.links.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def figures(self) -> dict[str, str]:
        """Return the metrics of the leader."""
        lines = self.wait_for_leader().ask(b"mntr").decode().splitlines()
        return dict(line.split("\t", 1) for line in lines if "\t" in line)

    def wait_for_leader(self, serving: int = 2) -> Member:
        """Wait until *serving* members serve and one of them leads. Return the leader."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            modes = [member.mode() for member in self.members]
            if "leader" in modes and sum(map(bool, modes)) >= serving:
                return self.members[modes.index("leader")]
            time.sleep(0.05)
        logs = "\n".join((self._folder / str(number) / "log").read_text()[-1000:] for number in range(1, MEMBERS + 1))
        raise RuntimeError(f"the ensemble has no leader:\n{logs}")
