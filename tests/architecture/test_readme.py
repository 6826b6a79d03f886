"""Commands and links in the documents exist: make targets, options of ``zoolet``, linked files and headings."""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from support.rows import for_each

from zoolet.cli import program

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = [*sorted(ROOT.glob("*.md")), ROOT / "tests" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELL_LANGUAGES: Final = ("", "sh", "bash", "shell", "console", "text", "shell-session")
"""Languages of code blocks whose lines may be commands."""
OUTPUT_LINE: Final = re.compile(r"zoolet (ready on|[\d.]+$)|zoolet:")
"""Lines that zoolet prints, as opposed to commands."""


def relative_path(path: Path) -> str:
    """Return the path of a document below the root."""
    return path.relative_to(ROOT).as_posix()


def command_text(text: str) -> Iterator[str]:
    """Find the lines of code blocks in a shell language, and the code spans in the text around them."""
    block = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*([\w-]*)[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)
    for match in block.finditer(text):
        if match[2] in SHELL_LANGUAGES:
            yield from re.sub(r"\\\n\s*", "", match[3]).splitlines()
    for match in re.finditer(r"(?<!`)(`+)(?!`)([^`\n]+)\1(?!`)", block.sub("", text)):
        yield match[2]


def commands(text: str) -> Iterator[list[str]]:
    """Split commands into words, one list per command, without comments and variables before the command."""
    for line in command_text(text):
        for piece in re.split(r"&&|\|\||[;|&]", re.sub(r"(^|\s)#.*", "", line)):
            if OUTPUT_LINE.match(piece.strip()):
                continue
            words = words_of(piece)
            while words and (words[0] in ("$", "exec", "sudo", "time") or re.fullmatch(r"\w+=.*", words[0])):
                words = words[1:]
            if words:
                yield words


def words_of(piece: str) -> list[str]:
    """Split a command like a shell; if it ends inside a quotation, split it at blanks."""
    try:
        return shlex.split(piece)
    except ValueError:
        return piece.split()


def targets_used(text: str) -> list[str]:
    """Find the make targets that a document mentions."""
    return [
        word
        for first, *rest in commands(text)
        if first == "make"
        for word in rest
        if re.fullmatch(r"[a-z][\w-]*", word)
    ]


def subcommands_used(text: str) -> list[str]:
    """Find the subcommands of zoolet that a document mentions."""
    used = []
    for words in commands(text):
        if words[0].endswith("python") and words[1:3] == ["-m", "zoolet"]:
            words = words[2:]
        elif words[0].rpartition("/")[2] != "zoolet":
            continue
        used += [word for word in words[1:2] if re.fullmatch(r"[a-z][\w-]*", word)]
    return used


def targets() -> set[str]:
    """Find the targets of the Makefile."""
    return set(re.findall(r"^([a-z][\w-]*):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))


def subcommands() -> set[str]:
    """Find the subcommands of zoolet."""
    actions = [one for one in program.parser()._actions if isinstance(one, argparse._SubParsersAction)]
    return {name for action in actions for name in action.choices}


def text_without_code(path: Path) -> str:
    """Return the text of a document without its blocks of code."""
    return re.sub(r"^[ \t]*(```+).*?^[ \t]*\1[ \t]*$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)


@cache
def anchors(path: Path) -> set[str]:
    """Return the anchors of a page, as the site makes them from its headings."""
    headings = re.findall(r"^#+ (.*?)\s*$", text_without_code(path), re.MULTILINE)
    words = [re.sub(r"[^\w\s-]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", one)).strip().lower() for one in headings]
    return {re.sub(r"[-\s]+", "-", one) for one in words}


def broken_links(path: Path) -> list[str]:
    """Find a document's links to missing files and headings."""
    text = text_without_code(path)
    links = re.findall(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)", text)
    links += re.findall(r"^\[[^\]]+\]:\s*<?(\S+?)>?\s*$", text, re.MULTILINE)
    return [link for link in links if not re.match(r"[a-z][a-z0-9+.-]*:|//", link) and not is_valid_link(path, link)]


def is_valid_link(path: Path, link: str) -> bool:
    """Return whether a relative link of a document leads to a file and a heading that exist."""
    name, _, anchor = link.partition("#")
    target = ROOT / name[1:] if name.startswith("/") else path.parent / name if name else path
    return target.exists() and (not anchor or target.suffix != ".md" or anchor in anchors(target))


def rejected_commands(text: str) -> list[str]:
    """Find the commands of zoolet in blocks of code that its parser rejects, with the reason."""
    found = []
    for words in commands(text):
        if words[0].rpartition("/")[2] != "zoolet" or len(words) == 1:
            continue
        words = list(itertools.takewhile(lambda word: word not in ("--", ">", "<"), words))
        options = [word for word in words[1:] if not word.startswith("-D")]
        output = io.StringIO()
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                program.parser().parse_args(options)
        except SystemExit as end:
            if end.code:
                found.append(f"{' '.join(words)}: {output.getvalue().strip()}")
    return found


@for_each("path", DOCUMENTS, ids=relative_path)
def test_every_mentioned_make_target_exists(path: Path) -> None:
    assert sorted(set(targets_used(path.read_text())) - targets()) == []


@for_each("path", DOCUMENTS, ids=relative_path)
def test_every_mentioned_subcommand_exists(path: Path) -> None:
    assert sorted(set(subcommands_used(path.read_text())) - subcommands()) == []


@for_each("path", [path for path in DOCUMENTS if path.name != "commands.md"], ids=relative_path)
def test_parser_accepts_every_command_in_code_blocks(path: Path) -> None:
    blocks = re.findall(r"^[ \t]*```(?:sh|bash|console)\n.*?^[ \t]*```$", path.read_text(), re.MULTILINE | re.DOTALL)

    assert rejected_commands("\n".join(blocks)) == []


@for_each("path", DOCUMENTS, ids=relative_path)
def test_every_relative_link_has_a_target(path: Path) -> None:
    assert broken_links(path) == []


def test_readme_and_changelog_are_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
    assert len((ROOT / "CHANGELOG.md").read_text().split()) <= 600


# --- tests of the functions above ---


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("make sure that you make it", []),
        ("type `make test`", ["test"]),
        ("`make PORT=1 run ARGS='-x y'`", ["run"]),
        ("```\nmake setup lint\n```", ["setup", "lint"]),
        ("```sh\n$ PORT=2182 make run  # or make nothing\n```", ["run"]),
        ("```sh\ncd x && make test; make lint\n```", ["test", "lint"]),
        ("```python\nmake = run\n```", []),
        ("- item\n\n  ```sh\n  make test\n  ```\n", ["test"]),
    ],
)
def test_make_target_in_text_is_found(text: str, used: list[str]) -> None:
    assert targets_used(text) == used


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("zoolet is a server; `zoolet` is its command", []),
        ("`zoolet serve --port 0`", ["serve"]),
        ("`zoolet --version`", []),
        ("```sh\n.venv/bin/zoolet status localhost:2181\n```", ["status"]),
        ("```\n$ zoolet serve &\nzoolet ready on 127.0.0.1:2181\nzoolet: cannot listen\n```", ["serve"]),
        ("```sh\npython -m zoolet serve\n```", ["serve"]),
        ("```sh\nA=1 zoolet run -- pytest\n```", ["run"]),
        ("```sh\npip install zoolet\n```", []),
        ("`zoolet serve [ZOO_CFG] [--port P]`", ["serve"]),
    ],
)
def test_subcommand_in_text_is_found(text: str, used: list[str]) -> None:
    assert subcommands_used(text) == used


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("zoolet run -Da=b --admin -- pytest --nothing", ""),
        ("zoolet serve --nothing", "zoolet serve --nothing: zoolet: unrecognized arguments: --nothing"),
        ("zoolet completion fish > file", ""),
    ],
)
def test_command_that_parser_rejects_is_found(command: str, reason: str) -> None:
    assert "".join(rejected_commands(f"```\n{command}\n```")).partition(";")[0] == reason


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("[a](there.md)", []),
        ("[a](there.md#the-part-of-it)", []),
        ("[a](there.md#nowhere)", ["there.md#nowhere"]),
        ("# Part\n\n[a](#part)", []),
        ("```\n# Part\n```\n\n[a](#part)", ["#part"]),
        ("[a](nowhere.md)", ["nowhere.md"]),
        ("![a](nowhere.png)", ["nowhere.png"]),
        ("[a]: nowhere.md", ["nowhere.md"]),
        ("[a](https://example.org/x) [c](mailto:a@b)", []),
        ("```\n[a](nowhere.md)\n```", []),
    ],
)
def test_broken_relative_link_is_found(tmp_path: Path, text: str, broken: list[str]) -> None:
    (tmp_path / "there.md").write_text("## The *part*, of `it`\n")
    (tmp_path / "page.md").write_text(text)

    assert broken_links(tmp_path / "page.md") == broken


def test_make_targets_and_subcommands_are_read() -> None:
    assert {"setup", "run", "test"} <= targets()
    assert "serve" in subcommands()


def test_readme_of_tests_names_every_folder_and_helper() -> None:
    tests = ROOT / "tests"
    rows = re.findall(r"^\| (`.*?) \|", (tests / "README.md").read_text(), re.MULTILINE)
    named = {name.rstrip("/") for row in rows for name in re.findall(r"`([\w/]+)`", row)}

    folders = {path.parent.relative_to(tests).as_posix() for path in tests.rglob("*.py")} - {".", "server"}
    helpers = {path.stem for path in (tests / "support").glob("*.py")}

    assert folders | helpers == {name for name in named if not name.startswith("ZOOLET_")}
