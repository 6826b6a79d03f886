"""The options of the ``zoolet`` command, and their rows in the table of keys."""

from __future__ import annotations

import re

import pytest

from zoolet.cli.program import COMMAND_GROUPS, main, parser
from zoolet.server.config import KEYS, Key

COMMANDS = [
    "serve", "datadir", "backup", "container", "status", "top", "shell", "locks", "console", "dump", "load", "push",
    "run", "proxy", "fault", "check", "completion",
]  # fmt: skip
KEYS_WITH_OPTION = [key for key in KEYS if key.option is not None]


def command_help(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the help of a command, on one line."""
    with pytest.raises(SystemExit):
        main([command, "--help"])
    return re.sub(r"\s+", " ", capsys.readouterr().out)


def test_serve_options_set_documented_configuration_keys() -> None:
    assert {key.option: key.name for key in KEYS_WITH_OPTION} == {
        "--host": "clientPortAddress",
        "--port": "clientPort",
        "--data-dir": "dataDir",
        "--admin-port": "admin.serverPort",
        "--admin-token-file": "zoolet.adminTokenFile",
        "--secure-port": "secureClientPort",
        "--tls-cert": "ssl.keyStore.location",
        "--tls-key": "ssl.keyStore.key.location",
        "--tls-ca": "ssl.trustStore.location",
    }


def test_missing_command_prints_help_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    out, err = capsys.readouterr()

    assert out == ""
    assert err.startswith("usage: zoolet ")
    assert "run the daemon" in err


@pytest.mark.parametrize("key", KEYS_WITH_OPTION, ids=lambda key: key.option)
def test_serve_option_sets_configuration_key_of_its_table_row(key: Key) -> None:
    options = parser().parse_args(["serve", str(key.option), key.example])

    assert getattr(options, key.name) == key.example


@pytest.mark.parametrize("key", KEYS_WITH_OPTION, ids=lambda key: key.option)
def test_help_of_serve_option_matches_its_table_row(key: Key, capsys: pytest.CaptureFixture[str]) -> None:
    text = command_help("serve", capsys)

    sentence = re.split(r"\.(?: |$)", key.help.replace("`", ""))[0]
    words = re.sub(r"^(The|An?) ", "", sentence)[1:]
    default = f", default {key.default or 'none'}"
    if not key.default and key.default_note:
        default = f"; default: {key.default_note.replace('`', '')}"

    assert f"{key.option} " in text
    assert f"{words} ({key.name}{default})" in text
    assert "`" not in text


# --- the help screens ---


def test_main_help_lists_each_command_in_one_group(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  ")]

    assert [line for line in lines if line and line in COMMAND_GROUPS] == [title for title in COMMAND_GROUPS if title]
    assert sorted(names) == sorted(COMMANDS)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_command_help_contains_no_markup(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = command_help(command, capsys)

    assert not re.search(r"[`]|\*\*|a zoo\.cfg", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_help_ends_with_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, example, text = command_help(command, capsys).rpartition(" Example: ")
    assert example
    assert f"zoolet {command}" in text


def test_option_errors_have_same_form_as_other_errors(capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["top", "-n", "0"], "zoolet top: -n must be a whole number from 1 to 2147483647, not '0'"),
        (["status", "--timeout", "x"], "--timeout must be more than 0 and less than 1,000,000 seconds, not 'x'"),
        (["shell", "-timeout", "x"], "zoolet shell: --timeout must be a whole number from 1 to 2147483647, not 'x'"),
        (
            ["datadir", "shw", "."],
            "ACTION must be one of show, verify, export, repair, not 'shw'; did you mean show?",
        ),
        (["serv"], "zoolet: unknown command 'serv'; did you mean serve? See 'zoolet --help'"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(words)
        assert message in capsys.readouterr().err
