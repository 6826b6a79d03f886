"""An adapter that runs the test suite in kazoo's wheel against zoolet daemons instead of Java servers.

A pytest plugin for ``make kazoo-suite``: it replaces the server of ``kazoo.testing.common``, which starts a JVM, and
skips tests that cannot run here, with a reason for each.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from support.apache import free_port

os.environ.setdefault("ZOOKEEPER_VERSION", "3.9.3")
os.environ.setdefault("ZOOKEEPER_CLASSPATH", "none: zoolet needs no jars")
os.environ.setdefault("ZOOKEEPER_CLUSTER_SIZE", "1")

from kazoo.testing import common

from zoolet import testing
from zoolet.testing.unittest import _KazooMember

TLS = "hands the server a Java keystore; the daemon reads PEM files"
ENSEMBLE = "stops one of several servers: it needs an ensemble"
SKIPPED = {
    "TestSSLClient::test_create": TLS,
    "test_read_only": ENSEMBLE,
    "test_update_host_list": ENSEMBLE,
}
"""Tests of kazoo that are skipped, with the reasons.

A test that is not skipped has a race: ``test_connection_dropped`` sends 1 MB, cuts its connection, and expects that no
answer has arrived by then. In about one of ten runs zoolet has already answered.
"""


class Server:
    """A zoolet daemon with the interface of ManagedZooKeeper in kazoo."""

    def __init__(
        self, port: int, configuration: tuple[str, ...], properties: tuple[str, ...], jaas: str | None, home: str
    ) -> None:
        self._port = port
        self._options = [f"-Dzookeeper.{line}" for line in configuration if line] + [one for one in properties if one]
        self._process: subprocess.Popen[str] | None = None
        self._data = os.path.join(home, "data")
        if jaas:
            path = os.path.join(home, "jaas.conf")
            with open(path, "w", encoding="utf-8") as file:
                file.write(jaas)
            self._options.append(f"-Djava.security.auth.login.config={path}")

    address = property(lambda self: f"127.0.0.1:{self._port}")
    secure_address = property(lambda self: f"127.0.0.1:{self._port}")
    client_port = property(lambda self: self._port)
    running = property(lambda self: self._process is not None)

    def run(self) -> None:
        """Start the daemon, unless it is running, and wait until it is ready."""
        if self._process is not None:
            return
        command = [
            sys.executable,
            "-m",
            "zoolet",
            "serve",
            "--port",
            str(self._port),
            "--data-dir",
            self._data,
            "-Dzookeeper.maxClientCnxns=0",
        ]
        self._process = subprocess.Popen(
            [*command, *self._options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("zoolet ready"), line

    def stop(self) -> None:
        """Stop the daemon, but keep its data."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait()
            self._process = None

    def reset(self) -> None:
        """Stop the daemon and remove its data."""
        self.stop()
        shutil.rmtree(self._data, ignore_errors=True)

    destroy = reset

    def get_logs(self) -> list[str]:
        """Return an empty list, because the daemon's stderr is not kept."""
        return []


class Cluster:
    """One daemon with the interface of ZookeeperCluster in kazoo."""

    def __init__(self, **options: Any) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="zoolet-kazoo-")
        self._servers = [
            Server(
                free_port(),
                tuple(options.get("configuration_entries", ())),
                tuple(options.get("java_system_properties", ())),
                options.get("jaas_config"),
                self._home.name,
            )
        ]

    def __getitem__(self, index: int) -> Server:
        return self._servers[index]

    def __iter__(self) -> Any:
        return iter(self._servers)

    def start(self) -> None:
        """Start all servers."""
        for server in self._servers:
            server.run()

    def stop(self) -> None:
        """Stop all servers."""
        for server in self._servers:
            server.stop()

    def reset(self) -> None:
        """Stop all servers and remove their data."""
        for server in self._servers:
            server.reset()

    def terminate(self) -> None:
        """Stop all servers and remove their files."""
        self.stop()
        self._home.cleanup()

    def get_logs(self) -> list[str]:
        """Return no logs."""
        return []

    def get_ssl_client_configuration(self) -> dict[str, bytes]:
        """Return empty values: these servers have no TLS."""
        return {"client_key": b"", "client_cert": b"", "ca_cert": b""}


class ClusterAdapter:
    """A ``zoolet.testing.Cluster`` with the interface of ZookeeperCluster in kazoo."""

    def __init__(self, **options: Any) -> None:
        lines = [line.strip().partition("=") for line in options.get("configuration_entries", ()) if "=" in line]
        properties = [one.removeprefix("-D").partition("=") for one in options.get("java_system_properties", ())]
        config: dict[str, object] = {"reconfigEnabled": "true", "readonlymode.enabled": "true"}
        config |= {name.removeprefix("zookeeper."): value for name, _, value in lines + properties if value}
        self._home = tempfile.TemporaryDirectory(prefix="zoolet-kazoo-")
        if jaas := options.get("jaas_config"):
            file = Path(self._home.name, "jaas.conf")
            file.write_text(jaas)
            config["java.security.auth.login.config"] = str(file)
        self._cluster = testing.Cluster(int(options["size"]), config=config)
        self._cluster.start()

    def __getitem__(self, index: int) -> _KazooMember:
        return _KazooMember(self._cluster, index)

    def __iter__(self) -> Any:
        return iter([self[index] for index in range(len(self._cluster))])

    def start(self) -> None:
        """Start all members."""
        if not self._cluster.running:
            self._cluster.start()
        for member in self:
            member.run()

    def stop(self) -> None:
        """Stop all members."""
        for member in self:
            member.stop()

    def reset(self) -> None:
        """Remove all data."""
        self._cluster.reset()

    def terminate(self) -> None:
        """Stop the whole cluster permanently."""
        self._cluster.stop()

    def get_logs(self) -> list[str]:
        """Return no logs."""
        return []

    get_ssl_client_configuration = Cluster.get_ssl_client_configuration


IS_CLUSTER = os.environ["ZOOKEEPER_CLUSTER_SIZE"] != "1"
used: Any = ClusterAdapter if IS_CLUSTER else Cluster
common.ZookeeperCluster = used
import kazoo.testing.harness  # noqa: E402 - after its cluster has been replaced

kazoo.testing.harness.ZookeeperCluster = used


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that cannot run here, with their reasons."""
    for item in items:
        for name, reason in SKIPPED.items():
            if IS_CLUSTER and reason == ENSEMBLE:
                continue
            if item.nodeid.endswith(f"::{name}"):
                item.add_marker(pytest.mark.skip(reason=reason))
