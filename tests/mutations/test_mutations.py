"""The defects that `make mutations` plants, and its records of the lines that tests execute."""

from __future__ import annotations

import ast
from pathlib import Path

from mutations.mutants import find_mutants
from mutations.plugin import Trace, merge_traces

MODULE = """
LIMIT = 5

def is_small(number: int = 7) -> bool:
    if number < 1 and not log(number):
        return True
    for each in range(number):
        break
    return number + each
"""


def test_each_mutant_changes_code_differently(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(MODULE)

    found = find_mutants(tmp_path, file)

    assert sorted(mutant.what for mutant in found) == [
        "+ becomes -",
        "1 becomes 2",
        "< becomes <=",
        "None is returned",
        "None is returned",
        "True becomes False",
        "and becomes or",
        "break becomes continue",
        "not is left out",
    ]
    sources = {mutant.source(tmp_path) for mutant in found}
    assert len(sources - {ast.unparse(ast.parse(MODULE))}) == len(found)
    assert all(mutant.line in mutant.lines for mutant in found)


def test_traces_merge_and_drop_changed_files() -> None:
    one = Trace({"a.py::x": 1.0, "b.py::y": 2.0}, ["b.py::y"], {"m.py": {"3": [0, 1]}})
    two = Trace({"c.py::z": 3.0}, [], {"m.py": {"3": [0], "4": [0]}})

    both = merge_traces([one, two])

    assert both == Trace(
        {"a.py::x": 1.0, "b.py::y": 2.0, "c.py::z": 3.0}, ["b.py::y"], {"m.py": {"3": [0, 1, 2], "4": [2]}}
    )
    assert both.without({"b.py"}) == Trace({"a.py::x": 1.0, "c.py::z": 3.0}, [], {"m.py": {"3": [0, 1], "4": [1]}})
