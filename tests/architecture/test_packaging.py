"""The package: complete, typed, and importable under one name only."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PARTS: Final = ("protocol", "server", "client")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    """What pyproject.toml says."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def folders() -> set[Path]:
    """Find the folders that hold modules."""
    return {path.parent.relative_to(ROOT) for part in PARTS for path in (ROOT / part).rglob("*.py")}


def test_the_list_of_packages_is_complete(project: dict[str, Any]) -> None:
    listed = project["tool"]["setuptools"]["packages"]

    assert sorted(listed) == sorted(f"zoolet.{folder.as_posix().replace('/', '.')}" for folder in folders())


def test_every_package_has_its_init() -> None:
    assert [folder for folder in folders() if not (ROOT / folder / "__init__.py").exists()] == []


def test_every_part_has_its_folder(project: dict[str, Any]) -> None:
    assert project["tool"]["setuptools"]["package-dir"] == {f"zoolet.{part}": part for part in PARTS}


def test_zoolet_itself_has_no_file() -> None:
    # a namespace: its parts are folders of the root
    assert not (ROOT / "zoolet").exists()
    assert not (ROOT / "__init__.py").exists()


@pytest.mark.parametrize("part", PARTS)
def test_every_part_is_typed(part: str) -> None:
    assert (ROOT / part / "py.typed").exists()


def test_the_mark_of_typed_packages_is_packed(project: dict[str, Any]) -> None:
    assert "py.typed" in project["tool"]["setuptools"]["package-data"]["*"]


@pytest.mark.parametrize("part", PARTS)
def test_a_part_refuses_any_other_name(part: str) -> None:
    spec = importlib.util.spec_from_file_location(part, ROOT / part / "__init__.py")
    assert spec is not None
    assert spec.loader is not None

    with pytest.raises(ImportError, match=f"import zoolet.{part}, not {part}"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_a_module_of_a_part_is_refused_in_the_root_of_the_repository() -> None:
    command = "import server.core.engine"

    done = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.endswith("ImportError: import zoolet.server, not server\n")


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_importable_by_its_name(part: str) -> None:
    module = importlib.import_module(f"zoolet.{part}")

    assert module.__file__ is not None
    assert Path(module.__file__).resolve().parent == ROOT / part


def test_the_command_is_installed() -> None:
    (command,) = (one for one in importlib.metadata.entry_points(group="console_scripts") if one.name == "zoolet")

    assert callable(command.load())


def test_the_version_is_that_of_the_project(project: dict[str, Any]) -> None:
    assert importlib.metadata.version("zoolet") == project["project"]["version"]


def test_everything_that_is_imported_is_a_dependency(project: dict[str, Any]) -> None:
    needed = {line.split(">")[0].split("=")[0].strip() for line in project["project"]["dependencies"]}

    assert needed <= {"msgpack", "uvloop"}
