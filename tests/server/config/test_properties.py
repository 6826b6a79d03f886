"""Properties: files in Java's format, and -D options.

Source: java.util.Properties.load; zkServer.sh.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoolet.server.config import (
    ConfigError,
    Setting,
    SettingSource,
    build,
    parse_definitions,
    parse_properties,
    read_environment,
)

SPECIAL = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


def values(text: str) -> dict[str, str]:
    """Parse a properties file. Return the values without their places."""
    return {key: setting.value for key, setting in parse_properties(text, "zoo.cfg").items()}


# --- files ---


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
def test_line_of_properties_is_read_as_in_java(line: str, key: str, value: str) -> None:
    assert values(line) == {key: value}


@pytest.mark.parametrize("text", ["", "\n\n", "# tickTime=1", "! tickTime=1", "   # tickTime=1", "# a \\", "\t\n \n"])
def test_comments_and_empty_lines_are_ignored(text: str) -> None:
    assert values(text) == {}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_line_ending_is_accepted(end: str) -> None:
    assert values(end.join(["a=1", "# c", "b=2", ""])) == {"a": "1", "b": "2"}


@pytest.mark.parametrize("char", ["\x0b", "\x0c", "\x1c", "\x85"], ids=["VT", "FF", "FS", "NEL"])
def test_only_newlines_end_a_line(char: str) -> None:
    # read as Latin-1, the second byte of a UTF-8 letter can be any of 0x80 to 0xbf; in "Å" it is 0x85
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
def test_backslash_continues_line(text: str, expected: dict[str, str]) -> None:
    assert values(text) == expected


def test_continued_setting_reports_first_line() -> None:
    settings = parse_properties("# first\na=1\\\n2\n\nb=3\n", "zoo.cfg")

    assert (settings["a"].where, settings["b"].where) == ("zoo.cfg:2", "zoo.cfg:5")


TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=12)
KEY = TEXT.filter(bool)
VALUE = TEXT.filter(lambda text: text == text.strip() == text.strip("".join(map(chr, range(33)))))


def escaped(char: str) -> str:
    """Escape one character, which makes it literal in any place."""
    if char in SPECIAL:
        return SPECIAL[char]
    if char in " =:#!\\":
        return "\\" + char
    return char if "!" <= char <= "~" else f"\\u{ord(char):04x}"


@st.composite
def written(draw: st.DrawFn) -> tuple[str, dict[str, str]]:
    """Draw settings, and one of many possible spellings of them."""
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
def test_written_properties_are_read(case: tuple[str, dict[str, str]]) -> None:
    text, settings = case

    assert values(text) == settings


@given(st.text(max_size=60))
def test_any_text_is_readable_as_properties(text: str) -> None:
    assert all(isinstance(setting, Setting) for setting in parse_properties(text, "zoo.cfg").values())


# --- -D options ---


@pytest.mark.parametrize(
    ("argument", "name", "value"),
    [
        ("-Dzookeeper.tickTime=500", "zookeeper.tickTime", "500"),
        ("-Dname=a=b", "name", "a=b"),
        ("-Dname=", "name", ""),
        ("-Dname", "name", ""),
    ],
)
def test_definition_is_parsed_into_name_and_value(argument: str, name: str, value: str) -> None:
    assert parse_definitions([argument], "command line") == {
        name: Setting(value, "command line", SettingSource.DEFINITION)
    }


def test_unrelated_java_options_are_ignored() -> None:
    assert parse_definitions(["-Xmx1g", "-server", "-Da=b", "--port"], "x").keys() == {"a"}


@pytest.mark.parametrize("name", ["JVMFLAGS", "SERVER_JVMFLAGS"])
def test_java_flags_are_read(name: str) -> None:
    settings = read_environment({name: "-Xmx512m -Dzookeeper.tickTime=500 -Djute.maxbuffer=2097152", "HOME": "/"})

    assert build(settings).settings.tick_time == 500
    assert build(settings).settings.max_frame == 2_097_152


def test_jvmflags_beat_server_jvmflags() -> None:
    # zkServer.sh: JVMFLAGS="$SERVER_JVMFLAGS $JVMFLAGS", and Java uses the last of two definitions
    settings = read_environment({"JVMFLAGS": "-DmaxCnxns=1", "SERVER_JVMFLAGS": "-DmaxCnxns=2"})

    assert settings["maxCnxns"].value == "1"


def test_java_flag_may_be_quoted() -> None:
    settings = read_environment({"JVMFLAGS": "\"-DsuperUser=a b\" -Dc='d e'"})

    assert (settings["superUser"].value, settings["c"].value) == ("a b", "d e")


def test_environment_without_flags_has_no_settings() -> None:
    assert read_environment({"PATH": "/bin"}) == {}


def test_unclosed_quotation_mark_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"^environment variable JVMFLAGS: .+: No closing quotation$"):
        read_environment({"JVMFLAGS": '-Da="b'})
