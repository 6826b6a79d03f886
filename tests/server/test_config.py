"""What the server is told: files as Java reads them, options before file before environment, and refusals that help.

Source: the configuration specification (QuorumPeerConfig.parseProperties, java.util.Properties.load, zkServer.sh), and
its rule for refusals: they name the key, the value, the place and the remedy.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoolet.server import jaas
from zoolet.server.config import (
    KEYS,
    Config,
    ConfigError,
    Setting,
    build,
    parse_definitions,
    parse_properties,
    read_environment,
    read_file,
)
from zoolet.server.testing import Server

SPECIAL = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
WHITE = " \t\n\r\f"


# --- what the tests say it with ---


def values(text: str) -> dict[str, str]:
    """Read a properties file; forget where each value stood."""
    return {key: setting.value for key, setting in parse_properties(text, "zoo.cfg").items()}


def configured(text: str) -> Config:
    """Put a configuration together from a zoo.cfg."""
    return build(parse_properties(text, "zoo.cfg"))


def refusal(text: str) -> str:
    """Return the message with which a zoo.cfg is refused."""
    with pytest.raises(ConfigError) as caught:
        configured(text)
    return str(caught.value)


# --- the file ---


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("tickTime=2000", "tickTime", "2000"),
        ("tickTime = 2000", "tickTime", "2000"),
        ("tickTime: 2000", "tickTime", "2000"),
        ("tickTime:2000", "tickTime", "2000"),
        ("tickTime 2000", "tickTime", "2000"),
        ("tickTime\t\t2000", "tickTime", "2000"),
        ("  tickTime=2000", "tickTime", "2000"),
        ("tickTime=2000   ", "tickTime", "2000"),
        ("tickTime==2000", "tickTime", "=2000"),
        ("tickTime", "tickTime", ""),
        ("tickTime=", "tickTime", ""),
        ("server.1=a:2888:3888;2181", "server.1", "a:2888:3888;2181"),
        ("a\\=b=c", "a=b", "c"),
        ("a\\:b=c", "a:b", "c"),
        ("a\\ b=c", "a b", "c"),
        ("a=b#c", "a", "b#c"),
        ("a=b!c", "a", "b!c"),
        ("a=C:\\\\data", "a", "C:\\data"),
        ("a=\\u0041\\u00e9", "a", "Aé"),
        ("a=b\\tc\\nd", "a", "b\tc\nd"),
        ("a=\\q", "a", "q"),
        ("a=caf\xe9", "a", "caf\xe9"),
    ],
)
def test_a_line_is_read_as_java_reads_it(line: str, key: str, value: str) -> None:
    assert values(line) == {key: value}


@pytest.mark.parametrize("text", ["", "\n\n", "# tickTime=1", "! tickTime=1", "   # tickTime=1", "# a \\", "\t\n \n"])
def test_comments_and_empty_lines_say_nothing(text: str) -> None:
    assert values(text) == {}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_as_on_any_system(end: str) -> None:
    assert values(end.join(["a=1", "# c", "b=2", ""])) == {"a": "1", "b": "2"}


@pytest.mark.parametrize("char", ["\x0b", "\x0c", "\x1c", "\x85"], ids=["VT", "FF", "FS", "NEL"])
def test_only_newlines_end_a_line(char: str) -> None:
    # read as Latin-1, the second byte of a UTF-8 letter can be any of 0x80 to 0xbf; that of "Å" is 0x85
    assert values(f"dataDir=/a{char}b=c") == {"dataDir": f"/a{char}b=c"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\\\n2\\\n   3\nb=4", {"a": "123", "b": "4"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\r\n  2", {"a": "12"}),
        ("a=1\\", {"a": "1"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
        ("# comment \\\na=1", {"a": "1"}),
        ("a\\\n  b=1", {"ab": "1"}),
    ],
)
def test_a_backslash_continues_a_line(text: str, expected: dict[str, str]) -> None:
    assert values(text) == expected


def test_the_last_of_two_settings_wins() -> None:
    assert configured("tickTime=1000\ntickTime=500\n").settings.tick_time == 500


def test_a_setting_knows_its_line() -> None:
    settings = parse_properties("# first\na=1\\\n2\n\nb=3\n", "zoo.cfg")

    assert (settings["a"].where, settings["b"].where) == ("zoo.cfg, line 2", "zoo.cfg, line 5")


def test_keys_are_case_sensitive() -> None:
    assert configured("ticktime=500\n").settings.tick_time == 2000


TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=12)
KEY = TEXT.filter(bool)
VALUE = TEXT.filter(lambda text: text == text.strip() == text.strip("".join(map(chr, range(33)))))


def escaped(char: str) -> str:
    """Write one character so that it means itself wherever it stands."""
    if char in SPECIAL:
        return SPECIAL[char]
    if char in " =:#!\\":
        return "\\" + char
    return char if "!" <= char <= "~" else f"\\u{ord(char):04x}"


@st.composite
def written(draw: st.DrawFn) -> tuple[str, dict[str, str]]:
    """Draw settings, and one of the many ways to write them down."""
    settings = draw(st.dictionaries(KEY, VALUE, max_size=5))
    lines = []
    for key, value in settings.items():
        lines += draw(st.lists(st.sampled_from(["", "# c", "! c=d", "  \t", "# c \\"]), max_size=2))
        units = [escaped(char) for char in value]
        at = draw(st.integers(0, len(units)))
        broken = "".join(units[:at]) + draw(st.sampled_from(["", "\\\n", "\\\r\n \t"])) + "".join(units[at:])
        between = draw(st.sampled_from(["=", ":", " = ", "\t:", " ", "\t \f"]))
        indent = draw(st.sampled_from(["", "  ", "\t", "\f"]))
        lines.append(indent + "".join(map(escaped, key)) + between + broken)
    return draw(st.sampled_from(["\n", "\r\n", "\r"])).join(lines), settings


@given(written())
def test_whatever_is_written_is_read(case: tuple[str, dict[str, str]]) -> None:
    text, settings = case

    assert values(text) == settings


@given(st.text(max_size=60))
def test_any_text_can_be_read(text: str) -> None:
    assert all(isinstance(setting, Setting) for setting in parse_properties(text, "zoo.cfg").values())


def test_a_file_is_latin_1(tmp_path: Path) -> None:
    (tmp_path / "zoo.cfg").write_bytes(b"superUser=Ren\xe9\n")

    assert read_file(str(tmp_path / "zoo.cfg"))["superUser"].value == "Ren\xe9"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "nowhere.cfg")

    with pytest.raises(ConfigError, match=r"nowhere\.cfg: No such file") as caught:
        read_file(path)

    assert path in str(caught.value)


# --- keys ---


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
        ("skipACL", "true", "settings.skip_acl", False),
        ("enforceQuota", "TRUE", "settings.enforce_quota", True),
        ("enforceQuota", "yes", "settings.enforce_quota", False),
        ("extendedTypesEnabled", "true", "settings.extended_types", True),
        ("reconfigEnabled", "True", "settings.reconfig_enabled", True),
        ("DigestAuthenticationProvider.superDigest", "super:x=", "settings.super_digest", "super:x="),
        ("DigestAuthenticationProvider.digestAlg", "SHA-256", "settings.digest_algorithm", "sha256"),
        ("DigestAuthenticationProvider.digestAlg", "SHA3-256", "settings.digest_algorithm", "sha3_256"),
        ("sessionRequireClientSASLAuth", "true", "settings.require_auth", frozenset({"sasl"})),
    ],
)
def test_a_key_sets_its_field(prefix: str, key: str, value: str, target: str, expected: object) -> None:
    found: object = configured(f"{prefix}{key}={value}\n")

    for name in target.split("."):
        found = getattr(found, name)
    assert found == expected


def test_every_key_has_a_field() -> None:
    config = Config()
    plain = {name for name in Config.__slots__ if hasattr(config, name)} | {
        "schemes",
        "enforced",
        "jaas",
        "jaas_section",
    }
    core = {f"settings.{name}" for name in config.settings.__slots__}
    tls = {f"tls.{name}" for name in config.tls.__slots__}

    assert {key.target for key in KEYS.values()} <= plain | core | tls


def test_unknown_keys_are_no_error() -> None:
    assert configured("no.such.key=1\nsnapCount=5\nautopurge.snapRetainCount=1\n").port == 2181


def test_a_known_key_without_effect_is_noted() -> None:
    assert configured("dataDir=/data\nsnapCount=5\nno.such.key=1\n").ignored == ("dataDir", "snapCount")


def test_without_a_port_only_this_machine_is_served() -> None:
    assert (configured("tickTime=500\n").host, configured("tickTime=500\n").port) == ("127.0.0.1", 2181)


def test_a_file_that_names_a_port_serves_all_addresses() -> None:
    assert (configured("clientPort=2182\n").host, configured("clientPort=2182\n").port) == (None, 2182)


# --- what beats what ---


def said(**values: str) -> dict[str, Setting]:
    """Say something somewhere."""
    return {key: Setting(value, "somewhere") for key, value in values.items()}


def test_a_later_source_beats_an_earlier_one() -> None:
    environment, filed, options = said(tickTime="1"), said(tickTime="2"), said(tickTime="3")

    assert build(environment, filed, options).settings.tick_time == 3
    assert build(environment, filed, {}).settings.tick_time == 2
    assert build(environment, {}, {}).settings.tick_time == 1


def test_a_prefix_does_not_change_what_beats_what() -> None:
    filed, option = {"zookeeper.tickTime": Setting("2", "file")}, {"tickTime": Setting("3", "option")}

    assert build({}, filed, option).settings.tick_time == 3
    assert build({}, option, filed).settings.tick_time == 2


def test_sources_are_put_together() -> None:
    config = build(said(tickTime="100"), said(maxCnxns="5"), said(clientPort="1"))

    assert (config.settings.tick_time, config.max_cnxns, config.port) == (100, 5, 1)


def test_nothing_said_is_the_default() -> None:
    assert build({}, {}, {}) == Config()


# --- -D and JVMFLAGS ---


@pytest.mark.parametrize(
    ("argument", "name", "value"),
    [
        ("-Dzookeeper.tickTime=500", "zookeeper.tickTime", "500"),
        ("-Dname=a=b", "name", "a=b"),
        ("-Dname=", "name", ""),
        ("-Dname", "name", ""),
    ],
)
def test_a_definition_is_a_name_and_a_value(argument: str, name: str, value: str) -> None:
    assert parse_definitions([argument], "command line") == {name: Setting(value, f"command line: {argument}")}


def test_other_java_options_are_left_out() -> None:
    assert parse_definitions(["-Xmx1g", "-server", "-Da=b", "--port"], "x").keys() == {"a"}


@pytest.mark.parametrize("name", ["JVMFLAGS", "SERVER_JVMFLAGS"])
def test_the_flags_of_java_are_read(name: str) -> None:
    settings = read_environment({name: "-Xmx512m -Dzookeeper.tickTime=500 -Djute.maxbuffer=2097152", "HOME": "/"})

    assert build(settings).settings.tick_time == 500
    assert build(settings).settings.max_frame == 2_097_152


def test_the_flags_of_everything_beat_those_of_the_server() -> None:
    # zkServer.sh: JVMFLAGS="$SERVER_JVMFLAGS $JVMFLAGS", and Java takes the last of two definitions
    settings = read_environment({"JVMFLAGS": "-DmaxCnxns=1", "SERVER_JVMFLAGS": "-DmaxCnxns=2"})

    assert settings["maxCnxns"].value == "1"


def test_a_flag_may_be_quoted() -> None:
    settings = read_environment({"JVMFLAGS": "\"-DsuperUser=a b\" -Dc='d e'"})

    assert (settings["superUser"].value, settings["c"].value) == ("a b", "d e")


def test_an_environment_without_flags_says_nothing() -> None:
    assert read_environment({"PATH": "/bin"}) == {}


def test_a_quotation_mark_that_is_not_closed_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"^environment variable JVMFLAGS: "):
        read_environment({"JVMFLAGS": '-Da="b'})


# --- refusals ---


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("tickTime", "abc", "a whole number from 1 to"),
        ("tickTime", "0", "a whole number from 1 to"),
        ("tickTime", "", "a whole number from 1 to"),
        ("tickTime", "2s", "a whole number from 1 to"),
        ("tickTime", "1.5", "a whole number from 1 to"),
        ("tickTime", "99999999999", "a whole number from 1 to 2147483647"),
        ("clientPort", "65536", "a whole number from 0 to 65535"),
        ("clientPort", "-1", "a whole number from 0 to 65535"),
        ("minSessionTimeout", "-2", "a whole number from -1 to"),
        ("zookeeper.maxCnxns", "many", "a whole number from 0 to"),
        ("jute.maxbuffer", "1M", "a whole number from 0 to"),
        ("DigestAuthenticationProvider.digestAlg", "ROT13", "SHA-256"),
        ("java.security.auth.login.config", "/nowhere/jaas.conf", "a JAAS file that can be read"),
    ],
)
def test_a_refusal_names_key_value_place_and_remedy(key: str, value: str, remedy: str) -> None:
    message = refusal(f"# comment\n\n{key}={value}\n")

    assert "zoo.cfg, line 3" in message
    assert f"{key} must be" in message
    assert remedy in message
    assert repr(value) in message


def test_a_refusal_of_an_option_names_the_option() -> None:
    with pytest.raises(ConfigError) as caught:
        build({}, {}, parse_definitions(["-Dzookeeper.tickTime=abc"], "command line"))

    assert "command line: -Dzookeeper.tickTime=abc" in str(caught.value)


def test_a_refusal_is_one_line() -> None:
    assert "\n" not in refusal("tickTime=a\\nb\n")


@pytest.mark.parametrize("value", ["yes", "1", "on", ""])
def test_a_boolean_of_the_file_is_true_or_false(value: str) -> None:
    message = refusal(f"# comment\nreconfigEnabled={value}\n")

    assert "zoo.cfg, line 2" in message
    assert "reconfigEnabled" in message
    assert repr(value) in message
    assert "true" in message
    assert "false" in message


def test_a_shortest_timeout_above_the_longest_is_refused() -> None:
    message = refusal("minSessionTimeout=5000\nmaxSessionTimeout=4000\n")

    assert "minSessionTimeout 5000 must not be larger than maxSessionTimeout 4000" in message
    assert "zoo.cfg, line" in message


@pytest.mark.parametrize(
    "lines", ["enforce.auth.enabled=true\n", "enforce.auth.enabled=true\nenforce.auth.schemes=,\n"]
)
def test_enforced_login_without_a_scheme_is_refused(lines: str) -> None:
    message = refusal(lines)

    assert "enforce.auth.enabled" in message
    assert "enforce.auth.schemes" in message
    assert "zoo.cfg, line" in message


def test_enforced_login_with_a_scheme_that_nobody_can_prove_is_refused() -> None:
    message = refusal("enforce.auth.enabled=true\nenforce.auth.schemes=nonsense\n")

    assert "nonsense" in message
    assert "zoo.cfg, line 2" in message


# --- server.N ---

THREE = "server.1=a:2888:3888\nserver.2=b:2888:3888\nserver.3=c:2888:3888;2181\n"


def test_an_ensemble_is_refused() -> None:
    message = refusal(THREE)

    assert "3 servers are configured" in message
    assert "server.1, server.2, server.3" in message


def test_the_refusal_of_an_ensemble_names_the_place() -> None:
    assert "zoo.cfg, line" in refusal(THREE)


def test_one_server_is_itself() -> None:
    assert configured("server.1=localhost:2888:3888;2181\n").ignored == ("server.1",)


def test_an_observer_is_refused() -> None:
    assert "server.1" in refusal("server.1=a:2888:3888:observer\n")


def test_server_lines_of_several_sources_count_together() -> None:
    with pytest.raises(ConfigError, match="2 servers"):
        build({}, parse_properties("server.1=a:1:2\n", "f"), parse_properties("server.2=b:1:2\n", "o"))


def test_a_server_line_without_ports_is_refused() -> None:
    assert "server.1" in refusal("server.1=localhost\n")


def test_an_ensemble_in_a_dynamic_file_is_refused(tmp_path: Path) -> None:
    dynamic = tmp_path / "zoo.cfg.dynamic"
    dynamic.write_text(THREE)

    assert "server" in refusal(f"dynamicConfigFile={dynamic}\n")


# --- the JAAS file ---


def users(tmp_path: Path, text: str) -> dict[str, str] | None:
    """Read the users of a JAAS file."""
    path = tmp_path / "jaas.conf"
    path.write_text(text, encoding="utf-8")
    return jaas.users(str(path))


MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule required"


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ('user_bob="secret"', {"bob": "secret"}),
        ('user_bob="a"\n  user_super="b"', {"bob": "a", "super": "b"}),
        ("user_bob=secret", {"bob": "secret"}),
        ('user_bob = "secret"', {"bob": "secret"}),
        ('user_user_x="secret"', {"user_x": "secret"}),
        ('user_bob="two words; and = signs"', {"bob": "two words; and = signs"}),
        ('user_bob="// no comment"', {"bob": "// no comment"}),
        ('user_bob="a}b"', {"bob": "a}b"}),
        ('user_bob="}" user_eve="x"', {"bob": "}", "eve": "x"}),
        ('user_bob="=" user_eve="x"', {"bob": "=", "eve": "x"}),
        ('user_bob=""', {"bob": ""}),
        (r'user_bob="say \"hi\" \\ bye"', {"bob": r'say "hi" \ bye'}),
        ('user_bob="sëcret"', {"bob": "sëcret"}),
        ('other="x" user_bob="y"', {"bob": "y"}),
        ('// user_eve="x"\n user_bob="y" # more\n /* user_z="z" */', {"bob": "y"}),
        ("", {}),
    ],
)
def test_the_users_are_read(tmp_path: Path, inside: str, expected: dict[str, str]) -> None:
    assert users(tmp_path, f"Server {{\n  {MODULE}\n  {inside};\n}};\n") == expected


def test_only_the_section_of_the_server_counts(tmp_path: Path) -> None:
    client = f'Client {{ {MODULE} user_eve="x"; }};\n'
    server = f'Server {{ {MODULE} user_bob="y"; }};\n'

    assert users(tmp_path, client + server) == users(tmp_path, server + client) == {"bob": "y"}


def test_a_password_that_is_the_name_of_the_section_is_no_section(tmp_path: Path) -> None:
    text = f'Client {{ {MODULE} username="Server"; }};\nServer {{ {MODULE} user_bob="y"; }};\n'

    assert users(tmp_path, text) == {"bob": "y"}


@pytest.mark.parametrize("text", ["", "Client { };", "// Server { }", "# nothing\n"])
def test_a_file_without_the_section_names_nobody(tmp_path: Path, text: str) -> None:
    assert users(tmp_path, text) is None


def test_another_section_may_be_asked_for(tmp_path: Path) -> None:
    (tmp_path / "jaas.conf").write_text(f'Other {{ {MODULE} user_bob="y"; }};\n')

    assert jaas.users(str(tmp_path / "jaas.conf"), "Other") == {"bob": "y"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Server { com.sun.security.auth.module.Krb5LoginModule required; };", "Krb5LoginModule"),
        ("Server { };", "nothing"),
        (f'Server {{ {MODULE} user_bob="x";', "none that is closed"),
        ("Server", "none that is closed"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_by_name(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected) as caught:
        users(tmp_path, text)

    assert "jaas.conf" in str(caught.value)


def test_a_jaas_file_that_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "jaas.conf"
    path.write_bytes(b"Server { \xff };")

    with pytest.raises(ConfigError, match=r"java\.security\.auth\.login\.config must be a JAAS file"):
        configured(f"java.security.auth.login.config={path}\n")


def test_the_users_of_the_file_may_log_in(tmp_path: Path) -> None:
    (tmp_path / "jaas.conf").write_text(f'Server {{ {MODULE} user_bob="y"; }};\n')

    config = configured(f"java.security.auth.login.config={tmp_path / 'jaas.conf'}\n")

    assert config.settings.sasl_users == {"bob": "y"}


@pytest.mark.parametrize(
    "line",
    ["electionAlg=2", "peerType=observer", "group.1=1:2", "weight.1=1", "oraclePath=/x"],
)
def test_what_cannot_be_obeyed_is_refused_with_its_place(line: str) -> None:
    message = refusal(f"\n{line}\n")

    assert "zoo.cfg, line 2" in message
    assert line in message


# --- what means security is obeyed or refused ---

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
        "audit.enable=true",
        "client.certReload=true",
        f"authProvider.1={BUILT_IN}.X509AuthenticationProvider",
        f"authProvider.x509={BUILT_IN}.X509AuthenticationProvider",
        f"authProvider.2={BUILT_IN}.EnsembleAuthenticationProvider",
        "authProvider.1=com.example.Mine",
        "authProvider.1=",
        "X509AuthenticationProvider.superUser=CN=root",
        "ensembleAuthName=prod",
        "requireKerberosConfig=true",
    ],
)
def test_security_that_cannot_be_had_is_refused_with_key_place_and_remedy(line: str) -> None:
    message = refusal(f"# comment\n{line}\n")

    assert "zoo.cfg, line 2" in message
    assert line.partition("=")[0].removeprefix("zookeeper.") in message
    assert "cannot be obeyed: " in message
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
def test_security_that_is_there_or_not_asked_for_is_accepted(line: str) -> None:
    assert configured(f"{line}\n").unknown == ()


@pytest.mark.parametrize("argument", ["-Dzookeeper.ssl.crl=true", "-Dssl.crl=true", "-Dzookeeper.audit.enable=true"])
def test_an_option_that_cannot_be_obeyed_is_refused_by_name(argument: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build({}, {}, parse_definitions([argument], "command line"))

    assert f"command line: {argument}" in str(caught.value)


def test_the_environment_is_refused_like_a_file() -> None:
    with pytest.raises(ConfigError, match="environment variable JVMFLAGS"):
        build(read_environment({"JVMFLAGS": "-Dzookeeper.ssl.ocsp=true"}))


def test_the_digest_provider_can_be_switched_off() -> None:
    assert not configured("DigestAuthenticationProvider.enabled=false\n").settings.digest_enabled


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("superUser=a\n", {"a"}),
        ("superUser.1=a\n", {"a"}),
        ("superUser=a\nsuperUser.1=b\nsuperUser.2=c\n", {"a", "b", "c"}),
        ("zookeeper.superUser.1=a\nzookeeper.superUser=b\n", {"a", "b"}),
    ],
)
def test_there_may_be_several_super_users(lines: str, expected: set[str]) -> None:
    config = configured(lines)

    assert config.settings.super_users == expected
    assert config.unknown == ()


def jaas_file(tmp_path: Path, section: str = "Server") -> Path:
    """Write a JAAS file."""
    path = tmp_path / "jaas.conf"
    path.write_text(f'{section} {{ {MODULE} user_bob="y"; }};\n')
    return path


def test_another_section_of_the_jaas_file_may_be_named(tmp_path: Path) -> None:
    path = jaas_file(tmp_path, "Mine")

    config = configured(f"sasl.serverconfig=Mine\njava.security.auth.login.config={path}\n")

    assert config.settings.sasl_users == {"bob": "y"}


def test_a_section_that_is_named_and_not_there_is_refused(tmp_path: Path) -> None:
    path = jaas_file(tmp_path)

    message = refusal(f"java.security.auth.login.config={path}\nsasl.serverconfig=Typo\n")

    assert "Typo" in message


def test_a_section_without_a_jaas_file_is_refused() -> None:
    assert "sasl.serverconfig" in refusal("sasl.serverconfig=Mine\n")


def test_a_demand_for_sasl_stays_whatever_else_is_enforced() -> None:
    text = "sessionRequireClientSASLAuth=true\nenforce.auth.enabled=true\nenforce.auth.schemes=digest,ip\n"

    assert configured(text).settings.require_auth == {"sasl"}


def test_a_dynamic_file_has_members_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "dynamic").write_text("skipACL=yes\n")

    with pytest.raises(ConfigError, match=r"dynamic, line 1: skipACL is not a server\.N line"):
        configured(f"dynamicConfigFile={tmp_path / 'dynamic'}\n")


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
def test_the_port_may_stand_in_the_line_of_the_only_server(line: str, expected: tuple[str | None, int]) -> None:
    config = configured(line + "\n")

    assert (config.host, config.port) == expected


@pytest.mark.parametrize(("text", "expected"), [("0x200000", 2097152), ("#ff", 255), ("4096", 4096)])
def test_jute_maxbuffer_may_be_hexadecimal(text: str, expected: int) -> None:
    assert configured(f"jute.maxbuffer={text}\n").settings.max_frame == expected


def test_a_negative_number_of_connections_is_no_limit() -> None:
    assert configured("maxClientCnxns=-1\n").max_client_cnxns == 0


# --- TLS ---

STORE = "secureClientPort=0\nssl.keyStore.location=/k.pem\n"


def test_a_secure_port_alone_opens_no_plain_port() -> None:
    config = configured(STORE)

    assert (config.port, config.secure_port) == (None, 0)


def test_both_ports_may_be_asked_for() -> None:
    config = configured(STORE + "clientPort=2182\n")

    assert (config.port, config.secure_port) == (2182, 0)


def test_a_secure_port_without_a_certificate_is_refused() -> None:
    message = refusal("# comment\nsecureClientPort=2281\n")

    assert "zoo.cfg, line 2" in message
    assert "secureClientPort needs ssl.keyStore.location (--tls-cert)" in message


@pytest.mark.parametrize(
    "line",
    [
        "ssl.keyStore.location=/k.pem",
        "ssl.trustStore.location=/t.pem",
        "ssl.clientAuth=need",
        "secureClientPortAddress=127.0.0.1",
        "ssl.enabledProtocols=TLSv1.3",
        "ssl.ciphersuites=TLS_AES_128_GCM_SHA256",
        "ssl.keyStore.key.location=/k.pem",
    ],
)
def test_tls_without_a_secure_port_is_refused(line: str) -> None:
    message = refusal(f"clientPort=2181\n{line}\n")

    assert "zoo.cfg, line 2" in message
    assert line.partition("=")[0] in message
    assert "secureClientPort" in message


@pytest.mark.parametrize("demand", ["need", "want", "NEED"])
def test_certificates_of_clients_without_authorities_are_refused(demand: str) -> None:
    message = refusal(STORE + f"ssl.clientAuth={demand}\n")

    assert "zoo.cfg, line 3" in message
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
def test_who_has_to_show_a_certificate(lines: str, expected: str) -> None:
    assert configured(STORE + lines).tls.client_auth == expected


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("ssl.clientAuth=maybe", "need or want or none"),
        ("ssl.clientAuth=", "need or want or none"),
        ("ssl.protocol=TLSv1.1", "TLSv1.2, TLSv1.3 or both"),
        ("ssl.protocol=SSLv3", "TLSv1.2, TLSv1.3 or both"),
        ("ssl.enabledProtocols=TLSv1,TLSv1.2", "TLSv1.2, TLSv1.3 or both"),
        ("ssl.enabledProtocols=", "TLSv1.2, TLSv1.3 or both"),
        ("ssl.keyStore.type=BCFKS", "PEM, JKS or PKCS12"),
        ("ssl.trustStore.type=WINDOWS", "PEM, JKS or PKCS12"),
        ("ssl.keyStore.location=/k.bcfks", "BCFKS cannot be read"),
        ("ssl.keyStore.passwordPath=/nowhere/pw", "a file with a password"),
        ("ssl.trustStore.passwordPath=/nowhere/pw", "a file with a password"),
        ("secureClientPort=65536", "a whole number from 0 to 65535"),
        ("secureClientPort=yes", "a whole number from 0 to 65535"),
    ],
)
def test_a_value_of_tls_that_makes_no_sense_is_refused(line: str, remedy: str) -> None:
    message = refusal(STORE + line + "\n")

    assert "zoo.cfg, line 3" in message
    assert f"{line.partition('=')[0]} must be" in message
    assert remedy in message


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
def test_which_versions_of_tls_are_spoken(lines: str, expected: set[str]) -> None:
    # SSLContextAndOptions: the enabled protocols are those of the key; ssl.protocol only stands in where it is missing
    assert configured(STORE + lines).tls.protocols == expected


def test_a_password_file_beats_a_password_wherever_it_stands(tmp_path: Path) -> None:
    # X509Util.getPasswordFromConfigPropertyOrFile
    (tmp_path / "pw").write_text("from the file\n")
    before = f"ssl.keyStore.passwordPath={tmp_path / 'pw'}\nssl.keyStore.password=inline\n"
    behind = f"ssl.keyStore.password=inline\nssl.keyStore.passwordPath={tmp_path / 'pw'}\n"

    assert configured(STORE + behind).tls.key_store_password is None
    assert configured(STORE + before).tls.key_store_password is None
    assert configured(STORE + before).tls.key_store_password_path == str(tmp_path / "pw")


def test_a_password_is_not_shown_in_a_refusal() -> None:
    assert "hunter2" not in refusal("ssl.keyStore.password=hunter2\nsecureClientPort=1\n")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [("", None), ("secureClientPortAddress=127.0.0.5\n", "127.0.0.5"), ("secureClientPortAddress=[::1]\n", "::1")],
)
def test_where_tls_listens(lines: str, expected: str | None) -> None:
    assert configured(STORE + lines).secure_host == expected


# --- keys that nobody knows ---


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
def test_an_unknown_key_is_noted_with_the_nearest_known_one(line: str, nearest: str) -> None:
    assert configured(f"{line}\n").unknown == ((line.partition("=")[0], f"; did you mean {nearest}?"),)


def test_an_unknown_key_like_no_other_is_noted_without_a_guess() -> None:
    assert configured("colour=blue\n").unknown == (("colour", ""),)


def test_an_unknown_key_is_refused_where_that_is_asked_for() -> None:
    with pytest.raises(
        ConfigError, match=r"^zoo\.cfg, line 1: maxClientCnxn is unknown; did you mean maxClientCnxns\?$"
    ):
        build(parse_properties("maxClientCnxn=1\n", "zoo.cfg"), strict=True)


def test_an_unknown_property_of_zookeepers_is_noted_and_one_of_javas_is_not() -> None:
    config = build({}, {}, parse_definitions(["-Dzookeeper.skipAcl=yes", "-Djava.awt.headless=true"], "command line"))

    assert [name for name, _ in config.unknown] == ["zookeeper.skipAcl"]


@pytest.mark.parametrize(
    "text",
    [
        "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=/d\nclientPort=2181\n",
        "autopurge.snapRetainCount=3\nautopurge.purgeInterval=1\nadmin.enableServer=false\nmaxClientCnxns=60\n",
        "metricsProvider.className=x\nmetricsProvider.httpPort=7000\nstandaloneEnabled=true\n",
        "quorumListenOnAllIPs=true\nforceSync=no\npreAllocSize=65536\nsnapCount=1\n4lw.commands.whitelist=*\n",
    ],
)
def test_the_files_that_people_have_make_no_warnings(text: str) -> None:
    assert configured(text).unknown == ()


# --- what is embedded speaks no TLS, and knows all of its keys ---


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
def test_an_embedded_server_refuses_what_it_is_told_of_tls(config: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"TLS|ssl|secureClientPort"):
        Server(config=config)


def test_an_embedded_server_refuses_a_key_that_nobody_knows() -> None:
    with pytest.raises(ValueError, match="maxClientCnxn is unknown; did you mean maxClientCnxns"):
        Server(config={"maxClientCnxn": 1})


def test_an_embedded_server_refuses_a_file_with_a_key_that_nobody_knows(tmp_path: Path) -> None:
    (tmp_path / "zoo.cfg").write_text("tickTime=2000\nskipAcl=yes\n")

    with pytest.raises(ValueError, match=r"zoo\.cfg, line 2: skipAcl is unknown"):
        Server(config=tmp_path / "zoo.cfg")
