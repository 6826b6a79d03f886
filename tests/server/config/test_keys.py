"""The table of keys, and the page generated from it: every row is correct.

Source: ZooKeeper Administrator's Guide, "Configuration Parameters"; AuthenticationHelper; ProviderRegistry.
"""

from __future__ import annotations

import re
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.configuration import LOGIN_MODULE, build_config, config_error
from support.rows import for_each

from zoolet.server.config import KEYS, ConfigError, Key, KeyStatus, ServerConfig, Setting, build, find, jaas
from zoolet.server.config.keys import nearest

PAGE: Final = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text()
HONOURED: Final = [key for key in KEYS if key.status is KeyStatus.HONOURED]
FILES: Final = {
    "jaas.conf": f"Server {{ {LOGIN_MODULE} user_bob=x; }};\nBroker {{ {LOGIN_MODULE} user_eve=y; }};\n",
    "zoo.cfg.dynamic": "server.1=localhost:2888:3888;2182\n",
    "keystore.password": "secret\n",
    "truststore.password": "secret\n",
    "admin.token": "0123456789abcdef\n",
}
"""The content of the files that the examples name."""


def name_of(key: Key) -> str:
    """Return the name of a test case."""
    return key.name


def one_of_family(key: Key) -> str:
    """Return one concrete key for a row."""
    return re.sub(r"<name>$|<number>$|\*$", "1", key.name)


def companions(key: Key) -> dict[str, Key]:
    """Return a key with the keys that it needs to take effect: its requirements, and keys that set its field."""
    found: dict[str, Key] = {}
    pending = [key]
    while pending:
        row = pending.pop()
        found[row.name] = row
        needed = [find(name) for name in row.requires]
        needed += [other for other in HONOURED if row.name in other.requires and row.field == other.field]
        pending += [other for other in needed if other is not None and other.name not in found]
    return found


def examples(key: Key, folder: Path) -> dict[str, Setting]:
    """Write the files that the examples of a key name. Return the examples of the key and its companions."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    values = {one_of_family(row): row.example for row in companions(key).values()}
    return {
        name: Setting(str(folder / Path(value).name) if Path(value).name in FILES else value, "an example")
        for name, value in values.items()
    }


def field_of(config: ServerConfig, key: Key) -> Any:
    """Return the value that a key has set."""
    return attrgetter(key.field)(config)


def error_message_of(settings: dict[str, Setting]) -> str | None:
    """Return the error message for settings, or None if they are valid."""
    try:
        build(settings)
    except ConfigError as error:
        return str(error)
    return None


# --- rows of the table of keys ---


def test_key_names_are_unique() -> None:
    assert len({key.name for key in KEYS}) == len(KEYS)


@for_each("key", KEYS, ids=name_of)
def test_row_of_table_is_found_by_name_of_key(key: Key) -> None:
    assert find(one_of_family(key)) == key


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("server.12", "server.<number>"),
        ("superUser", "superUser"),
        ("superUser.a_1", "superUser.<name>"),
        ("quorum.auth.enableSasl", "quorum.*"),
        ("sslQuorumReloadCertFiles", "sslQuorum*"),
        ("connection_throttle_tokens", "connection_throttle_tokens"),
        ("connection_throttle_freeze_time", "connection_throttle_*"),
        ("audit.enable", "audit.enable"),
        ("audit.impl.class", "audit.*"),
        ("authProvider", "authProvider*"),
        ("authProvider.sasl", "authProvider*"),
    ],
)
def test_row_of_key_precedes_row_of_its_family(name: str, row: str) -> None:
    found = find(name)

    assert found is not None
    assert found.name == row


@pytest.mark.parametrize(
    "name", ["", "server.", "server.a", "server.1a", "superUser.", "superUser.a.b", "quorum", "no"]
)
def test_undescribed_key_is_unknown(name: str) -> None:
    assert find(name) is None


@for_each("key", KEYS, ids=name_of)
def test_each_key_has_help_text(key: Key) -> None:
    assert key.help
    assert key.help.endswith(".") is (key.status is not KeyStatus.REFUSED)  # the help of a refused key ends a message


@for_each("key", KEYS, ids=name_of)
def test_keys_required_or_overruling_exist(key: Key) -> None:
    names = {*key.requires, key.overruled_by or "clientPort"}

    assert names <= {row.name for row in HONOURED}


@for_each("key", HONOURED, ids=name_of)
def test_example_of_key_changes_its_field_of_configuration(key: Key, tmp_path: Path) -> None:
    config = build(examples(key, tmp_path), strict=True)

    assert field_of(config, key) != field_of(build({}), key)


@for_each("key", [key for key in HONOURED if key.default and not key.fallback], ids=name_of)
def test_explicit_default_equals_absent_key(key: Key, tmp_path: Path) -> None:
    config = build(examples(key, tmp_path) | {key.name: Setting(key.default, "the default")}, strict=True)

    assert field_of(config, key) == field_of(build({}), key)


def test_only_jaas_section_has_fallback_default() -> None:
    assert [key.default for key in KEYS if key.fallback] == [jaas.SECTION]


@for_each("key", [key for key in KEYS if key.status is KeyStatus.IGNORED], ids=name_of)
def test_ignored_key_is_listed_and_has_no_effect(key: Key) -> None:
    name = one_of_family(key)

    config = build({name: Setting("a:1:2", "zoo.cfg:1")}, strict=True)

    assert config == ServerConfig(ignored=(name,))


@for_each("key", [key for key in KEYS if key.status is KeyStatus.REFUSED], ids=name_of)
def test_unsupported_value_of_refused_key_raises(key: Key) -> None:
    name, value = one_of_family(key), "true" if False in key.supported else "observer"

    with pytest.raises(ConfigError) as caught:
        build({name: Setting(value, "zoo.cfg:1")})

    assert str(caught.value) == f"zoo.cfg:1: {name}={value} is not supported; {key.help}"


@pytest.mark.parametrize(
    ("key", "value"),
    [(key, key.converter.show(value)) for key in KEYS for value in key.supported],
    ids=lambda part: getattr(part, "name", None),
)
def test_supported_value_of_refused_key_is_ignored(key: Key, value: str) -> None:
    assert build({one_of_family(key): Setting(value, "zoo.cfg:1")}, strict=True) == ServerConfig()


@given(st.sampled_from(KEYS), st.text(max_size=20))
def test_any_value_of_key_is_accepted_or_refused_in_one_line(key: Key, value: str) -> None:
    message = error_message_of({one_of_family(key): Setting(value, "zoo.cfg:1")})

    assert message is None or re.fullmatch(r"zoo\.cfg:1: [^\n]+[^.\n]", message)


@for_each("key", [key for key in KEYS if key.converter.expected], ids=name_of)
def test_description_of_expected_value_is_not_a_sentence(key: Key) -> None:
    assert not key.converter.expected.endswith(".")
    assert key.converter.limits in key.converter.expected.replace("from ", "")


# --- docs/configuration.md ---


@for_each("key", KEYS, ids=name_of)
def test_configuration_page_describes_every_key(key: Key) -> None:
    assert f"`{key.name}`" in PAGE
    assert key.help in PAGE


@for_each("key", HONOURED, ids=name_of)
def test_configuration_page_has_actual_default_of_key(key: Key) -> None:
    row = re.search(rf"^\| `{re.escape(key.name)}` \| [^|]+ \| (?:`([^`]+)`|not set)[ |]", PAGE, re.MULTILINE)

    assert row is not None
    assert (row[1] or "") == (key.fallback or key.converter.show(field_of(build({}), key)))


@for_each("key", HONOURED, ids=name_of)
def test_configuration_page_has_type_limits_and_example_of_key(key: Key) -> None:
    (row,) = re.findall(rf"^\| `{re.escape(key.name)}` \|.*", PAGE, re.MULTILINE)

    assert key.converter.type in row
    assert key.converter.limits in row
    assert key.converter.unit in row
    assert f"`{key.example}`" in row
    assert f"Option `{key.option}`." in row or key.option is None


def test_configuration_page_has_no_python_terms() -> None:
    words = r"\b(None|True|False|bool|int|str|bytes\(|tuple|list\(|frozenset|dict|dataclass|hashlib|regex)\b"

    assert re.findall(words, PAGE) == []


# --- values set by keys ---


@pytest.mark.parametrize("prefix", ["", "zookeeper."])
@pytest.mark.parametrize(
    ("key", "value", "target", "expected"),
    [
        ("clientPort", "2182", "port", 2182),
        ("clientPort", "0", "port", 0),
        ("clientPortAddress", "10.0.0.1", "host", "10.0.0.1"),
        ("clientPortAddress", "[::1]", "host", "::1"),
        ("maxClientCnxns", "0", "max_client_cnxns", 0),
        ("maxCnxns", "7", "max_cnxns", 7),
        ("4lw.commands.whitelist", "ruok, mntr,,srvr ", "whitelist", ("ruok", "mntr", "srvr")),
        ("4lw.commands.whitelist", "*", "whitelist", ("*",)),
        ("tickTime", "200", "settings.tick_time", 200),
        ("minSessionTimeout", "1", "settings.min_session_timeout", 1),
        ("maxSessionTimeout", "90000", "settings.max_session_timeout", 90_000),
        ("maxSessionTimeout", "-1", "settings.max_session_timeout", 40_000),
        ("jute.maxbuffer", "4194304", "settings.max_frame", 4_194_304),
        ("nio.sessionlessCnxnTimeout", "500", "settings.sessionless_timeout", 500),
        ("skipACL", "yes", "settings.skip_acl", True),
        ("skipACL", "NO", "settings.skip_acl", False),
        ("enforceQuota", "TRUE", "settings.enforce_quota", True),
        ("enforceQuota", "FALSE", "settings.enforce_quota", False),
        ("extendedTypesEnabled", "true", "settings.extended_types", True),
        ("reconfigEnabled", "True", "settings.reconfig_enabled", True),
        ("DigestAuthenticationProvider.superDigest", "super:x=", "settings.super_digest", "super:x="),
        ("DigestAuthenticationProvider.digestAlg", "SHA-256", "settings.digest_algorithm", "sha256"),
        ("DigestAuthenticationProvider.digestAlg", "SHA3-256", "settings.digest_algorithm", "sha3_256"),
        ("sessionRequireClientSASLAuth", "true", "settings.require_auth", frozenset({"sasl"})),
    ],
)
def test_key_sets_its_field(prefix: str, key: str, value: str, target: str, expected: object) -> None:
    found: object = build_config(f"{prefix}{key}={value}\n")

    for name in target.split("."):
        found = getattr(found, name)
    assert found == expected


@for_each("key", HONOURED, ids=name_of)
def test_every_key_has_a_field(key: Key) -> None:
    field_of(ServerConfig(), key)


def test_every_tls_setting_has_a_key() -> None:
    fields = {key.field for key in HONOURED}

    assert {f"tls.{name}" for name in vars(ServerConfig().tls)} <= fields


@pytest.mark.parametrize(("text", "expected"), [("0x200000", 2097152), ("#ff", 255), ("4096", 4096)])
def test_jute_maxbuffer_may_be_hexadecimal(text: str, expected: int) -> None:
    assert build_config(f"jute.maxbuffer={text}\n").settings.max_frame == expected


def test_negative_number_of_connections_is_unlimited() -> None:
    assert build_config("maxClientCnxns=-1\n").max_client_cnxns == 0


@pytest.mark.parametrize("value", ["yes", "1", "on", ""])
def test_boolean_other_than_true_or_false_is_refused(value: str) -> None:
    message = config_error(f"# comment\nreconfigEnabled={value}\n")

    assert message.startswith("zoo.cfg:2: ")
    assert "reconfigEnabled" in message
    assert repr(value) in message
    assert "true" in message
    assert "false" in message


def test_keys_are_case_sensitive() -> None:
    assert build_config("ticktime=500\n").settings.tick_time == 2000


def test_digest_provider_can_be_switched_off() -> None:
    assert not build_config("DigestAuthenticationProvider.enabled=false\n").settings.digest_enabled


@pytest.mark.parametrize(
    "line",
    ["electionAlg=2", "peerType=observer", "group.1=1:2", "weight.1=1", "oraclePath=/x"],
)
def test_refusal_of_ensemble_key_names_place(line: str) -> None:
    message = config_error(f"\n{line}\n")

    assert message.startswith("zoo.cfg:2: ")
    assert line in message


BUILT_IN = "org.apache.zookeeper.server.auth"


@pytest.mark.parametrize(
    "line",
    [
        "ssl.crl=true",
        "ssl.crl=TRUE",
        "zookeeper.ssl.crl=true",
        "ssl.ocsp=true",
        "ssl.clientHostnameVerification=true",
        "ssl.context.supplier.class=com.example.Supplier",
        "ssl.authProvider=com.example.Provider",
        "client.portUnification=true",
        "client.certReload=true",
        f"authProvider.1={BUILT_IN}.EnsembleAuthenticationProvider",
        f"authProvider.2={BUILT_IN}.EnsembleAuthenticationProvider",
        "authProvider.1=com.example.Mine",
        "authProvider.1=",
        "X509AuthenticationProvider.clientCertIdType=SAN",
        "ensembleAuthName=prod",
        "requireKerberosConfig=true",
    ],
)
def test_refusal_of_security_key_names_remedy(line: str) -> None:
    message = config_error(f"# comment\n{line}\n")

    assert message.startswith("zoo.cfg:2: ")
    assert line.partition("=")[0].removeprefix("zookeeper.") in message
    assert "is not supported; " in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "line",
    [
        "ssl.crl=false",
        "ssl.ocsp=false",
        "client.portUnification=false",
        "audit.enable=false",
        f"authProvider.1={BUILT_IN}.SASLAuthenticationProvider",
        f"authProvider.2={BUILT_IN}.DigestAuthenticationProvider",
        f"zookeeper.authProvider.ip={BUILT_IN}.IPAuthenticationProvider",
    ],
)
def test_supported_or_disabled_security_is_accepted(line: str) -> None:
    assert build_config(f"{line}\n").unknown == ()


def test_nearest_returns_similar_key_or_none() -> None:
    assert nearest("initLimt") == "initLimit"
    assert nearest("colour") is None
