"""The Makefile installs what a command needs, once, and replaces an environment that cannot be used."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
from support.rooms import ROOMS, ROOT

PIP: Final = ".venv/bin/pip install --quiet --disable-pip-version-check --editable"
SERVE: Final = ".venv/bin/zoolet serve --port 2181"
RECREATED_MESSAGE: Final = ".venv is from a different Python or folder, so it is made again\n"
PYTHON: Final = """#!/bin/sh
# A stand-in for Python: the programs of the environment that it makes write down how they are called.
case "$1 $2" in
*platform*) echo "${RELEASE:-3.14.15}" ;;
"-c "*) echo "${RELEASE:-3.14.15} $PWD" ;;
"-m venv")
    for folder; do :; done
    mkdir -p "$folder/bin"
    for name in pip zoolet; do
        printf '#!/bin/sh\\necho "$0 $*" >> called\\necho "$PIP_USER" > user\\n' > "$folder/bin/$name"
    done
    printf '#!/bin/sh\\n' > "$folder/bin/python"
    chmod +x "$folder"/bin/* ;;
esac
"""
REMOVED_VARIABLES: Final = (
    "MAKEFLAGS",
    "MFLAGS",
    "MAKELEVEL",
    "MAKEOVERRIDES",
    "ARGS",
    "PORT",
    "WORKERS",
    "PYTHON",
    "PIP_USER",
)
"""Variables to remove, because they contain the options of `make test`."""


class MakeRun:
    """The parts of a fresh clone that make uses, with an environment that installs nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.errors = ""
        folder.mkdir()
        for name in ("Makefile", "pyproject.toml", "setup.py", "__init__.py"):
            shutil.copy2(ROOT / name, folder)
        (folder / "python3").write_text(PYTHON)
        (folder / "python3").chmod(0o755)

    def make(self, *words: str, exit_code: int = 0, **variables: str) -> list[str]:
        """Run make. Return the calls of the environment's commands, except Python."""
        called = self.folder / "called"
        called.write_text("")
        environ = {name: value for name, value in os.environ.items() if name not in REMOVED_VARIABLES}
        environ |= {"PATH": f"{self.folder}:{os.environ['PATH']}", **variables}
        done = subprocess.run(
            ["make", *words], cwd=self.folder, env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == exit_code, done.stderr
        self.errors = done.stderr
        return [line.strip() for line in called.read_text().splitlines()]


@pytest.fixture
def making(tmp_path: Path) -> MakeRun:
    """A fresh clone to run make in, with a space in its path."""
    if not shutil.which("make"):
        pytest.skip("there is no make")
    return MakeRun(tmp_path / "a clone")


def test_make_run_installs_daemon_once(making: MakeRun) -> None:
    assert making.make("run") == [f"{PIP} .", SERVE]
    assert making.make("run") == [SERVE]
    assert making.errors == ""


def test_make_setup_adds_test_tools_later(making: MakeRun) -> None:
    making.make("run")

    assert making.make("setup") == [f"{PIP} .[dev]"]
    assert making.make("setup") == []


def test_make_setup_installs_daemon(making: MakeRun) -> None:
    assert making.make("setup") == [f"{PIP} .[dev]"]
    assert making.make("run") == [SERVE]


@pytest.mark.parametrize("extra", ["docs", "jks"])
def test_make_installs_extra_tools_in_separate_steps(making: MakeRun, extra: str) -> None:
    assert making.make(f".venv/.{extra}") == [f"{PIP} .[{extra}]"]
    assert making.make(f".venv/.{extra}") == []
    assert making.make("setup") == [f"{PIP} .[dev]"]


def test_named_python_gets_its_own_environment(making: MakeRun) -> None:
    making.make("setup")

    assert making.make("setup", "PYTHON=python3") == [f"{PIP} .[dev]".replace(".venv", ".venv-3.14.15")]
    assert making.make("setup", "PYTHON=python3") == []
    assert making.make("setup") == []


def test_environment_of_different_python_is_recreated(making: MakeRun) -> None:
    making.make("setup")

    assert making.make("setup", RELEASE="3.14.16") == [f"{PIP} .[dev]"]
    assert making.errors == RECREATED_MESSAGE
    assert making.make("setup", RELEASE="3.14.16") == []


def test_environment_of_moved_clone_is_recreated(making: MakeRun) -> None:
    making.make("run")
    making.folder = making.folder.rename(making.folder.with_name("moved"))

    assert making.make("run") == [f"{PIP} .", SERVE]
    assert making.errors == RECREATED_MESSAGE
    assert making.make("run") == [SERVE]


def test_environment_of_copied_clone_is_recreated(making: MakeRun) -> None:
    making.make("run")
    original = making.folder
    making.folder = shutil.copytree(original, original.with_name("copy"))

    assert making.make("run") == [f"{PIP} .", SERVE]
    making.folder = original
    assert making.make("run") == [SERVE]


@pytest.mark.parametrize("link", [False, True])
def test_environment_that_make_did_not_create_is_kept(making: MakeRun, link: bool) -> None:
    own = making.folder / ("own" if link else ".venv")
    own.mkdir()
    (own / "precious").touch()
    if link:
        (making.folder / ".venv").symlink_to("own")

    making.make("setup", exit_code=2)

    assert ".venv was not created by make: move it to another place" in making.errors
    assert (own / "precious").exists()


def test_interrupted_environment_is_recreated(making: MakeRun) -> None:
    (making.folder / ".venv").mkdir()
    (making.folder / ".venv" / ".origin").touch()

    assert making.make("setup") == [f"{PIP} .[dev]"]


def test_pip_ignores_user_option_of_its_configuration(making: MakeRun) -> None:
    making.make("setup", PIP_USER="1")

    assert (making.folder / "user").read_text() == "0\n"


def test_make_runs_one_target_at_a_time(making: MakeRun) -> None:
    assert making.make("-j4", "run", "setup") == [f"{PIP} .", SERVE, f"{PIP} .[dev]"]


def test_commands_quote_folder_of_clone() -> None:
    recipes = re.findall(r"^\t.*", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert [line for line in recipes if re.search(r'(?<![",])\$\((CURDIR|SOURCES|or \$\(FOLDER)', line)] == []


def test_make_clean_removes_every_environment(making: MakeRun) -> None:
    making.make("setup")
    making.make("setup", "PYTHON=python3")

    making.make("clean")

    assert list(making.folder.glob(".venv*")) == []


@pytest.mark.parametrize("name", ["pyproject.toml", "setup.py", "__init__.py"])
def test_make_reinstalls_after_change_of_package(making: MakeRun, name: str) -> None:
    making.make("setup")
    stamp = (making.folder / ".venv" / ".daemon").stat().st_mtime
    os.utime(making.folder / name, (stamp + 1, stamp + 1))

    assert making.make("run") == [f"{PIP} .", SERVE]


def test_folder_for_mypy_has_one_link_to_root(making: MakeRun) -> None:
    making.make("build/typing/zoolet")

    assert [path.resolve() for path in (making.folder / "build/typing").iterdir()] == [making.folder]


def test_make_compiles_every_room() -> None:
    (compiled,) = re.findall(r"compileall -q (.*)", (ROOT / "Makefile").read_text())

    assert compiled.split() == ["__init__.py", "__main__.py", *ROOMS]
