"""A configuration is built from files, options and the environment.

Source: QuorumPeerConfig.parseProperties; zkServer.sh.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.configuration import build_config, config_error, write_jaas_file

from zoolet.server.config import (
    ConfigError,
    ServerConfig,
    Setting,
    SettingSource,
    UnknownKey,
    build,
    masked_lines,
    parse_definitions,
    parse_properties,
    read_environment,
    read_file,
)
from zoolet.testing import Server

# --- sources ---


def test_zoo_cfg_is_read_as_latin_1(tmp_path: Path) -> None:
    (tmp_path / "zoo.cfg").write_bytes(b"superUser=Ren\xe9\n")

    assert read_file(str(tmp_path / "zoo.cfg"))["superUser"].value == "Ren\xe9"


@pytest.mark.parametrize("text", ["", "# tickTime=2000\n", "[server]\nname: value\n"])
def test_file_without_zoo_cfg_key_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.cfg"
    path.write_text(text)

    with pytest.raises(ConfigError, match=r"other\.cfg does not look like a zoo\.cfg: found no key such"):
        read_file(str(path))


def test_error_names_missing_file(tmp_path: Path) -> None:
    path = str(tmp_path / "nowhere.cfg")

    with pytest.raises(ConfigError) as caught:
        read_file(path)

    assert str(caught.value) == f"cannot read {path}: no such file or directory"


def settings(**values: str) -> dict[str, Setting]:
    """Return the settings of one source."""
    return {key: Setting(value, "somewhere") for key, value in values.items()}


def option(key: str, value: str) -> dict[str, Setting]:
    """Return the setting of an option of the command line."""
    return {key: Setting(value, "command line", SettingSource.OPTION)}


def test_option_overrides_file_and_file_overrides_environment() -> None:
    environment, file, options = settings(tickTime="1"), settings(tickTime="2"), settings(tickTime="3")

    assert build(environment, file, options).settings.tick_time == 3
    assert build(environment, file, {}).settings.tick_time == 2
    assert build(environment, {}, {}).settings.tick_time == 1


def test_zookeeper_prefix_does_not_change_precedence_of_sources() -> None:
    file, option = {"zookeeper.tickTime": Setting("2", "file")}, {"tickTime": Setting("3", "option")}

    assert build({}, file, option).settings.tick_time == 3
    assert build({}, option, file).settings.tick_time == 2


def test_last_of_two_settings_of_same_key_applies() -> None:
    assert build_config("tickTime=1000\ntickTime=500\n").settings.tick_time == 500


def test_keys_of_all_sources_are_merged() -> None:
    config = build(settings(tickTime="100"), settings(maxCnxns="5"), settings(clientPort="1"))

    assert (config.settings.tick_time, config.max_cnxns, config.port) == (100, 5, 1)


def test_empty_configuration_equals_default_configuration() -> None:
    assert build({}, {}, {}) == ServerConfig()


# --- addresses ---


def test_only_localhost_is_served_without_port() -> None:
    assert (build_config("tickTime=500\n").host, build_config("tickTime=500\n").port) == ("127.0.0.1", 2181)


def test_zoo_cfg_with_client_port_serves_all_addresses() -> None:
    assert (build_config("clientPort=2182\n").host, build_config("clientPort=2182\n").port) == (None, 2182)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("server.1=localhost:2888:3888;2182", (None, 2182)),
        ("server.1=localhost:2888:3888:participant;10.0.0.5:2182", ("10.0.0.5", 2182)),
        ("server.1=localhost:2888:3888:PARTICIPANT;[::1]:2182", ("::1", 2182)),
        ("server.1=localhost:2888:3888;2182\nclientPort=2183", (None, 2183)),
        ("server.1=localhost:2888:3888", ("127.0.0.1", 2181)),
    ],
)
def test_port_is_read_from_line_of_single_server(line: str, expected: tuple[str | None, int]) -> None:
    config = build_config(line + "\n")

    assert (config.host, config.port) == expected


def test_port_option_opens_no_other_addresses() -> None:
    config = build({}, option("clientPort", "2182"))

    assert (config.host, config.port) == ("127.0.0.1", 2182)


def test_port_option_keeps_addresses_of_file() -> None:
    file = parse_properties("clientPort=2181\n", "zoo.cfg")

    assert (build(file, option("clientPort", "0")).host, build(file, option("clientPort", "0")).port) == (None, 0)


def test_port_option_keeps_address_of_server_line() -> None:
    file = parse_properties("server.1=localhost:2888:3888;10.0.0.5:2182\n", "zoo.cfg")

    config = build(file, option("clientPort", "2183"))

    assert (config.host, config.port) == ("10.0.0.5", 2183)


def test_port_option_opens_plain_port_next_to_tls() -> None:
    file = parse_properties("secureClientPort=2281\nssl.keyStore.location=/k.pem\n", "zoo.cfg")

    config = build(file, option("clientPort", "2182"))

    assert (config.host, config.port, config.secure_port) == ("127.0.0.1", 2182, 2281)


@pytest.mark.parametrize("port", ["65536", "99999", "9" * 5000])
def test_port_out_of_range_in_server_line_is_refused(port: str) -> None:
    assert config_error(f"server.1=localhost:2888:3888;{port}\n").startswith(
        "zoo.cfg:1: server.1 must be host:port:port"
    )


# --- session timeouts ---


def test_minimum_timeout_above_maximum_is_refused() -> None:
    message = config_error("minSessionTimeout=5000\nmaxSessionTimeout=4000\n")

    assert "minSessionTimeout (5000) must not be larger than maxSessionTimeout (4000)" in message
    assert "zoo.cfg:" in message


# --- authentication ---


@pytest.mark.parametrize(
    "lines", ["enforce.auth.enabled=true\n", "enforce.auth.enabled=true\nenforce.auth.schemes=,\n"]
)
def test_enforced_auth_without_scheme_is_refused(lines: str) -> None:
    message = config_error(lines)

    assert "enforce.auth.enabled" in message
    assert "enforce.auth.schemes" in message
    assert "zoo.cfg:" in message


def test_enforced_auth_with_unknown_scheme_is_refused() -> None:
    message = config_error("enforce.auth.enabled=true\nenforce.auth.schemes=nonsense\n")

    assert "nonsense" in message
    assert message.startswith("zoo.cfg:2: ")


def test_required_sasl_overrides_enforced_schemes() -> None:
    text = "sessionRequireClientSASLAuth=true\nenforce.auth.enabled=true\nenforce.auth.schemes=digest,ip\n"

    assert build_config(text).settings.require_auth == {"sasl"}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("superUser=a\n", {"a"}),
        ("superUser.1=a\n", {"a"}),
        ("superUser=a\nsuperUser.1=b\nsuperUser.2=c\n", {"a", "b", "c"}),
        ("zookeeper.superUser.1=a\nzookeeper.superUser=b\n", {"a", "b"}),
    ],
)
def test_several_super_users_are_accepted(lines: str, expected: set[str]) -> None:
    config = build_config(lines)

    assert config.settings.super_users == expected
    assert config.unknown == ()


def test_users_of_jaas_file_may_log_in(tmp_path: Path) -> None:
    config = build_config(f"java.security.auth.login.config={write_jaas_file(tmp_path)}\n")

    assert config.settings.sasl_users == {"bob": "y"}


def test_non_utf_8_jaas_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "jaas.conf"
    path.write_bytes(b"Server { \xff };")

    with pytest.raises(ConfigError, match=r"login\.config: cannot read .+/jaas\.conf: not valid UTF-8 text$"):
        build_config(f"java.security.auth.login.config={path}\n")


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    jaas = Path(write_jaas_file(tmp_path))
    jaas.write_bytes(b"\xef\xbb\xbf" + jaas.read_bytes())
    file = tmp_path / "zoo.cfg"
    file.write_bytes(b"\xef\xbb\xbfclientPort=2182\r\njava.security.auth.login.config=" + bytes(jaas))

    config = build(read_file(str(file)), strict=True)

    assert (config.port, config.settings.sasl_users) == (2182, {"bob": "y"})


def test_missing_jaas_file_is_refused_by_name() -> None:
    message = config_error("# comment\n\njava.security.auth.login.config=/nowhere/jaas.conf\n")

    assert message == (
        "zoo.cfg:3: java.security.auth.login.config: cannot read /nowhere/jaas.conf: no such file or directory"
    )


def test_invalid_jaas_file_is_refused_with_place(tmp_path: Path) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text("Server { com.sun.security.auth.module.Krb5LoginModule required; };")

    message = config_error(f"java.security.auth.login.config={path}\n")

    assert message.startswith(f"zoo.cfg:1: section Server of {path} uses com.sun.")
    assert message.endswith("; only DigestLoginModule is supported")


def test_name_of_jaas_section_is_configurable(tmp_path: Path) -> None:
    path = write_jaas_file(tmp_path, "Mine")

    config = build_config(f"sasl.serverconfig=Mine\njava.security.auth.login.config={path}\n")

    assert config.settings.sasl_users == {"bob": "y"}


def test_missing_jaas_section_is_refused(tmp_path: Path) -> None:
    path = write_jaas_file(tmp_path)

    message = config_error(f"java.security.auth.login.config={path}\nsasl.serverconfig=Typo\n")

    assert message == f"zoo.cfg:2: sasl.serverconfig must be a section of {path}, not 'Typo'"


def test_jaas_section_without_jaas_file_is_refused() -> None:
    assert "sasl.serverconfig" in config_error("sasl.serverconfig=Mine\n")


# --- server.N ---

THREE = "server.1=a:2888:3888\nserver.2=b:2888:3888\nserver.3=c:2888:3888;2181\n"


def test_ensemble_is_refused() -> None:
    message = config_error(THREE)

    assert "3 servers are configured" in message
    assert "server.1, server.2, server.3" in message


def test_refusal_of_ensemble_names_place() -> None:
    assert "zoo.cfg:" in config_error(THREE)


def test_line_of_single_server_is_accepted() -> None:
    assert build_config("server.1=localhost:2888:3888;2181\n").ignored == ("server.1",)


def test_observer_in_server_line_is_refused() -> None:
    assert "server.1" in config_error("server.1=a:2888:3888:observer\n")


def test_server_lines_of_all_sources_are_counted() -> None:
    with pytest.raises(ConfigError, match="2 servers"):
        build({}, parse_properties("server.1=a:1:2\n", "f"), parse_properties("server.2=b:1:2\n", "o"))


def test_server_line_without_ports_is_refused() -> None:
    assert "server.1" in config_error("server.1=localhost\n")


def test_ensemble_in_dynamic_file_is_refused(tmp_path: Path) -> None:
    dynamic = tmp_path / "zoo.cfg.dynamic"
    dynamic.write_text(THREE)

    assert "server" in config_error(f"dynamicConfigFile={dynamic}\n")


@pytest.mark.parametrize(("lines", "port"), [("", 2182), ("clientPort=2183\n", 2183)])
def test_port_is_read_from_dynamic_file(tmp_path: Path, lines: str, port: int) -> None:
    (tmp_path / "dynamic").write_text("server.1=localhost:2888:3888;2182\nversion=100000000\n")

    assert build_config(f"{lines}dynamicConfigFile={tmp_path / 'dynamic'}\n").port == port


def test_unreadable_dynamic_file_is_refused_by_name() -> None:
    assert config_error("dynamicConfigFile=/nowhere/dynamic\n") == (
        "zoo.cfg:1: dynamicConfigFile: cannot read /nowhere/dynamic: no such file or directory"
    )


def test_non_server_key_in_dynamic_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dynamic").write_text("skipACL=yes\n")

    with pytest.raises(
        ConfigError, match=r"dynamic:1: expected a server\.N line in the dynamicConfigFile, found skipACL$"
    ):
        build_config(f"dynamicConfigFile={tmp_path / 'dynamic'}\n")


# --- ignored keys ---


def test_ignored_keys_are_listed() -> None:
    assert build_config("initLimit=10\nfsync.warningthresholdms=5\nno.such.key=1\n").ignored == (
        "fsync.warningthresholdms",
        "initLimit",
    )


def test_ignored_keys_are_listed_sorted_without_prefix() -> None:
    text = "initLimit=5\nsyncLimit=2\nmetricsProvider.numWorkerThreads=1\nzookeeper.flushDelay=1\ntickTime=500\n"

    assert build_config(text).ignored == ("flushDelay", "initLimit", "metricsProvider.numWorkerThreads", "syncLimit")


@pytest.mark.parametrize(
    ("definition", "ignored"),
    [
        ("-Dzookeeper.flushDelay=1", ("flushDelay",)),
        ("-Dzookeeper.root.logger=INFO", ("root.logger",)),
        ("-DflushDelay=1", ()),
        ("-Dlog.dir=/var/log", ()),
    ],
)
def test_ignored_zookeeper_property_is_listed(definition: str, ignored: tuple[str, ...]) -> None:
    assert build(parse_definitions([definition], "command line")).ignored == ignored
    assert build(read_environment({"JVMFLAGS": definition})).ignored == ignored


# --- unknown keys ---


def test_unknown_keys_in_zoo_cfg_are_accepted() -> None:
    assert build_config("no.such.key=1\nsnapCount=5\nautopurge.snapRetainCount=1\n").port == 2181


@pytest.mark.parametrize(
    ("line", "nearest"),
    [
        ("sercureClientPort=1", "secureClientPort"),
        ("maxClientCnxn=1", "maxClientCnxns"),
        ("ssl.clientAth=need", "ssl.clientAuth"),
        ("skipAcl=yes", "skipACL"),
        ("zookeeper.enforce.auth.enable=true", "enforce.auth.enabled"),
        ("DigestAuthenticationProvider.enable=false", "DigestAuthenticationProvider.enabled"),
        ("DigestAuthenticationProvider.superDigst=a:b", "DigestAuthenticationProvider.superDigest"),
        ("sasl.serverConfig=Mine", "sasl.serverconfig"),
        ("sessionRequireClientSaslAuth=true", "sessionRequireClientSASLAuth"),
        ("jute.maxBuffer=1", "jute.maxbuffer"),
        ("nio.sessionlessCnxnTimeOut=1", "nio.sessionlessCnxnTimeout"),
    ],
)
def test_unknown_key_is_listed_with_nearest_key(line: str, nearest: str) -> None:
    assert build_config(f"{line}\n").unknown == (UnknownKey(line.partition("=")[0], "zoo.cfg:1", nearest),)


def test_key_without_similar_key_is_listed_without_suggestion() -> None:
    assert build_config("colour=blue\n").unknown == (UnknownKey("colour", "zoo.cfg:1", None),)


@pytest.mark.parametrize(
    ("definition", "unknown"),
    [
        ("-Dclientprt=1", [("-Dclientprt", "clientPort")]),
        ("-Dfoo=1", [("-Dfoo", None)]),
        ("-Dzookeeper.foo=1", [("-Dzookeeper.foo", None)]),
        ("-Djava.io.tmpdir=/tmp", []),
    ],
)
def test_only_unknown_zookeeper_property_is_reported(definition: str, unknown: list[tuple[str, str | None]]) -> None:
    config = build(parse_definitions([definition], "command line"))

    assert [(key.name, key.nearest) for key in config.unknown] == unknown


def test_strict_build_refuses_unknown_key() -> None:
    with pytest.raises(ConfigError, match=r"^zoo\.cfg:1: unknown key maxClientCnxn; did you mean maxClientCnxns\?$"):
        build(parse_properties("maxClientCnxn=1\n", "zoo.cfg"), strict=True)


@pytest.mark.parametrize("text", [",", "127.0.0.1,", "a,,b", "[]", "*", "127.0.0.1,*", r"a\nb"])
def test_invalid_list_of_addresses_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="clientPortAddress must be an address or host name, or several"):
        build_config(f"clientPortAddress={text}\n")


def test_java_property_is_not_reported_as_unknown() -> None:
    config = build(
        {}, {}, parse_definitions(["-Dzookeeper.skipAcl=yes", "-Djavax.net.ssl.trustStorePassword=b"], "command line")
    )

    assert [key.name for key in config.unknown] == ["-Dzookeeper.skipAcl"]


def test_misspelt_property_is_listed_with_nearest_key() -> None:
    config = build({}, {}, parse_definitions(["-DtickTimee=1"], "command line"))

    assert config.unknown == (UnknownKey("-DtickTimee", "command line", "tickTime"),)


@pytest.mark.parametrize(
    "text",
    [
        "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=/d\nclientPort=2181\n",
        "autopurge.snapRetainCount=3\nautopurge.purgeInterval=1\nadmin.enableServer=false\nmaxClientCnxns=60\n",
        "metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider\n"
        "metricsProvider.httpPort=7000\nstandaloneEnabled=true\n",
        "quorumListenOnAllIPs=true\nforceSync=no\npreAllocSize=65536\nsnapCount=1\n4lw.commands.whitelist=*\n",
    ],
)
def test_common_zoo_cfg_lines_cause_no_warning(text: str) -> None:
    assert build_config(text).unknown == ()


def test_embedded_server_refuses_unknown_key() -> None:
    with pytest.raises(ValueError, match="unknown key maxClientCnxn; did you mean maxClientCnxns"):
        Server(config={"maxClientCnxn": 1})


def test_embedded_server_refuses_file_with_unknown_key(tmp_path: Path) -> None:
    (tmp_path / "zoo.cfg").write_text("tickTime=2000\nskipAcl=yes\n")

    with pytest.raises(ValueError, match=r"zoo\.cfg:2: unknown key skipAcl"):
        Server(config=tmp_path / "zoo.cfg")


@pytest.mark.parametrize(
    "text",
    [
        "ssl.keyStore.password=SECRET",
        "ssl.keyStore.password SECRET",
        "ssl.keyStore.pass\\\n  word : SECRET",
        "ssl\\u002etrustStore\\u002epassword=SECRET",
        "ssl.keyStore.password=\\\nSECRET",
        "# ssl.keyStore.password=SECRET",
        "my.apiKey=SECRET",
        "sasl.client.jaas=SECRET",
        "tickTime=5\rssl.keyStore.password=SECRET",
    ],
)
def test_masked_zoo_cfg_hides_secrets(text: str) -> None:
    assert "SECRET" not in masked_lines(parse_properties(f"clientPort=1\n{text}\n", "zoo.cfg"))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("admin.severPort", "admin.serverPort"),
        ("audit.enabel", "audit.enable"),
        ("metricsProvider.clasName", "metricsProvider.className"),
        ("connection_throttle_token", "connection_throttle_tokens"),
    ],
)
def test_misspelt_key_is_not_taken_for_ignored_family(name: str, nearest: str) -> None:
    config = build_config(f"{name}=x\n")

    assert config.ignored == ()
    assert [(key.name, key.nearest) for key in config.unknown] == [(name, nearest)]
