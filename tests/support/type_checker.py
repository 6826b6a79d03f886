"""mypy and pyright for users' programs, with a cache that all such tests share."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from support.effort import FULL
from support.rooms import ROOT
from support.waiting import DEADLINE_S

CHECK_LIMIT_S: Final = 4 * DEADLINE_S
"""Limit for a run of a type checker, in seconds. The first run reads the whole package."""
MYPY: Final = (sys.executable, "-m", "mypy", "--strict", "--config-file=", "--explicit-package-bases")
CACHE_OPTIONS: Final = ("--cache-dir", str(ROOT / ".mypy_cache" / "users"), "--follow-imports=silent")
UNTYPED_OPTIONS: Final = ("--allow-untyped-defs", "--allow-incomplete-defs", "--allow-untyped-calls")
"""Options for programs whose own functions have no annotations."""


def check_program(folder: Path, program: str) -> list[str]:
    """Return the messages of ``mypy --strict`` about a program, each as ``LINE: MESSAGE``, and its last line.

    Args:
        folder: An empty folder for the program and a link to the package.
        program: The text of the program.
    """
    pytest.importorskip("mypy")
    (folder / "zoolet").symlink_to(ROOT)
    (folder / "program.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [*MYPY, *CACHE_OPTIONS, "program.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=CHECK_LIMIT_S,
        check=False,
    )
    return [re.sub(r"^program.py:", "", line) for line in done.stdout.splitlines()]


def revealed_types(messages: list[str]) -> list[str]:
    """Return the types in the messages of ``reveal_type``."""
    return re.findall(r'^\d+: note: Revealed type is "(.*)"$', "\n".join(messages), re.MULTILINE)


def error_codes(messages: list[str]) -> list[str]:
    """Return mypy's codes of the errors in messages."""
    return re.findall(r"^\d+: error: .*\[([a-z-]+)\]$", "\n".join(messages), re.MULTILINE)


def errors_of_both_checkers(folder: Path, programs: Mapping[str, str], *options: str) -> dict[str, dict[str, str]]:
    """Return the messages of ``mypy --strict`` and of pyright about programs, by ``FILE:LINE``.

    Args:
        folder: An empty folder for the programs and a link to the package.
        programs: The texts of the programs, by the names of their files.
        options: More options for mypy.
    """
    pytest.importorskip("mypy")
    if not (folder / "zoolet").exists():
        (folder / "zoolet").symlink_to(ROOT)
    for name, program in programs.items():
        (folder / name).write_text(program, encoding="utf-8")
    commands = {
        "mypy": [*MYPY, *CACHE_OPTIONS, *options, "--output=json", *programs],
        "pyright": [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", *programs],
    }
    output = {
        checker: subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=CHECK_LIMIT_S, check=False
        ).stdout
        for checker, command in commands.items()
    }
    if not output["pyright"] and not FULL:
        pytest.skip("pyright cannot run: it needs Node.js, or a network to download it")
    by_mypy = [json.loads(line) for line in output["mypy"].split("\n") if line]
    by_pyright = json.loads(output["pyright"])["generalDiagnostics"]
    return {
        "mypy": {f"{one['file']}:{one['line']}": one["message"] for one in by_mypy if one["severity"] == "error"},
        "pyright": {
            f"{Path(one['file']).name}:{one['range']['start']['line'] + 1}": one["message"]
            for one in by_pyright
            if one["severity"] == "error"
        },
    }
