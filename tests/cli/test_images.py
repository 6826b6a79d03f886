"""Security variables of other images are applied or refused, never ignored."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest
from support.command import ZOOLET, zoolet
from support.images import build_container_config

from zoolet.cli.images import expand_file_variables, ineffective_variables
from zoolet.client.blocking import Client
from zoolet.server.config import ConfigError, Setting, build

CONTAINER_COMMAND: Final = (*ZOOLET, "container")
TLS: Final = {"ZOO_TLS_CLIENT_ENABLE": "yes", "ZOO_TLS_CLIENT_KEYSTORE_FILE": "/k.pem"}
CONFLUENT_TLS_VARIABLES: Final = {"ZOOKEEPER_SECURE_CLIENT_PORT": "2281", "ZOOKEEPER_SSL_KEYSTORE_LOCATION": "/k.pem"}
USER_VARIABLES: Final = {"ZOO_ENABLE_AUTH": "yes", "ZOO_SERVER_USERS": "bob", "ZOO_SERVER_PASSWORDS": "secret"}


# --- users ---


@pytest.mark.parametrize(
    ("users", "passwords"),
    [("kafka,other", "1,2"), ("kafka, other", "1, 2"), ("kafka;other", " 1  2 "), ("kafka,,other,", "1;2;")],
)
def test_user_names_and_passwords_are_paired_in_order(users: str, passwords: str) -> None:
    config = build_container_config(ZOO_ENABLE_AUTH="yes", ZOO_SERVER_USERS=users, ZOO_SERVER_PASSWORDS=passwords)

    assert config.settings.sasl_users == {"kafka": "1", "other": "2"}
    assert config.settings.require_auth == {"sasl"}


@pytest.mark.parametrize(
    ("users", "passwords", "reason"),
    [
        ("a", "", "found 1 in ZOO_SERVER_USERS, 0 in ZOO_SERVER_PASSWORDS"),
        ("a,b", "1,", "found 2 in ZOO_SERVER_USERS, 1 in ZOO_SERVER_PASSWORDS"),
        ("a,b", "1,2,3", "found 2 in ZOO_SERVER_USERS, 3 in ZOO_SERVER_PASSWORDS"),
        ("", "", "found 0 in ZOO_SERVER_USERS, 0 in ZOO_SERVER_PASSWORDS"),
        (",", "1,2", "found 0 in ZOO_SERVER_USERS, 2 in ZOO_SERVER_PASSWORDS"),
        ("a,a", "1,2", "contains the user 'a' twice"),
    ],
)
def test_number_of_users_and_passwords_must_match(users: str, passwords: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        build_container_config(ZOO_ENABLE_AUTH="yes", ZOO_SERVER_USERS=users, ZOO_SERVER_PASSWORDS=passwords)


def test_password_may_contain_punctuation() -> None:
    config = build_container_config(**USER_VARIABLES | {"ZOO_SERVER_PASSWORDS": 'a"b\\c:{'})

    assert config.settings.sasl_users == {"bob": 'a"b\\c:{'}


@pytest.mark.slow
def test_container_writes_no_password_to_disk(tmp_path: Path) -> None:
    environ = {
        **os.environ,
        **USER_VARIABLES,
        "ZOO_PORT": "0",
        "ZOO_DATA_DIR": str(tmp_path / "data"),
        "TMPDIR": str(tmp_path),
    }
    with subprocess.Popen(CONTAINER_COMMAND, env=environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().rpartition(":")[2].strip()
            with Client(f"127.0.0.1:{port}", login=("bob", "secret")) as zk:
                assert zk.create("/a", b"") == "/a"
        finally:
            process.kill()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]

    assert files
    assert [path for path in files if b"secret" in path.read_bytes()] == []


# --- TLS ---


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (TLS | {"ZOO_TLS_CLIENT_TRUSTSTORE_FILE": "/t.pem"}, (None, 3181, "need")),
        (TLS | {"ZOO_TLS_CLIENT_AUTH": "none", "ZOO_TLS_PORT_NUMBER": "3"}, (None, 3, "none")),
        (CONFLUENT_TLS_VARIABLES, (None, 2281, "none")),
        (CONFLUENT_TLS_VARIABLES | {"ZOOKEEPER_CLIENT_PORT": "2182"}, (2182, 2281, "none")),
        (CONFLUENT_TLS_VARIABLES | {"ZOOKEEPER_SSL_TRUSTSTORE_LOCATION": "/t.pem"}, (None, 2281, "need")),
        ({"ZOO_CFG_EXTRA": "secureClientPort=2281 ssl.keyStore.location=/k.pem"}, (2181, 2281, "none")),
        (TLS | {"ZOO_TLS_CLIENT_ENABLE": "no"}, (2181, None, "none")),
    ],
)
def test_tls_variables_of_each_image_open_its_ports(environment: dict[str, str], expected: tuple[object, ...]) -> None:
    config = build_container_config(**environment)

    assert (config.port, config.secure_port, config.tls.client_auth) == expected


def test_key_store_variable_is_ignored_if_tls_is_disabled() -> None:
    extra = "secureClientPort=2281 ssl.keyStore.location=/k.pem"

    config = build_container_config(
        ZOO_CFG_EXTRA=extra, ZOO_TLS_CLIENT_ENABLE="no", ZOO_TLS_CLIENT_KEYSTORE_FILE="/other.pem"
    )

    assert config.tls.key_store == "/k.pem"


# --- variables that cannot be applied ---


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        # invalid booleans
        ({"ZOO_ENABLE_AUTH": "enabled"}, "ZOO_ENABLE_AUTH must be yes or no, not 'enabled'"),
        ({"ZOO_ENABLE_AUTH": "on"}, "ZOO_ENABLE_AUTH must be yes or no"),
        ({"ZOO_TLS_CLIENT_ENABLE": "y"}, "ZOO_TLS_CLIENT_ENABLE must be yes or no"),
        ({"ALLOW_ANONYMOUS_LOGIN": "never"}, "ALLOW_ANONYMOUS_LOGIN must be yes or no"),
        ({"ZOO_ENABLE_QUORUM_AUTH": "maybe"}, "ZOO_ENABLE_QUORUM_AUTH must be yes or no"),
        ({"ZOOKEEPER_SSL_CRL": "on"}, r"ssl\.crl must be true or false"),
        ({"ZOOKEEPER_SKIP_ACL": "maybe"}, "skipACL must be yes or no"),
        ({"ZOO_FIPS_MODE": "yes"}, "ZOO_FIPS_MODE=yes is not supported"),
        # incomplete settings
        ({"ZOO_SERVER_USERS": "a"}, "ZOO_SERVER_USERS requires ZOO_ENABLE_AUTH=yes"),
        ({"ZOO_SERVER_PASSWORDS": "a"}, "ZOO_SERVER_PASSWORDS requires ZOO_ENABLE_AUTH=yes"),
        ({"ALLOW_ANONYMOUS_LOGIN": "no"}, "ALLOW_ANONYMOUS_LOGIN=no requires ZOO_ENABLE_AUTH=yes"),
        ({"ALLOW_EMPTY_PASSWORD": "no"}, "ALLOW_EMPTY_PASSWORD=no requires ZOO_ENABLE_AUTH=yes"),
        ({"ZOO_TLS_CLIENT_KEYSTORE_FILE": "/k"}, "ZOO_TLS_CLIENT_KEYSTORE_FILE requires ZOO_TLS_CLIENT_ENABLE=yes"),
        ({"ZOO_TLS_PORT_NUMBER": "1"}, "ZOO_TLS_PORT_NUMBER requires ZOO_TLS_CLIENT_ENABLE=yes"),
        ({"ZOO_TLS_CLIENT_ENABLE": "yes"}, r"requires ssl\.(keyStore|trustStore)\.location"),
        (TLS, r"ssl\.clientAuth requires ssl\.trustStore\.location"),
        (TLS | {"ZOO_TLS_CLIENT_AUTH": "always"}, r"ssl\.clientAuth must be"),
        ({"ZOOKEEPER_SECURE_CLIENT_PORT": "2281"}, r"requires ssl\.keyStore\.location"),
        ({"ZOOKEEPER_SSL_KEYSTORE_LOCATION": "/k.pem"}, "requires secureClientPort"),
        (CONFLUENT_TLS_VARIABLES | {"ZOOKEEPER_SSL_CLIENT_AUTH": "need"}, r"requires ssl\.trustStore\.location"),
        # features that zoolet does not have
        (CONFLUENT_TLS_VARIABLES | {"ZOOKEEPER_SSL_CRL": "true"}, r"ssl\.crl=true is not supported"),
        (CONFLUENT_TLS_VARIABLES | {"ZOOKEEPER_SSL_OCPS": "true"}, r"ssl\.ocsp=true is not supported"),
        (CONFLUENT_TLS_VARIABLES | {"ZOOKEEPER_SSL_AUTH_PROVIDER": "mine"}, r"ssl\.authProvider=mine is not supported"),
        ({"ZOOKEEPER_AUTH_PROVIDER_SASL": "a.B"}, r"authProvider\.sasl=a\.B is not supported"),
        # misspelt names
        ({"ZOO_ENABLE_AUHT": "yes"}, "unknown environment variable ZOO_ENABLE_AUHT.*ZOO_ENABLE_AUTH"),
        ({"ZOO_SERVER_USER": "a"}, "unknown environment variable ZOO_SERVER_USER"),
        ({"ZOO_TLS_ENABLE": "yes"}, "unknown environment variable ZOO_TLS_ENABLE"),
        ({"ZOOKEEPER_SASL_ENABLED": "true"}, "ZOOKEEPER_SASL_ENABLED=yes is only for Kafka brokers"),
        ({"ZOOKEEPER_SECURE_PORT": "1"}, "unknown environment variable ZOOKEEPER_SECURE_PORT"),
        ({"ALLOW_ANONYMUS_LOGIN": "no"}, "unknown environment variable ALLOW_ANONYMUS_LOGIN"),
        ({"ZOO_CFG_ssl_clientAut": "need"}, r"ZOO_CFG_ssl_clientAut: unknown key ssl\.clientAut"),
        ({"ZOO_CFG_EXTRA": "sessionRequireClientSASLAut=true"}, "ZOO_CFG_EXTRA: unknown key"),
        ({"ZOO_CFG_EXTRA": "sessionRequireClientSASLAuth true"}, "sessionRequireClientSASLAuth must be true or false"),
        ({"JVMFLAGS": "-Dzookeeper.sslClientAuth=need"}, r"JVMFLAGS: unknown key zookeeper\.sslClientAuth"),
        ({"JVMFLAGS": "-DsessionRequireClientSASLAuht=true"}, "unknown key sessionRequireClientSASLAuht"),
        ({"JVMFLAGS": "-Dzookeeper.ssl.keyStore.location=/x"}, "requires secureClientPort"),
        ({"ZOOKEEPER_4LW_COMMANDS_WHITELIST": "ruok"}, "unknown environment variable ZOOKEEPER_4LW"),
        ({"ZOO_CLIENT_PORT_ADDRESS": "::1"}, "unknown environment variable ZOO_CLIENT_PORT_ADDRESS"),
        ({"ZOO_CFG_EXTRA": "clientPortAdress=127.0.0.1"}, "unknown key clientPortAdress"),
        ({"ZOO_CFG_EXTRA": "admin.forceHttps=true"}, r"admin\.forceHttps=true is not supported"),
        (USER_VARIABLES | {"ZOO_CFG_sessionRequireClientSASLAuth": "false"}, "must be true if ZOO_ENABLE_AUTH is yes"),
        (
            USER_VARIABLES | {"ZOO_CFG_EXTRA": "zookeeper.sessionRequireClientSASLAuth=false"},
            "must be true if ZOO_ENABLE_AUTH",
        ),
    ],
)
def test_security_variables_that_cannot_be_applied_are_refused(environment: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        build_container_config(**environment)


@pytest.mark.parametrize("name", ["ZOO_ENABLE_AUTH", "ZOO_SERVER_USERS", "ZOO_TLS_CLIENT_ENABLE", "ZOO_ENABLE_AUHT"])
def test_empty_container_variable_counts_as_unset(name: str) -> None:
    assert build_container_config(**{name: ""}).settings.require_auth == frozenset()


@pytest.mark.parametrize(
    "environment",
    [
        {"ZOO_ENABLE_AUTH": "no", "ZOO_SERVER_USERS": "a", "ZOO_SERVER_PASSWORDS": "b"},
        {"ALLOW_ANONYMOUS_LOGIN": "yes"},
        {"ZOO_TLS_QUORUM_ENABLE": "yes", "ZOO_TLS_QUORUM_KEYSTORE_FILE": "/k", "ZOO_ENABLE_QUORUM_AUTH": "yes"},
        {"ZOOKEEPER_SSL_QUORUM": "true", "ZOOKEEPER_SSL_QUORUM_KEYSTORE_LOCATION": "/k"},
    ],
)
def test_open_server_is_allowed_without_security(environment: dict[str, str]) -> None:
    config = build_container_config(**environment)

    assert (config.port, config.settings.require_auth) == (2181, frozenset())


@pytest.mark.parametrize(
    ("environment", "address"),
    [
        ({"ZOO_CFG_server_1": "localhost:2888:3888;127.0.0.1:2182"}, ("127.0.0.1", 2182)),
        ({"ZOO_CFG_EXTRA": "server.1=localhost:2888:3888;127.0.0.1:2182"}, ("127.0.0.1", 2182)),
        ({"ZOO_SERVERS": "server.1=localhost:2888:3888;2181", **TLS, "ZOO_TLS_CLIENT_AUTH": "none"}, None),
        ({"JVMFLAGS": "-Dzookeeper.clientPort=2181", **TLS, "ZOO_TLS_CLIENT_AUTH": "none"}, None),
        ({"ZOO_PORT_NUMBER": "2181", **TLS, "ZOO_TLS_CLIENT_AUTH": "none"}, None),
        ({"ZOO_SERVERS": "server.1=localhost:2888:3888;2181", **CONFLUENT_TLS_VARIABLES}, None),
        ({"ZOOKEEPER_SECURE_CLIENT_PORT": " "}, (None, 2181)),
        ({"ZOO_SERVERS": "server.1=zoo1:2888:3888;"}, (None, 2181)),
        ({"ZOO_SERVERS": "[fd00::1]:2888:3888::1"}, (None, 2181)),
    ],
)
def test_default_port_is_opened_only_without_other_address(
    environment: dict[str, str], address: tuple[str | None, int] | None
) -> None:
    config = build_container_config(**environment)

    assert config.port is None if address is None else (config.host, config.port) == address


@pytest.mark.parametrize("servers", ["a:1:2::1;b:1:2::2", "a:1:2;b:1:2", "a:1:2 b:1:2", "a:1:2,b:1:2", "a:1:2\nb:1:2"])
def test_bitnami_servers_allow_any_separator(servers: str) -> None:
    with pytest.raises(ConfigError, match="2 servers are configured"):
        build_container_config(ZOO_SERVERS=servers)


def test_client_port_address_applies_to_tls_without_plain_port() -> None:
    config = build_container_config(**CONFLUENT_TLS_VARIABLES, ZOOKEEPER_CLIENT_PORT_ADDRESS="127.0.0.1")

    assert (config.port, config.secure_host) == (None, "127.0.0.1")


@pytest.mark.parametrize("name", ["ZOOKEEPER_ADDRESS", "ZOOKEEPER_SASL_ENABLED", "ZOO_LOG4J_PROP"])
def test_variable_of_unrelated_software_is_accepted(name: str) -> None:
    assert build_container_config(**{name: "false"}).port == 2181


# --- system properties in variables with options of Java ---


def test_last_of_two_spellings_of_key_applies() -> None:
    extra = "skipACL=no zookeeper.skipACL=yes skipACL=no"
    options = {"KAFKA_OPTS": "-Dzookeeper.skipACL=yes -DskipACL=yes", "JVMFLAGS": "-Dzookeeper.skipACL=no"}

    assert not build_container_config(ZOO_CFG_EXTRA=extra).settings.skip_acl
    assert not build_container_config(**options).settings.skip_acl


def test_tls_options_of_java_clients_do_not_open_tls_port() -> None:
    options = "-Dzookeeper.client.secure=true -Dzookeeper.ssl.trustStore.location=/t.pem"

    assert build_container_config(JVMFLAGS=options).secure_port is None


@pytest.mark.parametrize("name", ["KAFKA_OPTS", "KAFKA_JMX_OPTS", "JVMFLAGS", "SERVER_JVMFLAGS", "JAVA_TOOL_OPTIONS"])
def test_java_system_properties_in_variables_are_applied(name: str) -> None:
    config = build_container_config(**{name: "-Xmx1g -Dzookeeper.sessionRequireClientSASLAuth=true"})

    assert config.settings.require_auth == {"sasl"}


def test_java_properties_override_only_defaults_of_variables() -> None:
    options = "-Dzookeeper.admin.serverAddress=::1 -Dzookeeper.4lw.commands.whitelist=ruok -Dzookeeper.snapCount=7"

    config = build_container_config(JVMFLAGS=options, ZOO_SNAPCOUNT="9")

    assert (config.admin.host, config.whitelist, config.storage.snap_count) == ("::1", ("ruok",), 9)


def test_jvmflags_take_precedence_over_kafka_opts() -> None:
    environment = {"JVMFLAGS": "-Dzookeeper.snapCount=8", "KAFKA_OPTS": "-Dzookeeper.snapCount=7"}

    assert build_container_config(**environment).storage.snap_count == 8


# --- the admin port, and a mounted file ---


@pytest.mark.parametrize(
    ("environment", "is_open"),
    [
        ({"ZOO_ENABLE_ADMIN_SERVER": "no", "ZOO_ADMIN_SERVER_PORT_NUMBER": "8081"}, False),
        ({"ZOO_ADMIN_SERVER_PORT_NUMBER": "8081"}, False),
        ({"ZOO_ENABLE_ADMIN_SERVER": "yes"}, True),
        ({"ZOO_ADMINSERVER_ENABLED": "true", "ZOO_ADMIN_SERVER_PORT_NUMBER": "8081"}, True),
    ],
)
def test_admin_port_is_open_only_if_enabled(environment: dict[str, str], is_open: bool) -> None:
    assert (build_container_config(**environment).admin.port is not None) is is_open


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        (USER_VARIABLES, ["ZOO_ENABLE_AUTH", "ZOO_SERVER_PASSWORDS", "ZOO_SERVER_USERS"]),
        (CONFLUENT_TLS_VARIABLES, ["ZOOKEEPER_SECURE_CLIENT_PORT", "ZOOKEEPER_SSL_KEYSTORE_LOCATION"]),
        ({"ZOO_CFG_EXTRA": "ssl.clientAuth=need"}, ["ZOO_CFG_EXTRA"]),
        ({"ALLOW_ANONYMOUS_LOGIN": "no"}, ["ALLOW_ANONYMOUS_LOGIN"]),
        ({"ALLOW_ANONYMOUS_LOGIN": "yes", "ZOO_ENABLE_AUTH": "no", "ZOO_TICK_TIME": "1", "ZOO_SERVER_USERS": ""}, []),
        ({"ZOO_CFG_EXTRA": "tickTime=1", "PATH": "/auth"}, []),
        ({"ZOO_CFG_DigestAuthenticationProvider_enabled": "false"}, ["ZOO_CFG_DigestAuthenticationProvider_enabled"]),
        ({"ZOO_4LW_COMMANDS_WHITELIST": "ruok"}, ["ZOO_4LW_COMMANDS_WHITELIST"]),
        ({"ZOO_4LW_COMMANDS_WHITELIST": "srvr, mntr, ruok", "ZOO_ADMIN_SERVER_PORT_NUMBER": "8080"}, []),
        ({"ZOO_ADMIN_SERVER_ADDRESS": "::1"}, ["ZOO_ADMIN_SERVER_ADDRESS"]),
        ({"ZOOKEEPER_CLIENT_PORT_ADDRESS": "127.0.0.1"}, ["ZOOKEEPER_CLIENT_PORT_ADDRESS"]),
        ({"ZOO_ADMINSERVER_ENABLED": "true", "ZOO_ENABLE_ADMIN_SERVER": "yes", "ZOO_MY_ID": "1"}, []),
        ({"ZOO_ADMINSERVER_ENABLED": "false"}, ["ZOO_ADMINSERVER_ENABLED"]),
        ({"ALLOW_ANONYMOUS_LOGIN": " no "}, ["ALLOW_ANONYMOUS_LOGIN"]),
        ({"ZOO_ENABLE_AUTH": " no", "ZOO_QUORUM_LEARNER_PASSWORD": "x", "ZOO_CLIENT_PASSWORD": "y"}, []),
    ],
)
def test_security_variables_ignored_with_mounted_file_are_found(environment: dict[str, str], names: list[str]) -> None:
    file = {"4lw.commands.whitelist": "ruok, srvr", "admin.serverPort": "8080", "clientPort": "2181"}
    config = build({key: Setting(value, "zoo.cfg:1") for key, value in file.items()})

    assert ineffective_variables(expand_file_variables(environment), config) == names


@pytest.mark.slow
def test_properties_in_java_env_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "java.env").write_text('export JVMFLAGS="-Dzookeeper.sessionRequireClientSASLAuth=true"\n')

    done = zoolet("container", ZOO_CONF_DIR=str(tmp_path))

    assert done.returncode == 2
    assert "java.env is not supported; set its options in the environment variable JVMFLAGS" in done.stderr


@pytest.mark.slow
def test_security_variable_for_mounted_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "zoo.cfg").write_text("clientPort=0\n")

    done = zoolet("container", ZOO_CONF_DIR=str(tmp_path), ZOO_ENABLE_AUTH="yes")

    assert done.returncode == 2
    assert done.stderr.startswith("zoolet container: variables without effect, because ")
    assert ": ZOO_ENABLE_AUTH; set their keys in " in done.stderr
    assert done.stderr.count("\n") == 1
