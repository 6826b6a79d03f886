"""Run go-zookeeper's own tests on zoolet: they start this program as a server, with a ``zoo.cfg``, and kill it.

A server of an ensemble is a member of a Cluster in a separate process. The first server starts that process, and each
server opens a connection to it that names its member. When a server is killed, its connection is closed, and the
process kills its member.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from zoolet.testing import Cluster

SUPER = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
LINGERS_S = 5.0
"""Seconds that the process of a cluster waits for servers while it has none."""


def main() -> None:
    """Run the server of a configuration until killed."""
    config = Path(sys.argv[1])
    if sys.argv[2:] == ["--cluster"]:
        lead(config)
        return
    settings = read(config)
    if not any(key.startswith("server.") for key in settings):
        properties = [
            f"-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER}",
            "-Dzookeeper.extendedTypesEnabled=true",
        ]
        os.execv(sys.executable, [sys.executable, "-m", "zoolet", "serve", *properties, str(config)])
    attend(config)


def read(config: Path) -> dict[str, str]:
    """Return the keys and values of a ``zoo.cfg``."""
    return dict(line.split("=", 1) for line in config.read_text().splitlines() if "=" in line)


def attend(config: Path) -> None:
    """Represent a member of a cluster until killed."""
    with socket.socket(socket.AF_UNIX) as link:
        for attempt in range(200):
            with contextlib.suppress(OSError):
                link.connect(str(config.parent.parent / "cluster.sock"))
                break
            if attempt == 0:
                start_cluster(config)
            time.sleep(0.05)
        number = (config.parent / "myid").read_text().strip()
        link.sendall(number.encode())
        link.recv(1)


def start_cluster(config: Path) -> None:
    """Start the process of a cluster, detached from the server's output: Go waits until all its writers exit."""
    with (config.parent.parent / "cluster.log").open("a") as log:
        command = [sys.executable, __file__, str(config), "--cluster"]
        subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def lead(config: Path) -> None:
    """Run a cluster; each member runs while a server is connected for it."""
    settings = read(config)
    servers = sorted((int(key[7:]), line) for key, line in settings.items() if key.startswith("server."))
    ports = [int(line.split(":")[1]) - 1 for _, line in servers]  # this way the tests choose the ports
    options = {"DigestAuthenticationProvider.superDigest": SUPER, "extendedTypesEnabled": "true"}
    options |= {key: settings[key] for key in ("tickTime", "reconfigEnabled")}
    listener = socket.socket(socket.AF_UNIX)
    path = config.parent.parent / "cluster.sock"
    try:
        listener.bind(str(path))
    except OSError:  # another server started the cluster first
        return
    with Cluster(len(servers), ports=ports, config=options) as cluster:
        for member in cluster:
            member.stop()
        listener.listen()
        listener.settimeout(LINGERS_S)
        attending: list[threading.Thread] = []
        while True:
            try:
                link, _ = listener.accept()
            except TimeoutError:
                if not any(thread.is_alive() for thread in attending):
                    return
                continue
            attending.append(threading.Thread(target=follow, args=(cluster, link), daemon=True))
            attending[-1].start()


def follow(cluster: Cluster, link: socket.socket) -> None:
    """Start the member that a connection names, and kill it when the connection is closed."""
    with link:
        member = cluster[int(link.recv(16)) - 1]
        member.start()
        link.recv(1)
        member.kill()


if __name__ == "__main__":
    main()
