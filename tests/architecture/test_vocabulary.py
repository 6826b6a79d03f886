"""The words to avoid are found where they are used, and the glossary that lists them is in order."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from architecture import vocabulary
from architecture.vocabulary import Kind, Rule, Vocabulary, read_rules

RULES = [
    Rule("spam", "ham", Kind.IDENTIFIER),
    Rule("_egg", "_shell", Kind.IDENTIFIER),
    Rule("bacon", "beans", Kind.IDENTIFIER, ("server/",)),
    Rule("lark", "bird", Kind.PART),
    Rule("Lark", "Bird", Kind.PART),
    Rule("cuts it off", "disconnects it", Kind.PHRASE),
    Rule("toast", "bread", Kind.PHRASE),
    Rule("Bestow", "Return", Kind.START),
    Rule("Ponder on", "Return whether", Kind.START),
]
TABLE = """
| avoid | write | kind | where |
|---|---|---|---|
| `spam`, `_egg` | `ham`, somehow | identifier | `server/`, `client/` |
| `cuts it off` | disconnects it | phrase | |
"""


def found(source: str, path: str = "server/module.py") -> list[tuple[int, str]]:
    """Return the lines and the words that are reported of a file."""
    return [(finding.line, finding.rule.avoid) for finding in Vocabulary(RULES).check(path, source)]


def glossary() -> str:
    """Return the text of the project's glossary."""
    return (vocabulary.ROOT / vocabulary.GLOSSARY).read_text()


# --- identifiers ---


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("spam = 1", "spam"),
        ("_spam = 1", "spam"),
        ("def f(spam): ...", "spam"),
        ("x.spam()", "spam"),
        ("from x import spam as y", "spam"),
        ("_egg = 1", "_egg"),
        ("lark = 1", "lark"),
        ("was_lark_here = 1", "lark"),
        ("class LarkNest: ...", "Lark"),
        ("x = f'{spam}'", "spam"),
        ("x = f'{{}} {y[spam]!r:>10}'", "spam"),
        ("x = f'{{{y:{spam}}}}'", "spam"),
    ],
)
def test_an_identifier_is_found(source: str, word: str) -> None:
    assert found(source)[0] == (1, word)


@pytest.mark.parametrize(
    "source",
    [
        "spammer = was_spam = Spam = 1",
        "egg = 1",
        "skylark = larks = LARK = 1",
        "x = 'spam lark'  # spam lark",
        "x = f\"spam {{lark}} {y['spam']}\"",
    ],
)
def test_another_identifier_is_not_found(source: str) -> None:
    assert found(source) == []


@pytest.mark.parametrize("path", ["server/spam.py", "spam/module.py", "tests/test_the_lark.py"])
def test_an_identifier_is_found_in_the_path_of_a_module(path: str) -> None:
    assert len(found("x = 1", path)) == 1


# --- text ---


@pytest.mark.parametrize(
    "source",
    [
        "# it cuts it off",
        "x = 1  # Cuts it off, sometimes",
        "x = 'cuts it off'",
        'def f():\n    """It cuts\n    it off."""',
        "# it cuts\n# it off",
        "x = ('cuts it '\n     'off')",
        "x = 'it\\ncuts it off'",
        "x = f'{y} cuts it off {z}'",
    ],
)
def test_a_phrase_is_found_in_the_text_of_a_module(source: str) -> None:
    assert [word for _, word in found(source)] == ["cuts it off"]


@pytest.mark.parametrize(
    "text", ["Toast is here.", "- a list with\n  toast\n", "```python\nx = 'toast'\n```\n", "(toast)"]
)
def test_a_phrase_is_found_in_markdown(text: str) -> None:
    assert [word for _, word in found(text, "docs/page.md")] == ["toast"]


@pytest.mark.parametrize(
    "source",
    [
        "toast = cuts_it_off = 1",
        "# toaster",
        "# cuts it\n\n# off",
        "x = f('cuts it', 'off')",
        "x = 'cuts it' + 'off'",
        "x = 1  # cuts it\ny = 2  # off",
        "x = f'{toast}'",
    ],
)
def test_other_text_and_code_are_not_found(source: str) -> None:
    assert found(source) == []


def test_the_line_of_a_phrase_is_that_on_which_it_begins() -> None:
    source = '"""A module.\n\nIt cuts\nit off.\n"""\n\nx = 1\n# toast\n'

    assert found(source) == [(3, "cuts it off"), (8, "toast")]


# --- docstrings ---


@pytest.mark.parametrize(
    "source",
    [
        '"""Bestow a value."""',
        'def f():\n    """Bestow."""',
        'async def f():\n    """\n    Bestow a value."""',
        'class C:\n    """Bestow a value."""',
        'class C:\n    def f(self):\n        """Ponder\n        on a value."""',
    ],
)
def test_the_start_of_a_docstring_is_found(source: str) -> None:
    assert len(found(source)) == 1


@pytest.mark.parametrize(
    "source",
    ['"""Return what to Bestow."""', '"""Bestowed values."""', '"""bestow"""', "x = 'Bestow'", '"""Ponder."""'],
)
def test_another_start_of_a_docstring_is_not_found(source: str) -> None:
    assert found(source) == []


def test_the_first_words_of_docstrings_are_counted() -> None:
    assert vocabulary.first_words(["Return x.", "Return.", "A word: more"]) == {"Return": 2, "A": 1}


# --- the table ---


def test_a_rule_applies_only_where_it_says() -> None:
    assert found("bacon = 1", "server/module.py") == [(1, "bacon")]
    assert found("bacon = 1", "tests/server/module.py") == []


def test_the_table_is_read_word_by_word() -> None:
    assert read_rules(TABLE) == [
        Rule("spam", "ham, somehow", Kind.IDENTIFIER, ("server/", "client/")),
        Rule("_egg", "ham, somehow", Kind.IDENTIFIER, ("server/", "client/")),
        Rule("cuts it off", "disconnects it", Kind.PHRASE),
    ]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("# A glossary without a table\n", "no table"),
        (TABLE + "| `spam` | meat | identifier | |\n", "twice: identifier spam"),
        (TABLE + "| `spam` | meat | identifier |\n", "not complete"),
        (TABLE + "| `ham` | | identifier | |\n", "not complete"),
        (TABLE + "| ham | meat | identifier | |\n", "backticks"),
        (TABLE + "| `ham` | meat | noun | |\n", "'noun' is not a valid Kind"),
    ],
)
def test_a_table_that_is_wrong_is_refused(table: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_rules(table)


def test_the_glossary_avoids_words_of_every_kind() -> None:
    assert {rule.kind for rule in read_rules(glossary())} == set(Kind)


def test_the_rows_of_the_glossary_are_sorted() -> None:
    rows = re.findall(r"^\| `_*([^`]+)`.*\| ([a-z ]+) \|[^|]*\|$", glossary(), re.MULTILINE)

    assert rows == sorted(rows, key=lambda row: (list(Kind).index(Kind(row[1])), row[0].lower(), row[0]))


def test_the_terms_of_the_glossary_are_sorted_and_unique() -> None:
    terms = re.findall(r"^- \*\*(.+?)\*\*:", glossary(), re.MULTILINE)

    assert len(terms) >= 40
    assert terms == sorted(set(terms), key=str.lower)


def test_the_modules_that_the_glossary_names_exist() -> None:
    named = re.findall(r"`((?:protocol|server|client|tests)/[\w/.-]*)`", glossary().partition("## Words to avoid")[0])

    assert len(named) >= 40
    assert [path for path in named if not (vocabulary.ROOT / path).exists()] == []


# --- the program ---


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a glossary, and the program looking at it."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "glossary.md").write_text(TABLE + "\nNever write that somebody cuts it off.\n")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    monkeypatch.setattr(vocabulary, "ROOT", tmp_path)
    return tmp_path


def write(repository: Path, path: str, text: str) -> None:
    """Write a file, and let git know it."""
    file = repository / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    subprocess.run(["git", "add", path], cwd=repository, check=True)


def test_each_occurrence_is_reported(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, "server/module.py", "x = 1\nspam = 2\n")
    write(repository, "docs/page.md", "A page\n\nthat cuts it off.\n")

    assert vocabulary.main([]) == 1
    assert capsys.readouterr().out == (
        'docs/page.md:3: avoid "cuts it off": write "disconnects it"\n'
        'server/module.py:2: avoid "spam": write "ham, somehow"\n'
    )


def test_nothing_is_reported_of_the_glossary_and_of_what_git_does_not_know(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(repository, "docs/glossary.md", (repository / "docs" / "glossary.md").read_text())
    (repository / "untracked.md").write_text("It cuts it off.\n")

    assert vocabulary.main([]) == 0
    assert capsys.readouterr().out == ""


def test_only_the_named_paths_are_checked(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, "server/module.py", "spam = 2\n")
    write(repository, "docs/page.md", "A page\n")

    assert vocabulary.main(["docs/"]) == 0
    assert vocabulary.main(["docs/", "server/"]) == 1


def test_the_first_words_of_product_code_are_counted(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, "server/module.py", '"""A module."""\n\n\ndef f():\n    """Return 1."""\n')
    write(repository, "client/module.py", '"""A module."""\n')
    write(repository, "tests/module.py", '"""The tests."""\n')

    assert vocabulary.main(["--count"]) == 0
    assert capsys.readouterr().out == "     2 A\n     1 Return\n"


def test_a_summary_counts_each_word(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, "server/module.py", "spam = 2\nspam = 3\n")

    assert vocabulary.main(["--summary"]) == 1
    assert capsys.readouterr().out == '     2 identifier "spam"\n'
