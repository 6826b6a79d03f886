"""The pages about testing: their Python code runs unchanged, and their tables are complete."""

from __future__ import annotations

import configparser
import inspect
import re
from pathlib import Path
from typing import Final, NamedTuple

import kazoo.client  # noqa: F401 - what a pytest in this process imports first, it forgets at its end
import pytest

import zoolet.testing.state.report  # noqa: F401
from zoolet.protocol.operations import OPERATIONS
from zoolet.testing import Server
from zoolet.testing.frames import actions
from zoolet.testing.frames.actions import Action
from zoolet.testing.frames.faults import parse_op
from zoolet.testing.pytest import fixtures

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = DOCS / "testing.md"
FAULTS: Final = DOCS / "reference" / "faults.md"
HOWTOS: Final = (DOCS / "testing-howto.md", DOCS / "testing-coming-from.md")
TIME: Final = (DOCS / "testing-time.md", DOCS / "testing-recordings.md")
PAGES: Final = (
    PAGE,
    *TIME,
    DOCS / "testing-cluster.md",
    *HOWTOS,
    FAULTS,
    *(DOCS / "reference" / f"{name}.md" for name in ("testing", "testing-cases", "testing-cluster", "testing-proxy")),
    *(DOCS / "reference" / f"{name}.md" for name in ("views", "simulation", "protocol", "recipes")),
)


class Block(NamedTuple):
    """A block of Python code."""

    page: Path
    heading: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.page.stem} {self.heading}".replace(" ", "-")


def all_blocks() -> list[Block]:
    """Return the Python blocks of all pages."""
    return [block for page in PAGES for block in blocks(page)]


def blocks(page: Path = PAGE) -> list[Block]:
    """Return the Python blocks of a page."""
    text = page.read_text()
    found = []
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        before = text[: match.start(1)]
        heading = re.findall(r"^##? (.*)$", before, re.MULTILINE)[-1]
        found.append(Block(page, heading, before.count("\n"), match[1]))
    return found


def is_for_pytest(block: Block) -> bool:
    """Return whether a block is a test file and not a script."""
    return re.search(r"^( {4})?def test_", block.code, re.MULTILINE) is not None


def first_cells_of_table(title: str) -> list[str]:
    """List the first cells of the reference table whose first column has this title."""
    found = re.search(rf"^\| {title} \|.*\n\|[-|]+\n((?:\|.*\n?)+)", FAULTS.read_text(), re.MULTILINE)
    assert found is not None
    return [row.split("|")[1].strip() for row in found[1].splitlines()]


@pytest.mark.parametrize("block", [one for one in all_blocks() if not is_for_pytest(one)], ids=str)
def test_script_in_testing_docs_runs(block: Block) -> None:
    code = compile("\n" * block.line + block.code, str(block.page), "exec")

    exec(code, {"__name__": "__main__"})


@pytest.mark.parametrize("block", [one for one in all_blocks() if is_for_pytest(one)], ids=str)
def test_test_file_in_testing_docs_passes(block: Block, pytester: pytest.Pytester) -> None:
    pytester.makeini(
        """
        [pytest]
        addopts = -p no:hypothesispytest
        asyncio_default_fixture_loop_scope = function
        filterwarnings = default
        zoolet_leaks = error
        """
    )
    pytester.makepyfile(test_page=block.code)

    result = pytester.runpytest_inprocess()

    assert result.ret == pytest.ExitCode.OK
    assert list(result.parseoutcomes()) == ["passed"], result.stdout.str()


def test_schedule_without_version_fails_as_shown(pytester: pytest.Pytester) -> None:
    page = DOCS / "testing-time.md"
    (block,) = (block for block in blocks(page) if block.heading == "Try many schedules" and "version=" in block.code)
    (shown,) = re.findall(r"^```text\n(schedule .*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    pytester.makepyfile(test_page=block.code.replace(", version=stat.version", ""))

    output = pytester.runpytest_inprocess().stdout.str()

    assert shown.splitlines() == re.findall(r"^E {7}(schedule .*| +\d+ ms .*)$", output, re.MULTILINE)


@pytest.mark.parametrize("page", [PAGE, *TIME], ids=lambda page: page.stem)
def test_every_section_of_testing_docs_has_an_example(page: Path) -> None:
    headings = re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)
    shown = {block.heading for block in blocks(page)}

    missing = [heading for heading in headings if heading not in shown]
    assert missing == [one for one in missing if one in ("What a failing test shows", "Where to go next")]


def test_every_section_is_linked_from_first_table() -> None:
    text = PAGE.read_text()
    headings = [one for one in re.findall(r"^## (.*)$", text, re.M) if one != "Where to go next"]
    anchors = {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}

    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) == anchors


def test_table_in_testing_docs_lists_every_action() -> None:
    there = {
        name
        for name, found in inspect.getmembers(actions, inspect.isfunction)
        if found.__module__ == actions.__name__ and inspect.signature(found).return_annotation == Action.__name__
    }

    assert {row.strip("`").partition("(")[0] for row in first_cells_of_table("action")} == there


def test_table_in_testing_docs_lists_every_condition() -> None:
    parameters = inspect.signature(Server.fault).parameters

    assert [row.strip("`") for row in first_cells_of_table("condition")] == [
        name for name in parameters if name not in ("self", "action", "strict")
    ]


def test_operations_in_docs_of_faults_exist() -> None:
    [row] = [line for line in FAULTS.read_text().splitlines() if line.startswith("| `op` |")]

    assert all(parse_op(name) for name in re.findall(r'`"(\w+)"`', row))


def test_calls_in_table_of_testing_docs_exist() -> None:
    names = re.findall(r"`(\w+)\(", " ".join(first_cells_of_table("other calls")))

    assert [name for name in names if not hasattr(Server, name)] == []


def test_lines_of_testing_docs_have_at_most_140_letters() -> None:
    assert [line for page in PAGES for line in page.read_text().splitlines() if len(line) > 140] == []


def test_every_how_to_of_testing_docs_has_an_example() -> None:
    for page in HOWTOS:
        shown = {block.heading for block in blocks(page)}
        missing = [heading for heading in re.findall(r"^## (.*)$", page.read_text(), re.M) if heading not in shown]
        assert missing == [one for one in missing if one == "tox, GitHub Actions, Docker"]


def test_option_table_lists_every_ini_option() -> None:
    source = inspect.getsource(fixtures)

    assert {row.strip("`") for row in first_cells_of_table("ini option")} == set(
        re.findall(r'addini\(\s*"(\w+)"', source)
    )


def test_names_of_operations_are_all_on_page() -> None:
    text = FAULTS.read_text().partition("`op` is one of these names")[2]

    assert {row.name for row in OPERATIONS.values() if parse_op(row.name)} <= set(re.findall(r"`(\w+)`", text))


def test_settings_of_build_servers_are_valid() -> None:
    text = (DOCS / "testing-howto.md").read_text()
    yaml = pytest.importorskip("yaml")
    [workflow] = re.findall(r"^```yaml\n(.*?)^```$", text, re.M | re.S)

    assert yaml.safe_load(workflow)["jobs"]["test"]["steps"]
    for settings in re.findall(r"^```ini\n(.*?)^```$", text, re.M | re.S):
        configparser.ConfigParser(interpolation=None).read_string(settings)
