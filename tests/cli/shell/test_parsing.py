"""The parsing of a line: words, flags, paths and ACL lists."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoolet.cli.shell.acl_text import parse_acl
from zoolet.cli.shell.editing.history import is_kept
from zoolet.cli.shell.errors import ShellCommandError, validate_path
from zoolet.cli.shell.flags import Flag, FlagError, parse
from zoolet.cli.shell.output import ShellOutput
from zoolet.cli.shell.words import last_word, lines, quote, split
from zoolet.protocol import paths
from zoolet.protocol.node_json import acl_text

FLAGS = (Flag("s", "switch"), Flag("w", "switch"), Flag("v", "value", "value"), Flag("add", "value", "value"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("get /a", ["get", "/a"]),
        ("  get   /a  ", ["get", "/a"]),
        ("set /a 'b c'", ["set", "/a", "b c"]),
        ("set /a \"b 'c' d\"", ["set", "/a", "b 'c' d"]),
        ('set /a ""', ["set", "/a", ""]),
        ("set /a it's", ["set", "/a", "it's"]),
        ('set /a "open', ["set", "/a", "open"]),
        ("", []),
        ("ls /a\xa0b /c\u2028d\u3000e", ["ls", "/a\xa0b", "/c\u2028d\u3000e"]),
    ],
)
def test_command_line_is_split_as_in_zkcli(line: str, expected: list[str]) -> None:
    assert split(line) == expected


@given(st.text(st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="'\""), min_size=1))
def test_quoted_word_is_one_word(word: str) -> None:
    assert split(quote(word)) == [word]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", ([], "", 0)),
        ("ge", ([], "ge", 0)),
        ("get ", (["get"], "", 4)),
        ("get /a/b", (["get"], "/a/b", 4)),
        ('get "/a', (["get"], "/a", 4)),
        ('get "/my no', (["get"], "/my no", 4)),
        ('get "/my" /b', (["get", "/my"], "/b", 10)),
    ],
)
def test_last_word_is_found_with_its_start_and_words_before(line: str, expected: tuple[list[str], str, int]) -> None:
    assert last_word(line) == expected


@pytest.mark.parametrize(
    ("words", "flags", "others"),
    [
        (["/a", "-s"], {"s": ""}, ("/a",)),
        (["-sw", "/a"], {"s": "", "w": ""}, ("/a",)),
        (["-v", "3", "/a"], {"v": "3"}, ("/a",)),
        (["-v3", "/a"], {"v": "3"}, ("/a",)),
        (["-sv", "3", "/a"], {"s": "", "v": "3"}, ("/a",)),
        (["-v", "-5", "/a"], {"v": "-5"}, ("/a",)),
        (["-add", "x", "/a"], {"add": "x"}, ("/a",)),
        (["/a", "--", "-s"], {}, ("/a", "-s")),
        (["/a", "-"], {}, ("/a", "-")),
        (["-v", "--", "/a"], {"v": "--"}, ("/a",)),
        (["-v", "1", "-v", "2"], {"v": "1"}, ()),
    ],
)
def test_command_flags_may_stand_before_and_after_arguments(
    words: list[str], flags: dict[str, str], others: tuple[str, ...]
) -> None:
    assert parse(FLAGS, words) == (flags, others)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-x"], "UnrecognizedOptionException: Unrecognized option: -x"),
        (["-sx"], "UnrecognizedOptionException: Unrecognized option: -sx"),
        (["-v"], "MissingArgumentException: Missing argument for option: v"),
        (["-v", "-s"], "MissingArgumentException: Missing argument for option: v"),
        (["-5"], "UnrecognizedOptionException: Unrecognized option: -5"),
    ],
)
def test_invalid_flags_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(FlagError) as caught:
        parse(FLAGS, words)
    assert str(caught.value) == f"org.apache.commons.cli.{message}"


def test_exactly_one_flag_of_group_is_accepted() -> None:
    group = (Flag("n", "count", "value"), Flag("b", "bytes", "value"))
    assert parse(group, ["-n", "1"], one_of=group, required=True).flags == {"n": "1"}
    with pytest.raises(
        FlagError, match="'b' was specified but an option from this group has already been selected: 'n'"
    ):
        parse(group, ["-n", "1", "-b", "2"], one_of=group)
    with pytest.raises(FlagError, match=r"Missing required option: \[-n count, -b bytes\]"):
        parse(group, [], one_of=group, required=True)


@given(st.text(st.sampled_from("/.ab\x00\x07\ue000é"), max_size=8).map(lambda text: "/" + text))
def test_path_validation_matches_protocol(path: str) -> None:
    try:
        validate_path(path)
        accepted = True
    except ShellCommandError:
        accepted = False
    assert accepted == (paths.path_error(path) is None)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/a\x00b", 'Invalid path string "/a\x00b" caused by null character not allowed @2'),
        ("/a\x07b", 'Invalid path string "/a\x07b" caused by invalid character @2'),
        ("/a/../b", 'Invalid path string "/a/../b" caused by relative paths not allowed @4'),
    ],
)
def test_error_describes_problem_of_path(path: str, message: str) -> None:
    with pytest.raises(ShellCommandError) as caught:
        validate_path(path)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "entries", "complaint"),
    [
        ("world:anyone:cdrwa", ["world:anyone:cdrwa"], ""),
        ("world:anyone:r,ip:::1:w", ["world:anyone:r", "ip:::1:w"], ""),
        ("digest:u:hash=:ra", ["digest:u:hash=:ra"], ""),
        ("world:anyone:rz", ["world:anyone:r"], "Unknown perm type: z\n"),
        ("foo", [], "foo does not have the form scheme:id:perm\n"),
    ],
)
def test_acl_list_is_parsed_into_entries(text: str, entries: list[str], complaint: str) -> None:
    err = io.StringIO()
    assert [acl_text(entry) for entry in parse_acl(text, ShellOutput(io.StringIO(), err))] == entries
    assert err.getvalue() == complaint


def test_script_lines_are_split_only_at_line_feed_or_return() -> None:
    assert lines("a\r\nb\rc\nd\u2028e\x85f\x0cg\n") == ["a", "b", "c", "d\u2028e\x85f\x0cg"]


@pytest.mark.parametrize(
    "line",
    [
        "addauth digest u:p",
        "adauth digest u:p",
        "AddAuth digest u:p",
        "add digest u:p",
        "'addauth' digest u:p",
        ' "addauth" d',
        " ls /",
        "",
        "  ",
        "a\nb",
    ],
)
def test_shell_history_omits_lines_with_secrets_and_blank_lines(line: str) -> None:
    assert not is_kept(line)


@pytest.mark.parametrize("line", ["ls /", "addWatch /a", "get digest", "gte /a"])
def test_shell_history_contains_ordinary_lines(line: str) -> None:
    assert is_kept(line)
