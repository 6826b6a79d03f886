"""The container's entry point: it applies the variables of three other images, and starts the daemon."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from support.command import ZOOLET, zoolet
from support.images import build_container_config
from support.waiting import DEADLINE_S

from zoolet.cli.container import status_words
from zoolet.cli.images import expand_file_variables, unknown_variables
from zoolet.client.blocking import Client
from zoolet.server.config import ConfigError

TLS_VARIABLES: Final = {
    "ZOO_TLS_CLIENT_ENABLE": "1",
    "ZOO_TLS_CLIENT_KEYSTORE_FILE": "/k.pem",
    "ZOO_TLS_CLIENT_AUTH": "none",
}


def test_default_container_serves_and_keeps_data() -> None:
    config = build_container_config()

    assert (config.host, config.port, config.storage.data_dir) == (None, 2181, "/data")
    assert config.admin.port is None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        # the official image
        ({"ZOO_TICK_TIME": "500", "ZOO_MAX_CLIENT_CNXNS": "7"}, {"settings.tick_time": 500, "max_client_cnxns": 7}),
        ({"ZOO_DATA_DIR": "/d", "ZOO_DATA_LOG_DIR": "/l"}, {"storage.data_dir": "/d", "storage.log_dir": "/l"}),
        ({"ZOO_ADMINSERVER_ENABLED": "true"}, {"admin.port": 8080, "admin.host": "0.0.0.0"}),
        ({"ZOO_ADMINSERVER_ENABLED": "false"}, {"admin.port": None}),
        ({"ZOO_CFG_EXTRA": "jute.maxbuffer=4096 snapCount=10"}, {"settings.max_frame": 4096, "storage.snap_count": 10}),
        ({"ZOO_SERVERS": "server.1=zoo1:2888:3888;2182"}, {"port": 2182}),
        ({"ZOO_4LW_COMMANDS_WHITELIST": "*"}, {"whitelist": ("*",)}),
        # Bitnami's
        ({"ALLOW_EMPTY_PASSWORD": "yes"}, {"storage.data_dir": "/bitnami/zookeeper/data"}),
        ({"ALLOW_ANONYMOUS_LOGIN": "yes"}, {"storage.data_dir": "/bitnami/zookeeper/data"}),
        ({"ZOO_SERVER_ID": "1"}, {"storage.data_dir": "/bitnami/zookeeper/data"}),
        ({"ZOO_PORT_NUMBER": "2183", "ZOO_MAX_CNXNS": "9"}, {"port": 2183, "max_cnxns": 9}),
        ({"ZOO_ENABLE_ADMIN_SERVER": "yes", "ZOO_ADMIN_SERVER_PORT_NUMBER": "8081"}, {"admin.port": 8081}),
        ({"ZOO_ENABLE_PROMETHEUS_METRICS": "yes"}, {"admin.metrics": True, "admin.metrics_port": 7000}),
        ({"ZOO_CFG_jute_maxbuffer": "8192"}, {"settings.max_frame": 8192}),
        ({"ZOO_SERVERS": "zookeeper:2888:3888::1"}, {"port": 2181}),
        # Confluent's
        ({"ZOOKEEPER_CLIENT_PORT": "2184"}, {"port": 2184, "storage.data_dir": "/var/lib/zookeeper/data"}),
        ({"ZOOKEEPER_TICK_TIME": "1000", "ZOOKEEPER_SYNC_LIMIT": "2"}, {"settings.tick_time": 1000}),
    ],
)
def test_variables_of_each_container_image_set_configuration(
    environment: dict[str, str], expected: dict[str, Any]
) -> None:
    config = build_container_config(**environment)

    for name, value in expected.items():
        found: Any = config
        for part in name.split("."):
            found = getattr(found, part)
        assert found == value, name


def test_unknown_container_variables_are_reported() -> None:
    environment = {"ZOO_TIC_TIME": "1", "ZOO_CFG_x": "", "ZOO_TICK_TIME": "1", "PATH": ""}

    assert unknown_variables(environment) == ["ZOO_TIC_TIME"]


def test_ensemble_variables_are_refused() -> None:
    servers = "server.1=a:2888:3888;2181 server.2=b:2888:3888;2181"

    with pytest.raises(ConfigError, match="2 servers are configured"):
        build_container_config(ZOO_SERVERS=servers)


def test_variables_of_kubernetes_services_are_ignored() -> None:
    environment = {
        "ZOO_PORT": "tcp://10.0.0.1:2182",
        "ZOOKEEPER_SECURE_CLIENT_PORT": "tcp://10.0.0.1:2281",
        "ZOO_TLS_SERVICE_HOST": "10.0.0.1",
        "ZOO_TLS_SERVICE_PORT": "2281",
        "ZOO_TLS_SERVICE_PORT_CLIENT": "2281",
        "ZOO_TLS_PORT_2281_TCP": "tcp://10.0.0.1:2281",
        "ZOO_TLS_PORT_2281_TCP_ADDR": "10.0.0.1",
    }

    assert build_container_config(**environment).port == 2181
    assert expand_file_variables(environment) == {}


def test_container_variable_ending_in_file_is_read_from_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("s3cret\n")

    before: dict[str, str]
    (tmp_path / "blank").write_text(" \n")
    blank = {"ZOO_ENABLE_AUTH": "yes", "ZOO_ENABLE_AUTH_FILE": str(tmp_path / "blank")}
    assert expand_file_variables(blank)["ZOO_ENABLE_AUTH"] == "yes"
    for before in ({}, {"ZOO_SERVER_PASSWORDS": ""}, {"ZOO_SERVER_PASSWORDS": "old"}):
        environment = before | {"ZOO_SERVER_PASSWORDS_FILE": str(file)}
        assert expand_file_variables(environment)["ZOO_SERVER_PASSWORDS"] == "s3cret"
    with pytest.raises(ConfigError, match="ZOO_SERVER_PASSWORDS_FILE: cannot read /none: No such file"):
        expand_file_variables({"ZOO_SERVER_PASSWORDS_FILE": "/none"})


def test_error_of_invalid_value_names_variable() -> None:
    with pytest.raises(ConfigError, match="environment variable ZOO_TICK_TIME: tickTime must be a whole number"):
        build_container_config(ZOO_TICK_TIME="soon")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, ["127.0.0.1:2181"]),
        ({"ZOO_PORT_NUMBER": "9"}, ["127.0.0.1:9"]),
        (TLS_VARIABLES, ["http://127.0.0.1:8080/readyz"]),
        (TLS_VARIABLES | {"ZOO_ADMIN_SERVER_PORT_NUMBER": "8080"}, ["tls://127.0.0.1:3181"]),
        ({"ZOO_SERVERS": "server.1=localhost:2888:3888;2182"}, ["127.0.0.1:2182"]),
        ({"ZOO_CFG_clientPortAddress": "::"}, ["127.0.0.1:2181"]),
        ({"ZOO_CFG_clientPortAddress": "::1"}, ["[::1]:2181"]),
        ({"ZOOKEEPER_CLIENT_PORT": "9", "ZOOKEEPER_CLIENT_PORT_ADDRESS": "10.0.0.7"}, ["10.0.0.7:9"]),
        ({"JVMFLAGS": "-Dzookeeper.clientPort=9"}, ["127.0.0.1:9"]),
    ],
)
def test_health_check_uses_port_of_container(environment: dict[str, str], words: list[str]) -> None:
    assert status_words(environment) == words


@pytest.mark.slow
def test_health_check_without_plain_port_uses_tls_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        environ = {**TLS_VARIABLES, "ZOO_TLS_PORT_NUMBER": str(port), "ZOO_ENABLE_ADMIN_SERVER": "no"}
        healthy = zoolet("container", "status", **environ)
    closed = zoolet("container", "status", **environ)

    assert (healthy.returncode, healthy.stdout) == (0, f"127.0.0.1:{port} accepts connections\n")
    assert (closed.returncode, closed.stdout) == (1, f"cannot connect to 127.0.0.1:{port}: connection refused\n")


@pytest.mark.parametrize("words", [[], ["zkServer.sh", "start-foreground"]])
def test_container_accepts_environment_of_official_image(tmp_path: Path, words: list[str]) -> None:
    environ = {**os.environ, "ZOO_PORT": "0", "ZOO_DATA_DIR": str(tmp_path), "ZOO_ADMINSERVER_ENABLED": "false"}
    command = [*ZOOLET, "container", *words]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = re.fullmatch(r"zoolet ready on 0\.0\.0\.0:(\d+)\n", process.stdout.readline())
        assert ready is not None
        with Client(f"127.0.0.1:{ready[1]}") as zk:
            assert zk.create("/a", b"") == "/a"
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
    assert list(tmp_path.glob("version-2/log.*"))


def test_mounted_zoo_cfg_is_used_without_environment_variables(tmp_path: Path) -> None:
    (tmp_path / "zoo.cfg").write_text(f"clientPort=0\nclientPortAddress=127.0.0.1\ndataDir={tmp_path}/data\n")
    environ = {**os.environ, "ZOO_CONF_DIR": str(tmp_path), "ZOO_TICK_TIME": "nonsense"}
    with subprocess.Popen([*ZOOLET, "container"], env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("zoolet ready on 127.0.0.1:")
        process.terminate()
        assert process.wait(DEADLINE_S) == 0


def test_command_given_to_container_replaces_daemon() -> None:
    done = zoolet("container", "echo", "hello")

    assert (done.returncode, done.stdout) == (0, "hello\n")


@pytest.mark.parametrize("separator", [[], ["--"]])
def test_subcommand_given_to_container_keeps_its_options(separator: list[str]) -> None:
    command = ["sh", "-c", "echo $0 $*", "-Da=b", "--host", "0.0.0.0"]
    done = zoolet("container", *separator, *command)

    assert (done.returncode, done.stdout, done.stderr) == (0, "-Da=b --host 0.0.0.0\n", "")


def test_container_command_that_is_missing_exits_with_127() -> None:
    done = zoolet("container", "no-such-command")

    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr == "zoolet container: cannot run no-such-command: no such file or directory\n"
