"""The words to avoid are found where they are used, and their table and the pages of terms are in order."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from architecture import vocabulary
from architecture.vocabulary import Expression, Kind, Rule, Vocabulary, read_rules

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


def reported_words(source: str, path: str = "server/module.py") -> list[tuple[int, str]]:
    """Return the lines and the words that are reported for a file."""
    return [(finding.line, finding.rule.avoid) for finding in Vocabulary(RULES).check(path, source)]


PAGES = ("docs/glossary.md", "docs/project/terms.md")


def vocabulary_text() -> str:
    """Return the text of the project's words to avoid."""
    return (vocabulary.ROOT / vocabulary.WORDS).read_text()


def terms(page: str) -> list[str]:
    """Return the terms that a page explains."""
    return re.findall(r"^- \*\*(.+?)\*\*:", (vocabulary.ROOT / page).read_text(), re.MULTILINE)


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
def test_discouraged_identifier_is_found(source: str, word: str) -> None:
    assert reported_words(source)[0] == (1, word)


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
def test_acceptable_identifier_is_not_reported(source: str) -> None:
    assert reported_words(source) == []


@pytest.mark.parametrize("path", ["server/spam.py", "spam/module.py", "tests/test_the_lark.py"])
def test_discouraged_word_is_found_in_path_of_module(path: str) -> None:
    assert len(reported_words("x = 1", path)) == 1


@pytest.mark.parametrize(
    ("source", "is_warning"),
    [
        ("def f():\n    spam = 1\n    return spam", True),
        ("def f():\n    for was_lark in x:\n        return was_lark", True),
        ("def f():\n    def g():\n        return spam\n    spam = 1", True),
        ("def f(spam):\n    return spam", False),
        ("def f():\n    global spam\n    spam = 1", False),
        ("def f():\n    return spam", False),
        ("def f():\n    spam.spam = 1", False),
        ("spam = 1", False),
    ],
)
def test_local_variable_is_only_a_warning(source: str, is_warning: bool) -> None:
    findings = Vocabulary(RULES).check("server/module.py", source)

    assert {finding.is_warning for finding in findings} == {is_warning}


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
def test_discouraged_phrase_is_found_in_text_of_module(source: str) -> None:
    assert [word for _, word in reported_words(source)] == ["cuts it off"]


@pytest.mark.parametrize(
    "text", ["Toast is here.", "- a list with\n  toast\n", "```python\nx = 'toast'\n```\n", "(toast)"]
)
def test_discouraged_phrase_is_found_in_markdown(text: str) -> None:
    assert [word for _, word in reported_words(text, "docs/page.md")] == ["toast"]


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
def test_acceptable_text_and_code_are_not_reported(source: str) -> None:
    assert reported_words(source) == []


def test_line_of_phrase_is_where_it_starts() -> None:
    source = '"""A module.\n\nIt cuts\nit off.\n"""\n\nx = 1\n# toast\n'

    assert reported_words(source) == [(3, "cuts it off"), (8, "toast")]


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
def test_discouraged_start_of_docstring_is_found(source: str) -> None:
    assert len(reported_words(source)) == 1


@pytest.mark.parametrize(
    "source",
    ['"""Return what to Bestow."""', '"""Bestowed values."""', '"""bestow"""', "x = 'Bestow'", '"""Ponder."""'],
)
def test_acceptable_start_of_docstring_is_not_reported(source: str) -> None:
    assert reported_words(source) == []


def test_first_words_of_docstrings_are_counted() -> None:
    assert vocabulary.first_words(["Return x.", "Return.", "A word: more"]) == {"Return": 2, "A": 1}


# --- the table ---


def test_vocabulary_rule_applies_only_to_its_paths() -> None:
    assert reported_words("bacon = 1", "server/module.py") == [(1, "bacon")]
    assert reported_words("bacon = 1", "tests/server/module.py") == []


def test_vocabulary_table_is_read_word_by_word() -> None:
    assert read_rules(TABLE) == [
        Rule("spam", "ham, somehow", Kind.IDENTIFIER, ("server/", "client/")),
        Rule("_egg", "ham, somehow", Kind.IDENTIFIER, ("server/", "client/")),
        Rule("cuts it off", "disconnects it", Kind.PHRASE),
    ]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("# A text without a table\n", "no table"),
        (TABLE + "| `spam` | meat | identifier | |\n", "twice: identifier spam"),
        (TABLE + "| `spam` | meat | identifier |\n", "not complete"),
        (TABLE + "| `ham` | | identifier | |\n", "not complete"),
        (TABLE + "| ham | meat | identifier | |\n", "backticks"),
        (TABLE + "| `ham` | meat | noun | |\n", "'noun' is not a valid Kind"),
    ],
)
def test_invalid_vocabulary_table_is_refused(table: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_rules(table)


def test_vocabulary_table_has_words_of_every_kind() -> None:
    assert {rule.kind for rule in read_rules(vocabulary_text())} == set(Kind)


def test_rows_of_vocabulary_table_are_sorted() -> None:
    rows = re.findall(r"^\| `_*([^`]+)`.*\| ([a-z ]+) \|[^|]*\|$", vocabulary_text(), re.MULTILINE)

    assert len(rows) > 100
    assert rows == sorted(rows, key=lambda row: (list(Kind).index(Kind(row[1])), row[0].lower(), row[0]))


@pytest.mark.parametrize("page", PAGES)
def test_terms_of_page_are_sorted_and_unique(page: str) -> None:
    assert len(terms(page)) >= 20
    assert terms(page) == sorted(set(terms(page)), key=str.lower)


def test_glossary_and_code_terms_are_disjoint() -> None:
    assert len(terms(PAGES[0])) >= 40
    assert not {*terms(PAGES[0])} & {*terms(PAGES[1])}


def test_code_terms_are_unique_and_in_glossary() -> None:
    [_, table] = (vocabulary.ROOT / PAGES[1]).read_text().split("| Term | Code |\n|---|---|\n")
    named = [term for cell in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for term in cell.split(", ")]

    assert len(named) >= 35
    assert len(named) == len(set(named))
    assert set(named) - {*terms(PAGES[0])} == set()


def test_modules_named_in_rows_of_terms_exist() -> None:
    text = (vocabulary.ROOT / PAGES[1]).read_text()
    named = re.findall(r"`((?:protocol|server|client|testing|console|cli|tests)/[\w/.-]*)`", text)

    assert len(named) >= 50
    assert [path for path in named if not (vocabulary.ROOT / path).exists()] == []


# --- expressions ---

CEILINGS = """
| ceiling | write | expression |
|---|---|---|
| 2 | next to | `\\b[Nn]igh\\b|^Toward ` |
| 1 | *expected X* | `Woe: It ` |
"""
NIGH = r"\b[Nn]igh\b|^Toward "


def test_expression_ceilings_are_read_from_table() -> None:
    assert vocabulary.read_expressions(CEILINGS) == [
        Expression(NIGH, "next to", 2),
        Expression("Woe: It ", "*expected X*", 1),
    ]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("no table", "no table"),
        (CEILINGS + "| many | x | `y` |\n", "a row of"),
        (CEILINGS + "| 3 | x | y |\n", "a row of"),
    ],
)
def test_invalid_table_of_ceilings_is_refused(table: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        vocabulary.read_expressions(table)


@pytest.mark.parametrize(
    ("path", "source", "lines"),
    [
        ("a.py", '"""Is nigh.\n\n    Toward it."""', ["a.py:1: Is nigh.", "a.py:3: Toward it."]),
        ("a.py", "nigh = 1  # nigh", ["a.py:1: nigh"]),
        ("a.py", "f(nigh, f'{nigh} is nigh {x}')", ["a.py:1: is nigh"]),
        ("a.py", "x = 1\nasync def test_a_nigh_b(): ...", ["a.py:2: a nigh b"]),
        ("a.py", "def nigh(): ...", []),
        ("a.md", "nigh `nigh`\n```\nnigh\n```\nToward it", ["a.md:1: nigh `c`", "a.md:5: Toward it"]),
    ],
)
def test_expressions_are_found_only_in_text_of_module(path: str, source: str, lines: list[str]) -> None:
    expressions = vocabulary.read_expressions(CEILINGS)

    assert vocabulary.find_occurrences(expressions, [(path, source)])[NIGH] == lines


def test_ceiling_is_lowered_and_never_raised() -> None:
    lowered = vocabulary.lower_ceilings(CEILINGS, {NIGH: 1, "Woe: It ": 5})

    assert [expression.ceiling for expression in vocabulary.read_expressions(lowered)] == [1, 1]


# --- the program ---


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with a table of words to avoid; the program uses it as its root."""
    (tmp_path / vocabulary.WORDS).parent.mkdir(parents=True)
    (tmp_path / vocabulary.WORDS).write_text(TABLE + "\nNever write that a server cuts it off.\n" + CEILINGS)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    monkeypatch.setattr(vocabulary, "ROOT", tmp_path)
    return tmp_path


def write(repository: Path, path: str, text: str) -> None:
    """Write a file in the repository, and add it to git."""
    file = repository / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    subprocess.run(["git", "add", path], cwd=repository, check=True)


def test_each_occurrence_of_word_is_reported(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, "server/module.py", "x = 1\nspam = 2\n")
    write(repository, "docs/page.md", "A page\n\nthat cuts it off.\n")

    assert vocabulary.main([]) == 1
    assert capsys.readouterr().out == (
        'docs/page.md:3: avoid "cuts it off": write "disconnects it"\n'
        'server/module.py:2: avoid "spam": write "ham, somehow"\n'
    )


def test_vocabulary_check_skips_its_table_and_untracked_files(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(repository, vocabulary.WORDS, (repository / vocabulary.WORDS).read_text())
    (repository / "untracked.md").write_text("It cuts it off.\n")

    assert vocabulary.main([]) == 0
    assert capsys.readouterr().out == ""


def test_vocabulary_check_reads_only_named_paths(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, "server/module.py", "spam = 2\n")
    write(repository, "docs/page.md", "A page\n")

    assert vocabulary.main(["docs/"]) == 0
    assert vocabulary.main(["docs/", "server/"]) == 1


def test_first_words_of_product_code_are_counted(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, "server/module.py", '"""A module."""\n\n\ndef f():\n    """Return 1."""\n')
    write(repository, "client/module.py", '"""A module."""\n')
    write(repository, "tests/module.py", '"""The tests."""\n')

    assert vocabulary.main(["--count"]) == 0
    assert capsys.readouterr().out == "     2 A\n     1 Return\n"


def test_summary_option_counts_each_reported_word(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, "server/module.py", "spam = 2\nspam = 3\n")

    assert vocabulary.main(["--summary"]) == 1
    assert capsys.readouterr().out == '     2 identifier "spam"\n'


def test_expression_above_ceiling_is_listed_with_lines(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, "docs/page.md", "nigh\nToward it\nWoe: It is.\n")
    assert vocabulary.main([]) == 0
    write(repository, "server/module.py", "# is nigh\n")

    assert vocabulary.main([]) == 1
    assert capsys.readouterr().out == (
        f"3 times {NIGH}, at most 2: write next to\n"
        "docs/page.md:1: nigh\ndocs/page.md:2: Toward it\nserver/module.py:1: is nigh\n"
    )


def test_lower_option_writes_counts_into_table(repository: Path) -> None:
    write(repository, "docs/page.md", "nigh\n")

    assert vocabulary.main(["--lower"]) == 0
    assert [e.ceiling for e in vocabulary.read_expressions((repository / vocabulary.WORDS).read_text())] == [1, 0]


def test_local_variable_does_not_fail_program(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, "server/module.py", "def f():\n    spam = 2\n")

    assert vocabulary.main([]) == 0
    assert capsys.readouterr().out == 'server/module.py:2: warning: avoid "spam": write "ham, somehow"\n'
