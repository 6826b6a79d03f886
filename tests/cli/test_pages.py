"""Completion scripts and manual pages, generated from the parsers of the commands."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from support.waiting import DEADLINE_S

from zoolet.__main__ import main

ROOT: Final = Path(__file__).parents[2]
MAN_FOLDER: Final = ROOT / "docs" / "man"
COMMANDS: Final = frozenset(
    "backup check completion console container datadir dump fault load locks proxy push run serve shell status "
    "top".split()
)


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder and a file in the current folder. Their names contain a blank."""
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a file").touch()
    monkeypatch.chdir(tmp_path)


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the completion script for a shell."""
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def run_in_shell(*command: str, text: str) -> str:
    """Run a shell with a script on its stdin, and return its output."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.usefixtures("paths")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["zoolet", "lo"], {"load", "locks"}),
        (["zoolet", "locks", "--j"], {"--json"}),
        (["zoolet", "shell", "getE"], {"getEphemerals"}),
        (["zoolet", "serve", "--data"], {"--data-dir"}),
        (["zoolet", "serve", "--compat", "''"], {"3.8", "3.9"}),
        (["zoolet", "serve", "--log-level", "w"], {"warning"}),
        (["zoolet", "serve", "--log-format", "''"], {"text", "json"}),
        (["zoolet", "datadir", "v"], {"verify"}),
        (["zoolet", "completion", "z"], {"zsh"}),
        (["zoolet", "serve", "--compat", "=", "''"], {"3.8", "3.9"}),
        (["zoolet", "serve", "--compat", "="], {"3.8", "3.9"}),
        (["zoolet", "serve", "--port", "''"], set()),
        (["zoolet", "serve", "--tls-cert", "''"], {"a folder", "a file"}),
        (["zoolet", "serve", "--tls-cert", "--"], set()),
        (["zoolet", "serve", "--data-dir", "''"], {"a folder"}),
        (["zoolet", "serve", "a"], {"a folder", "a file"}),
        (["zoolet", "backup", "''"], {"a folder"}),
        (["zoolet", "datadir", "show", "'a '"], {"a folder"}),
        (["zoolet", "dump", "localhost", "a"], {"a folder", "a file"}),
        (["zoolet", "status", "--ti"], {"--timeout"}),
        (["zoolet", "completion", "''"], {"bash", "zsh", "fish"}),
        (["zoolet", "run", "--", "compge"], {"compgen"}),
        (["zoolet", "run", "--", "ls", "-l", "a"], {"a folder", "a file"}),
        (["zoolet", "fault", "lose_rep"], {"lose_reply"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bash_completes_commands_and_options(
    words: list[str],
    expected: set[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = script("bash", capsys)
    text += (
        f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _zoolet; printf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    )
    assert {*run_in_shell("bash", "--norc", text=text).split("\n")} - {""} == expected


def test_fish_completes_commands_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    text = script("fish", capsys) + "complete -C 'zoolet lo'\ncomplete -C 'zoolet shell getE'\n"
    words = [line.split("\t")[0] for line in run_in_shell("fish", "--no-config", text=text).splitlines()]
    assert words == ["load", "locks", "getEphemerals"]


@pytest.mark.usefixtures("paths")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("serve --compat ", ["3.8", "3.9"]),
        ("serve --port ", []),
        ("serve --data-dir ", ["a folder/"]),
        ("serve --tls-cert a", ["a file", "a folder/"]),
        ("datadir show ''", ["a folder/", "export", "repair", "show", "verify"]),
        ("check a", ["a file", "a folder/"]),
        ("top --jso", ["--json"]),
    ],
)
def test_fish_completes_values_of_options(
    line: str,
    expected: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = script("fish", capsys) + f'complete -C "zoolet {line}"\n'
    words = [line.split("\t")[0] for line in run_in_shell("fish", "--no-config", text=text).splitlines()]
    assert sorted(words) == expected


def test_zsh_completes_commands_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    stubs = "compdef() { }\n_describe() { local -a list; list=(${(P)2}); print -l -- ${list%%:*} }\n"
    stubs += "_files() { print _files$1 }\n_normal() { print $CURRENT $words }\n"
    text = stubs + script("zsh", capsys) + "words=(zoolet locks -); CURRENT=3; _zoolet\n"
    text += "words=(zoolet serve --compat ''); CURRENT=4; _zoolet\n"
    text += "words=(zoolet serve --data-dir ''); CURRENT=4; _zoolet\n"
    text += "words=(zoolet serve --tls-ca ''); CURRENT=4; _zoolet\n"
    text += "words=(zoolet serve --port ''); CURRENT=4; _zoolet\n"
    text += "words=(zoolet run --admin -- go test); CURRENT=6; _zoolet\n"
    lines = run_in_shell("zsh", "-f", text=text).splitlines()
    assert "--watch" in lines
    assert lines[-5:] == ["3.8", "3.9", "_files-/", "_files", "2 go test"]


# --- manual pages ---


def test_manual_pages_of_all_commands_are_current() -> None:
    """``make docs`` writes the pages."""
    code = "import json, manual; print(json.dumps(manual.manual()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "docs" / "_build", capture_output=True, text=True, check=True
    )
    import json

    pages = json.loads(done.stdout)
    assert set(pages) == {"zoolet.1", *(f"zoolet-{name}.1" for name in COMMANDS)}
    assert {file.name: file.read_text(encoding="utf-8") for file in MAN_FOLDER.iterdir()} == pages


@pytest.mark.parametrize("name", ["zoolet", *sorted(f"zoolet-{name}" for name in COMMANDS)])
def test_manual_page_is_readable_by_man(name: str) -> None:
    if shutil.which("man") is None or shutil.which("groff") is None:
        pytest.skip("man is not installed")
    done = subprocess.run(
        ["man", "--warnings", "-l", str(MAN_FOLDER / f"{name}.1")], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "NAME" in re.sub(".\b", "", done.stdout)


def test_manual_page_of_serve_has_all_sections() -> None:
    text = (MAN_FOLDER / "zoolet-serve.1").read_text(encoding="utf-8")
    assert [*re.findall(r"^\.SH (PROPERTIES|SIGNALS|EXIT STATUS|EXAMPLES)$", text, re.M)] == [
        "PROPERTIES", "SIGNALS", "EXIT STATUS", "EXAMPLES",
    ]  # fmt: skip
    assert {"SIGHUP", "SIGUSR1", "SIGUSR2"} <= {*re.findall(r"SIG\w+", text)}


def test_manual_page_of_shell_lists_its_commands() -> None:
    text = (MAN_FOLDER / "zoolet-shell.1").read_text(encoding="utf-8")
    for name in ("create", "getAllChildrenNumber", "setquota", "tree", "watch"):
        assert f"\\fB{name}" in text
