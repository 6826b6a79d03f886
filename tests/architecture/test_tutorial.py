"""docs/tutorial.md: its programs run unchanged, except for the address of the server, and print the output it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from support.waiting import DEADLINE_S

from zoolet.testing import Server

PAGE: Final = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
ADDRESS: Final = "127.0.0.1:2181"
CODE_BLOCK: Final = re.compile(r'^```(python title="(?P<file>\w+\.py)"|console)\n(?P<text>.*?)^```$', re.M | re.DOTALL)
COMMANDS_TO_RUN: Final = {
    "python": [sys.executable],
    "pytest": [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
}
"""The commands to run; earlier ones start the server, which the test does itself."""


class TutorialReader:
    """A simulated reader of the page: writes its files and types its commands, block by block."""

    def __init__(self, folder: Path, hosts: str) -> None:
        self.folder = folder
        self.hosts = hosts
        self.missing: list[str] = []
        self.commands: list[str] = []

    def read(self, page: str) -> None:
        """Follow the page. Collect the commands, and the shown lines that they do not print."""
        for block in CODE_BLOCK.finditer(page):
            if block["file"]:
                (self.folder / block["file"]).write_text(block["text"].replace(ADDRESS, self.hosts))
            else:
                self._type(*block["text"].removeprefix("$ ").splitlines())

    def _type(self, command: str, *shown: str) -> None:
        program, *arguments = shlex.split(command)
        if program in COMMANDS_TO_RUN:
            output = self._run([*COMMANDS_TO_RUN[program], *arguments])
            self.commands.append(command)
            self.missing += [f"{command}: {line}" for line in shown if not is_printed(line, output)]

    def _run(self, command: list[str]) -> str:
        """Return the output of a command, run without the settings of the pytest process around this test."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment["PYTHONDONTWRITEBYTECODE"] = "1"  # orders.py is written twice within a second
        result = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
        return result.stdout + result.stderr


def is_printed(line: str, output: str) -> bool:
    """Return whether a line is in the output, where ``...`` stands for any text."""
    return re.search(f"^{re.escape(line).replace(re.escape('...'), '.*')}$", output, re.MULTILINE) is not None


@pytest.mark.slow
def test_tutorial_commands_print_shown_output(tmp_path: Path) -> None:
    with Server() as server:
        reader = TutorialReader(tmp_path, server.hosts)

        reader.read(PAGE)

    assert reader.missing == []
    assert reader.commands == [
        "python store.py",
        "python store.py",
        "python lock.py",
        "pytest test_orders.py",
        "pytest test_orders.py",
    ]


def test_missing_output_line_of_tutorial_is_found(tmp_path: Path) -> None:
    reader = TutorialReader(tmp_path, ADDRESS)

    reader.read('```python title="one.py"\nprint(1, 1)\n```\n\n```console\n$ python one.py\n1 ...\n...\n2\n```\n')

    assert reader.missing == ["python one.py: 2"]
