"""The combination of TLS keys: which port is opened, and which incomplete configurations are refused.

Source: QuorumPeerConfig.parseProperties, setupClientPort; X509Util; SSLContextAndOptions.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from support.configuration import build_config, config_error

from zoolet.server.config import (
    ConfigError,
    ServerConfig,
    Setting,
    SettingSource,
    build,
    parse_definitions,
    read_environment,
)
from zoolet.testing import Server

STORE = "secureClientPort=0\nssl.keyStore.location=/k.pem\n"


def test_secure_port_alone_opens_no_plain_port() -> None:
    config = build_config(STORE)

    assert (config.port, config.secure_port) == (None, 0)


def test_plain_and_secure_ports_are_configurable() -> None:
    config = build_config(STORE + "clientPort=2182\n")

    assert (config.port, config.secure_port) == (2182, 0)


@pytest.mark.parametrize("port", [2281, 0])
def test_secure_port_without_certificate_is_refused(port: int) -> None:
    message = config_error(f"# comment\nsecureClientPort={port}\n")

    assert message.startswith("zoo.cfg:2: ")
    assert "secureClientPort requires ssl.keyStore.location (--tls-cert)" in message


@pytest.mark.parametrize(
    "line",
    [
        "ssl.keyStore.location=/k.pem",
        "ssl.trustStore.location=/t.pem",
        "ssl.clientAuth=need",
        "ssl.keyStore.password=none",
        "secureClientPortAddress=127.0.0.1",
        "secureClientPortAddress=",
        "ssl.enabledProtocols=TLSv1.3",
        "ssl.ciphersuites=TLS_AES_128_GCM_SHA256",
        "ssl.keyStore.key.location=/k.pem",
    ],
)
def test_tls_without_a_secure_port_is_refused(line: str) -> None:
    message = config_error(f"clientPort=2181\n{line}\n")

    assert message.startswith("zoo.cfg:2: ")
    assert line.partition("=")[0] in message
    assert "secureClientPort" in message


@pytest.mark.parametrize("demand", ["need", "want", "NEED"])
def test_client_auth_without_authorities_is_refused(demand: str) -> None:
    message = config_error(STORE + f"ssl.clientAuth={demand}\n")

    assert message.startswith("zoo.cfg:3: ")
    assert "ssl.trustStore.location (--tls-ca)" in message


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", "none"),
        ("ssl.trustStore.location=/t.pem\n", "need"),
        ("ssl.trustStore.location=/t.pem\nssl.clientAuth=want\n", "want"),
        ("ssl.trustStore.location=/t.pem\nssl.clientAuth=none\n", "none"),
        ("ssl.clientAuth=none\n", "none"),
        ("ssl.trustStore.location=/t.pem\nssl.clientAuth=Need\n", "need"),
    ],
)
def test_client_auth_is_read_from_its_configuration_keys(lines: str, expected: str) -> None:
    assert build_config(STORE + lines).tls.client_auth == expected


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("ssl.clientAuth=maybe", "need, want or none"),
        ("ssl.clientAuth=", "need, want or none"),
        ("ssl.protocol=TLSv1.1", "TLSv1.2, TLSv1.3 or both"),
        ("ssl.protocol=SSLv3", "TLSv1.2, TLSv1.3 or both"),
        ("ssl.enabledProtocols=TLSv1,TLSv1.2", "TLSv1.2, TLSv1.3 or both"),
        ("ssl.enabledProtocols=", "TLSv1.2, TLSv1.3 or both"),
        ("ssl.keyStore.type=BCFKS", "PEM, JKS or PKCS12"),
        ("ssl.trustStore.type=WINDOWS", "PEM, JKS or PKCS12"),
        ("ssl.keyStore.location=/k.bcfks", "(BCFKS cannot be read)"),
        ("secureClientPort=65536", "a whole number from 0 to 65535"),
        ("secureClientPort=yes", "a whole number from 0 to 65535"),
    ],
)
def test_invalid_tls_value_is_refused(line: str, remedy: str) -> None:
    message = config_error(STORE + line + "\n")

    assert message.startswith("zoo.cfg:3: ")
    assert f"{line.partition('=')[0]} must be" in message
    assert remedy in message


@pytest.mark.parametrize("key", ["ssl.keyStore.passwordPath", "ssl.trustStore.passwordPath"])
def test_unreadable_password_file_is_refused_by_name(key: str) -> None:
    message = config_error(STORE + f"{key}=/nowhere/pw\n")

    assert message == f"zoo.cfg:3: {key}: cannot read /nowhere/pw: no such file or directory"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", {"TLSv1.2", "TLSv1.3"}),
        ("ssl.protocol=TLSv1.2\n", {"TLSv1.2"}),
        ("ssl.enabledProtocols=TLSv1.3\n", {"TLSv1.3"}),
        ("ssl.enabledProtocols=TLSv1.2, TLSv1.3\n", {"TLSv1.2", "TLSv1.3"}),
        ("ssl.protocol=TLSv1.2\nssl.enabledProtocols=TLSv1.3\n", {"TLSv1.3"}),
        ("ssl.enabledProtocols=TLSv1.3\nssl.protocol=TLSv1.2\n", {"TLSv1.3"}),
    ],
)
def test_tls_versions_are_read_from_keys(lines: str, expected: set[str]) -> None:
    # SSLContextAndOptions: the key lists the enabled protocols; ssl.protocol is used only if that key is missing
    assert build_config(STORE + lines).tls.protocols == expected


def test_password_file_overrides_password_in_any_order(tmp_path: Path) -> None:
    # as in X509Util.getPasswordFromConfigPropertyOrFile of ZooKeeper
    (tmp_path / "pw").write_text("from the file\n")
    before = f"ssl.keyStore.passwordPath={tmp_path / 'pw'}\nssl.keyStore.password=inline\n"
    behind = f"ssl.keyStore.password=inline\nssl.keyStore.passwordPath={tmp_path / 'pw'}\n"

    assert build_config(STORE + behind).tls.key_store_password is None
    assert build_config(STORE + before).tls.key_store_password is None
    assert build_config(STORE + before).tls.key_store_password_path == str(tmp_path / "pw")


@pytest.mark.parametrize("argument", ["-Dssl.keyStore.password=hunter2", "-Dzookeeper.ssl.keyStore.password=hunter2"])
def test_error_message_hides_password_of_command_line(argument: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(parse_definitions([argument], "command line"))

    key = argument.partition("=")[0]
    assert str(caught.value) == f"command line: {key} requires secureClientPort (--secure-port)"


def test_error_message_hides_key_store_password() -> None:
    assert "hunter2" not in config_error("ssl.keyStore.password=hunter2\nsecureClientPort=1\n")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [("", None), ("secureClientPortAddress=127.0.0.5\n", "127.0.0.5"), ("secureClientPortAddress=[::1]\n", "::1")],
)
def test_tls_address_is_read_from_keys(lines: str, expected: str | None) -> None:
    assert build_config(STORE + lines).secure_host == expected


@pytest.mark.parametrize("options", [{"secureClientPort": "0"}, {"secureClientPort": "0", "clientPortAddress": "::1"}])
def test_tls_address_follows_client_port_address_option(options: dict[str, str]) -> None:
    file = {"ssl.keyStore.location": Setting("/k.pem", "zoo.cfg:1")}

    config = build(
        file, {name: Setting(value, "command line", SettingSource.OPTION) for name, value in options.items()}
    )

    assert config.secure_host == config.host == options.get("clientPortAddress", "127.0.0.1")


@pytest.mark.parametrize("value", ["none", "NONE"])
def test_disabled_client_auth_needs_no_secure_port(value: str) -> None:
    assert build_config(f"ssl.clientAuth={value}\n").tls.client_auth == "none"


def test_overridden_key_store_password_needs_secure_port(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("secret\n")
    environment = read_environment({"JVMFLAGS": shlex.quote(f"-Dssl.keyStore.passwordPath={tmp_path / 'pw'}")})

    with pytest.raises(ConfigError, match=r"^zoo\.cfg:1: ssl\.keyStore\.password requires secureClientPort"):
        build(environment, {"ssl.keyStore.password": Setting("secret", "zoo.cfg:1")})


def test_client_tls_keys_in_jvmflags_are_ignored() -> None:
    flags = "-Dzookeeper.ssl.keyStore.location=/k.pem -Dzookeeper.ssl.clientAuth=want -DsecureClientPortAddress=::1"

    config = build(read_environment({"JVMFLAGS": flags}))

    assert (config.secure_host, config.secure_port) == (ServerConfig().secure_host, None)


# --- an embedded server speaks no TLS ---


@pytest.mark.parametrize(
    "config",
    [
        {"secureClientPort": 0, "ssl.keyStore.location": "/k.pem"},
        {"ssl.keyStore.location": "/k.pem"},
        {"ssl.clientAuth": "need"},
        {"ssl.keyStore.password": "x"},
        {"ssl.enabledProtocols": "TLSv1.3"},
        {"ssl.ciphersuites": "TLS_AES_128_GCM_SHA256"},
    ],
    ids=lambda config: next(iter(config)),
)
def test_embedded_server_refuses_tls_keys(config: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"TLS|ssl|secureClientPort"):
        Server(config=config)
