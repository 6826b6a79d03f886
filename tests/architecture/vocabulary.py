"""Report the words that vocabulary.txt says to avoid; a part of ``make lint``.

::

    python tests/architecture/vocabulary.py [--count | --summary | --lower] [PATH ...]

Each row of the table in vocabulary.txt has one of four kinds:

- ``identifier``: a whole name in Python code, or a part of a module's path; case counts. A word without a leading
  underscore stands for the names with one, too.
- ``identifier part``: the same, and one part of a longer name: ``spam`` is found in ``was_spam``, ``Spam`` in
  ``SpamLock``.
- ``phrase``: words in docstrings, comments, string literals and names of tests in Python code, and in Markdown. Case
  and line ends do not count.
- ``docstring start``: the first words of a docstring; case counts.

The column ``where`` limits a row to the paths with one of the given prefixes. A local variable whose name is to be
avoided is only a warning, which does not change the exit code.

A second table contains expressions. Each has a ceiling: how often it may occur in docstrings, comments, literals, names
of tests and pages. Inline code and code blocks of pages do not count. An expression that occurs more often is
reported with its lines. ``--lower`` replaces each ceiling by the present count if that is lower. No option raises one.

Text is separated from code with ``tokenize``: the prose of a module is a string as long as its source, so that an
offset in one is an offset in the other. The expressions in an f-string are code.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
WORDS: Final = "tests/architecture/vocabulary.txt"
PRODUCT: Final = ("protocol/", "server/", "client/")
"""The folders whose docstrings ``--count`` counts."""

COLUMNS: Final = "| avoid | write | kind | where |"
CEILINGS: Final = "| ceiling | write | expression |"
MAX_LINES: Final = 50
"""Maximum number of lines that are reported for each expression."""
CODE: Final = "\0"
"""The replacement of each character of code in the prose, because a phrase must not span code."""
GAP: Final = r"(?:[^\S\n]+|[^\S\n]*\n[^\S\n]*)"
"""The gap between the words of a phrase: blanks with at most one line end, because paragraphs separate phrases."""
FSTRING_TEXT: Final = getattr(tokenize, "FSTRING_MIDDLE", -1)
FSTRING_QUOTES: Final = (getattr(tokenize, "FSTRING_START", -1), getattr(tokenize, "FSTRING_END", -1))
"""Since Python 3.12 the parts of an f-string are tokens."""


class Kind(StrEnum):
    """The kind of text where a word is avoided."""

    IDENTIFIER = "identifier"
    PART = "identifier part"
    PHRASE = "phrase"
    START = "docstring start"


class Rule(NamedTuple):
    """A word to avoid.

    Args:
        avoid: The word, or the words of a phrase.
        write: The replacement.
        kind: The kind of text where it is avoided.
        where: Prefixes of the paths where the rule applies; empty for all.
    """

    avoid: str
    write: str
    kind: Kind
    where: tuple[str, ...] = ()


class Finding(NamedTuple):
    """An occurrence of a word to avoid, which is only a warning for the name of a local variable."""

    path: str
    line: int
    rule: Rule
    is_warning: bool = False

    def __str__(self) -> str:
        """Return the line to report."""
        warning = "warning: " if self.is_warning else ""
        return f'{self.path}:{self.line}: {warning}avoid "{self.rule.avoid}": write "{self.rule.write}"'


class Expression(NamedTuple):
    """A regular expression for lines of text that usually read better in other words.

    Args:
        pattern: The expression; case counts.
        write: What to write instead.
        ceiling: The highest permitted number of occurrences in the project.
    """

    pattern: str
    write: str
    ceiling: int


class Module(NamedTuple):
    """A Python module, separated into code and text.

    Args:
        names: The names in the code, each with its offset in the source.
        prose: The source with CODE in place of everything that is not a comment or a string.
    """

    names: list[tuple[int, str]]
    prose: str


def read_rules(text: str) -> list[Rule]:
    """Return the rows of the table in a text, one rule per word.

    Raises:
        ValueError: The table is missing, a row has a different form, or a word occurs twice.
    """
    _, _, rest = text.partition(f"{COLUMNS}\n")
    rows = re.match(r"\|[-|]+\|\n((?:\|.*\n)+)", rest)
    if rows is None:
        raise ValueError(f"{WORDS} has no table {COLUMNS}")
    rules = [rule for row in rows[1].splitlines() for rule in _rules_of(row)]
    counts = Counter((rule.kind, rule.avoid) for rule in rules)
    if repeated := [f"{kind} {word}" for (kind, word), count in counts.items() if count > 1]:
        raise ValueError(f"{WORDS} avoids a word twice: {', '.join(repeated)}")
    return rules


def read_expressions(text: str) -> list[Expression]:
    """Return the rows of the table with the ceilings.

    Raises:
        ValueError: The table is missing, or a row has a different form.
    """
    _, _, rest = text.partition(f"{CEILINGS}\n")
    rows = re.match(r"\|[-|]+\|\n((?:\|.*\n)+)", rest)
    if rows is None:
        raise ValueError(f"{WORDS} has no table {CEILINGS}")
    found = []
    for row in rows[1].splitlines():
        cells = re.fullmatch(r"\| (\d+) \| ([^|]+) \| `(.+)` \|", row)
        if cells is None:
            raise ValueError(f"a row of {WORDS} is not '| number | words | `expression` |': {row}")
        found.append(Expression(cells[3], cells[2], int(cells[1])))
    return found


def text_lines(path: str, source: str) -> list[str]:
    """Return the lines of text in a file, without code. The names of tests count as text."""
    if not path.endswith(".py"):
        return _page_lines(source)
    prose = read_module(source).prose.split("\n")
    lines = [re.sub(rf"[{CODE}\s]+", " ", line).strip() for line in prose]
    for number, line in enumerate(source.split("\n")):
        if name := re.match(r"\s*(?:async )?def test_(\w+)", line):
            lines[number] = name[1].replace("_", " ")
    return lines


def _page_lines(source: str) -> list[str]:
    lines, is_fenced = [], False
    for line in source.split("\n"):
        is_fence = line.lstrip().startswith("```")
        is_fenced ^= is_fence
        lines.append("" if is_fenced or is_fence else re.sub(r"`[^`]*`", "`c`", line))
    return lines


def find_occurrences(expressions: Sequence[Expression], files: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the occurrences of each expression, as texts ``path:line: text``, by its pattern."""
    found: dict[str, list[str]] = {expression.pattern: [] for expression in expressions}
    for path, source in files:
        lines = text_lines(path, source)
        whole = "\n".join(lines)
        for pattern, places in found.items():
            for match in re.finditer(pattern, whole, re.MULTILINE):
                line = _line(whole, match.start())
                places.append(f"{path}:{line}: {lines[line - 1]}")
    return found


def lower_ceilings(text: str, counts: Mapping[str, int]) -> str:
    """Return the text of the table with each ceiling lowered to the count of its expression."""
    for pattern, write, ceiling in read_expressions(text):
        row = f"| {write} | `{pattern}` |"
        text = text.replace(f"| {ceiling} {row}", f"| {min(ceiling, counts[pattern])} {row}")
    return text


def _rules_of(row: str) -> Iterator[Rule]:
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    if len(cells) != 4 or not all(cells[:3]):
        raise ValueError(f"a row of {WORDS} is not complete: {row}")
    words, write, kind, where = cells
    if re.fullmatch(r"`[^`]+`(, `[^`]+`)*", words) is None:
        raise ValueError(f"the words to avoid must stand in backticks: {row}")
    for word in re.findall(r"`([^`]+)`", words):
        yield Rule(word, write.replace("`", ""), Kind(kind), tuple(re.findall(r"`([^`]+)`", where)))


@cache  # each module is read twice: for words, and for expressions
def read_module(source: str) -> Module:
    """Separate the code of a module from its text."""
    starts = [0]
    for line in source.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    names: list[tuple[int, str]] = []
    prose = list(re.sub(r"\S", CODE, source))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        at = starts[token.start[0] - 1] + token.start[1]
        end = starts[token.end[0] - 1] + token.end[1]
        if token.type == tokenize.NAME:
            names.append((at, token.string))
        elif token.type == tokenize.COMMENT:
            prose[at:end] = " " + token.string[1:]
        elif token.type == tokenize.STRING:
            prose[at:end], inside = _read_string(token.string)
            names += [(at + offset, name) for offset, name in inside]
        elif token.type == FSTRING_TEXT:
            prose[at:end] = _unescaped(source[at:end])
        elif token.type in FSTRING_QUOTES:
            prose[at:end] = " " * (end - at)
    return Module(names, "".join(prose))


def _read_string(literal: str) -> tuple[str, list[tuple[int, str]]]:
    """Return the text of a string literal, as long as the literal, and the names in the braces of an f-string."""
    opening = re.match(r"([A-Za-z]*)('''|\"\"\"|'|\")", literal)
    assert opening is not None
    prefix, quotes = opening.groups()
    text = " " * len(opening[0]) + _unescaped(literal[len(opening[0]) : -len(quotes)]) + " " * len(quotes)
    names: list[tuple[int, str]] = []
    if "f" in prefix.lower():
        for field in re.finditer(r"\{\{|\}\}|\{(?:[^{}]|\{[^{}]*\})*\}", text):
            code = re.sub(r"'[^']*'|\"[^\"]*\"", lambda quoted: " " * len(quoted[0]), field[0])
            names += [(field.start() + name.start(), name[0]) for name in re.finditer(r"[^\W\d]\w*", code)]
            text = text[: field.start()] + re.sub(r"\S", CODE, field[0]) + text[field.end() :]
    return text, names


def _unescaped(text: str) -> str:
    """Replace line ends and tabs that are written as escapes, and escaped line ends, by blanks."""
    return re.sub(r"\\(?=\n)", " ", re.sub(r"\\[nrt]", "  ", text))


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a module, its classes and its functions, each with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text


def local_variables(source: str) -> set[tuple[int, str]]:
    """Return the lines and names of a module's local variables, which functions assign. Parameters are left out."""
    local: set[tuple[int, str]] = set()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            inside = list(ast.walk(function))
            shared = {name for node in inside if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
            names = [node for node in inside if isinstance(node, ast.Name)]
            assigned = {node.id for node in names if isinstance(node.ctx, ast.Store)} - shared
            local |= {(node.lineno, node.id) for node in names if node.id in assigned}
    return local


@cache
def name_parts(name: str) -> frozenset[str]:
    """Return the parts of a name, between underscores and at the humps of camel case, and the name itself."""
    words = [word for word in name.split("_") if word]
    humps = [hump for word in words for hump in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])", word)]
    return frozenset({name, *words, *humps})


class Vocabulary:
    """The words to avoid, arranged for look-up."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        by_kind: dict[Kind, dict[str, Rule]] = {kind: {} for kind in Kind}
        for rule in rules:
            word = " ".join(rule.avoid.lower().split()) if rule.kind is Kind.PHRASE else rule.avoid
            by_kind[rule.kind][word] = rule
        self._identifiers = by_kind[Kind.IDENTIFIER]
        self._parts = by_kind[Kind.PART]
        self._phrases = by_kind[Kind.PHRASE]
        self._starts = by_kind[Kind.START]
        longest_first = sorted(self._phrases, key=len, reverse=True)
        alternatives = "|".join(GAP.join(re.escape(word) for word in phrase.split()) for phrase in longest_first)
        self._phrase = re.compile(rf"(?<!\w)(?:{alternatives or '(?!)'})(?!\w)", re.IGNORECASE)

    def check(self, path: str, source: str) -> list[Finding]:
        """Return the words to avoid in a file, by line. A file without the suffix ``.py`` is text."""
        found: list[tuple[int, Rule, bool]] = []
        if path.endswith(".py"):
            module = read_module(source)
            found += [(1, rule, False) for name in re.split(r"[/.]", path) for rule in self._in_name(name)]
            named = [(_line(source, at), name, rule) for at, name in module.names for rule in self._in_name(name)]
            local = local_variables(source) if named else set()
            found += [(line, rule, (line, name) in local) for line, name, rule in named]
            found += [(line, rule, False) for line, text in docstrings(source) for rule in self._at_start(text)]
            prose = module.prose
        else:
            prose = source
        found += [(_line(source, at), rule, False) for at, rule in self._in_text(prose)]
        found.sort(key=lambda one: (one[0], one[1].avoid))
        return [Finding(path, *one) for one in found if not one[1].where or path.startswith(one[1].where)]

    def _in_name(self, name: str) -> Iterator[Rule]:
        for word in {name, name.lstrip("_")} & self._identifiers.keys():
            yield self._identifiers[word]
        for word in sorted(name_parts(name) & self._parts.keys()):
            yield self._parts[word]
        if name.startswith("test_"):  # the names of tests are checked like text
            yield from (rule for _, rule in self._in_text(name.replace("_", " ")))

    def _at_start(self, docstring: str) -> Iterator[Rule]:
        text = " ".join(docstring.split())
        for start, rule in self._starts.items():
            if re.match(rf"{re.escape(start)}(?!\w)", text):
                yield rule

    def _in_text(self, prose: str) -> Iterator[tuple[int, Rule]]:
        for match in self._phrase.finditer(prose):
            yield match.start(), self._phrases[" ".join(match[0].lower().split())]


def _line(source: str, offset: int) -> int:
    return source.count("\n", 0, offset) + 1


def read_sources(root: Path, beginnings: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each Python and Markdown file that git knows.

    Args:
        root: The top folder of the repository.
        beginnings: Prefixes of the paths; empty for all.
    """
    command = ["git", "ls-files", "-z", "--", "*.py", "*.md"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    for path in sorted(filter(None, listed.split("\0"))):
        if path.startswith(tuple(beginnings) or "") and (root / path).exists():
            yield path, (root / path).read_text()


def first_words(texts: Iterable[str]) -> Counter[str]:
    """Count the first words of docstrings."""
    return Counter(text.split()[0].strip(".,:;?!") for text in texts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code: 1 if anything but a warning was found."""
    parser = argparse.ArgumentParser(description=f"Report the words that {WORDS} says to avoid.")
    parser.add_argument("paths", nargs="*", help="prefixes of the paths to check, such as docs/ (default: all)")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--count", action="store_true", help="count the first words of the docstrings of product code")
    choice.add_argument("--summary", action="store_true", help="print how often each word occurs, not each occurrence")
    choice.add_argument("--lower", action="store_true", help="lower the ceilings of expressions to the present counts")
    options = parser.parse_args(arguments)
    if options.count:
        files = read_sources(ROOT, options.paths or PRODUCT)
        counted = first_words(text for path, source in files if path.endswith(".py") for _, text in docstrings(source))
        print("\n".join(f"{count:6,} {word}" for word, count in counted.most_common()))
        return 0
    text = (ROOT / WORDS).read_text()
    vocabulary = Vocabulary(read_rules(text))
    files = list(read_sources(ROOT, options.paths))
    findings = [finding for path, source in files for finding in vocabulary.check(path, source)]
    too_many = [] if options.paths else _over_the_ceilings(text, files, lower=options.lower)
    if options.summary:
        counted_rules = Counter(finding.rule for finding in findings)
        print("\n".join(f'{count:6,} {rule.kind} "{rule.avoid}"' for rule, count in counted_rules.most_common()))
    else:
        print("".join(f"{line}\n" for line in [*findings, *too_many]), end="")
    return 1 if too_many or not all(finding.is_warning for finding in findings) else 0


def _over_the_ceilings(text: str, files: Sequence[tuple[str, str]], *, lower: bool) -> list[str]:
    """Return a report of expressions above their ceilings. With *lower*, also lower the ceilings in the table."""
    expressions = read_expressions(text)
    found = find_occurrences(expressions, files)
    if lower:
        (ROOT / WORDS).write_text(lower_ceilings(text, {pattern: len(places) for pattern, places in found.items()}))
    return [
        line
        for pattern, write, ceiling in expressions
        if len(found[pattern]) > ceiling
        for line in (
            f"{len(found[pattern])} times {pattern}, at most {ceiling}: write {write}",
            *found[pattern][:MAX_LINES],
        )
    ]


if __name__ == "__main__":
    raise SystemExit(main())
