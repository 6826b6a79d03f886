"""The package: complete, typed, importable under one name only, and the same however and wherever it is installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest
from support.effort import FULL

import zoolet
import zoolet.server.testing
import zoolet.testing

ROOT: Final = Path(__file__).parents[2]
PARTS: Final = ("protocol", "server", "client")
MODULES: Final = ("__init__.py", "__main__.py", "event_loop.py", "pem.py", "progress.py", "testing.py", "usage.py")
"""The modules of ``zoolet`` itself, which lie in the root."""
MADE: Final = (".*", "__pycache__", "build", "dist", "*.egg-info", "out", "zkload")
"""What is made in a clone, and hidden files: what a fresh clone does not have or a build does not need."""
PLACES: Final = ("root", "parent", "foreign")
LEFT_OUT: Final = ("PYTHONPATH", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "ARGS", "PORT", "WORKERS")
"""What would lead to this clone, or repeat what `make test` was called with."""
ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    """What pyproject.toml says."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def folders() -> set[Path]:
    """Find the folders that hold modules."""
    return {path.parent.relative_to(ROOT) for part in PARTS for path in (ROOT / part).rglob("*.py")}


def run(folder: Path, *command: str | Path) -> str:
    """Run a command in a folder; return what it prints."""
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- what is declared ---


def test_the_list_of_packages_is_complete(project: dict[str, Any]) -> None:
    listed = project["tool"]["setuptools"]["packages"]

    assert sorted(listed) == [
        "zoolet",
        *sorted(f"zoolet.{folder.as_posix().replace('/', '.')}" for folder in folders()),
    ]


def test_every_package_has_its_init() -> None:
    assert [folder for folder in folders() if not (ROOT / folder / "__init__.py").exists()] == []


def test_every_part_has_its_folder(project: dict[str, Any]) -> None:
    declared = project["tool"]["setuptools"]["package-dir"]

    assert declared == {"zoolet": ".", **{f"zoolet.{part}": part for part in PARTS}}


def test_the_root_is_the_package_and_no_folder_in_it() -> None:
    assert Path(zoolet.__file__).resolve().parent == ROOT
    assert not (ROOT / "zoolet").exists()


@pytest.mark.parametrize("part", ["", *PARTS])
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


def test_the_version_stands_in_one_place(project: dict[str, Any]) -> None:
    assert "version" not in project["project"]
    assert importlib.metadata.version("zoolet") == zoolet.__version__


def test_everything_that_is_imported_is_a_dependency(project: dict[str, Any]) -> None:
    needed = {line.split(">")[0].split("=")[0].strip() for line in project["project"]["dependencies"]}

    assert needed <= {"msgpack", "uvloop"}


# --- zoolet.testing ---


def test_zoolet_testing_has_the_public_names_of_the_server_s_testing() -> None:
    assert zoolet.testing.__all__ == zoolet.server.testing.__all__


@pytest.mark.parametrize("name", zoolet.server.testing.__all__)
def test_a_name_of_zoolet_testing_is_the_same_object(name: str) -> None:
    assert getattr(zoolet.testing, name) is getattr(zoolet.server.testing, name)


def test_zoolet_testing_refuses_other_names() -> None:
    with pytest.raises(AttributeError, match=r"module 'zoolet\.testing' has no attribute 'Sever'"):
        zoolet.testing.Sever  # noqa: B018


def test_a_module_of_the_server_s_testing_has_no_second_name() -> None:
    # it would be a second copy, with classes of its own
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("zoolet.testing.plugin")


def test_importing_zoolet_testing_imports_no_server() -> None:
    command = "import sys, zoolet.testing; print('asyncio' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


# --- what is built ---


def packaging_changed() -> bool:
    """Return whether what a build depends on differs from the last commit but one; also if that is not known."""
    compare = ["git", "-C", str(ROOT), "diff", "--name-only", "HEAD~1", "--"]
    asked = [[*compare, "pyproject.toml", "setup.py", "MANIFEST.in", "tests/architecture/test_packaging.py"]]
    asked.append([*compare[:-1], "--diff-filter=ADR", "--", "*.py", "*.pyi"])
    done = [subprocess.run(command, capture_output=True, text=True, check=False) for command in asked]
    return any(one.returncode or one.stdout for one in done)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone in a folder called ``zoolet``, in which earlier builds left a module that has been deleted since."""
    if not (FULL or packaging_changed()):
        pytest.skip("nothing that is packaged was added, deleted or declared otherwise (ZOOLET_FULL=1 builds)")
    clone = tmp_path_factory.mktemp("parent") / "zoolet"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(*MADE))
    for left in ("lib", f"bdist.{sysconfig.get_platform()}/wheel"):
        ghost = clone / "build" / left / "zoolet" / "server" / "ghost.py"
        ghost.parent.mkdir(parents=True)
        ghost.touch()
    return clone


@pytest.fixture(scope="module")
def wheel(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built in that clone."""
    folder = tmp_path_factory.mktemp("wheel")
    run(folder, *pip("wheel"), "--no-build-isolation", "--wheel-dir", folder, clone)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def sdist(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an sdist, built in that clone, holds."""
    folder = tmp_path_factory.mktemp("sdist")
    build(clone, "sdist", folder)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    return folder / f"zoolet-{zoolet.__version__}"


def build(source: Path, kind: str, folder: Path) -> None:
    """Build an sdist or a wheel with the setuptools that is there."""
    call = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    run(source, sys.executable, "-c", call, folder)


def pip(command: str, python: str | Path = sys.executable) -> list[str | Path]:
    """Begin a command line of pip that needs no network."""
    quiet = ["--quiet", "--disable-pip-version-check"]
    return [sys.executable, "-m", "pip", *quiet, "--python", python, command, "--no-index", "--no-deps"]


def files(folder: Path) -> set[str]:
    """List the files below a folder that a clone has too."""
    ignored = shutil.ignore_patterns(*MADE)
    return {
        (Path(path) / name).relative_to(folder).as_posix()
        for path, _, names in os.walk(folder)
        for name in set(names) - ignored(path, names)
        if not ignored(path, Path(path).relative_to(folder).parts)
    }


def packed(wheel: Path) -> set[str]:
    """List the files in a wheel, without its metadata."""
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if not name.startswith(f"zoolet-{zoolet.__version__}.dist-info/")}


@pytest.mark.slow
def test_a_wheel_holds_the_modules_and_nothing_else(wheel: Path) -> None:
    kept = (".py", ".pyi", "/py.typed")
    parts = {
        path for path in files(ROOT) if path.split("/")[0] in PARTS and (path.endswith(kept) or "/static/" in path)
    }

    pages = {name for name in packed(wheel) if "/data/share/man/man1/" in name}
    assert packed(wheel) - pages == {f"zoolet/{path}" for path in {*MODULES, "py.typed", *parts}}
    assert {Path(name).name for name in pages} == {file.name for file in (ROOT / "docs" / "man").iterdir()}


@pytest.mark.slow
def test_a_deleted_module_does_not_come_back_in_a_wheel(wheel: Path) -> None:
    assert [name for name in packed(wheel) if "ghost" in name] == []


@pytest.mark.slow
def test_an_sdist_holds_every_file(sdist: Path) -> None:
    assert files(ROOT) - files(sdist) == set()


@pytest.mark.slow
def test_a_wheel_from_an_sdist_is_the_same(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    build(sdist, "wheel", tmp_path)

    assert packed(next(tmp_path.glob("*.whl"))) == packed(wheel)


# --- what is installed ---

WHICH: Final = "import zoolet; print(zoolet.__version__, zoolet.__file__)"


@pytest.fixture(scope="module")
def places(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders from which zoolet is used; the foreign one holds an unrelated, empty folder called ``zoolet``."""
    foreign = tmp_path_factory.mktemp("foreign")
    (foreign / "zoolet").mkdir()
    return {"root": clone, "parent": clone.parent, "foreign": foreign}


@pytest.fixture(scope="module")
def from_wheel(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment in which the wheel is installed."""
    python = environment(tmp_path_factory.mktemp("wheel") / "venv")
    run(wheel.parent, *pip("install", python), "--no-compile", wheel)
    return python


@pytest.fixture(scope="module")
def editable(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment in which the clone is installed, editable."""
    python = environment(tmp_path_factory.mktemp("editable") / "venv")
    run(clone.parent, *pip("install", python), "--no-build-isolation", "--editable", clone)
    return python


def environment(folder: Path) -> Path:
    """Make an environment that sees the packages of this one, but none that is editable here; return its Python."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "outer.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


@pytest.fixture(params=["from_wheel", "editable"])
def installed(request: pytest.FixtureRequest) -> Path:
    """The Python of an environment in which zoolet is installed, one way or the other."""
    python: Path = request.getfixturevalue(request.param)
    return python


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_python_m_zoolet_is_the_command(installed: Path, places: dict[str, Path], place: str) -> None:
    assert run(places[place], installed, "-m", "zoolet", "--help").startswith("usage: zoolet ")


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_every_part_is_imported_from_everywhere(installed: Path, places: dict[str, Path], place: str) -> None:
    imports = "import zoolet.testing, zoolet.server, zoolet.client; print(zoolet.testing.Server.__module__)"

    assert run(places[place], installed, "-c", imports).startswith("zoolet.server.testing")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["root", "foreign"])
def test_nothing_shadows_a_wheel(from_wheel: Path, places: dict[str, Path], place: str) -> None:
    version, file = run(places[place], from_wheel, "-c", WHICH).split()

    assert version == zoolet.__version__
    assert Path(file).is_relative_to(from_wheel.parents[1])


@pytest.mark.slow
@pytest.mark.parametrize("place", ["root", "parent"])
def test_an_editable_install_is_the_clone(editable: Path, places: dict[str, Path], place: str) -> None:
    version, file = run(places[place], editable, "-c", WHICH).split()

    assert version == zoolet.__version__
    assert Path(file) == places["root"] / "__init__.py"


@pytest.mark.slow
def test_an_unrelated_folder_hides_no_more_than_the_version_of_an_editable_install(
    editable: Path, places: dict[str, Path]
) -> None:
    # Python looks for editable packages after sys.path, on which that folder is a namespace; the parts are found in it
    names = "import zoolet, zoolet.server; print(hasattr(zoolet, '__version__'), zoolet.server.__file__)"

    assert run(places["foreign"], editable, "-c", names) == f"False {places['root']}/server/__init__.py\n"


@pytest.mark.slow
def test_builds_and_installs_leave_one_folder_in_a_clone(clone: Path, sdist: Path, editable: Path, wheel: Path) -> None:
    assert {path.name for path in clone.iterdir()} - {path.name for path in ROOT.iterdir()} <= {"build", "__pycache__"}
    assert not list(clone.glob("*.egg-info"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["zoolet", "a-clone"])
def test_pytest_runs_in_a_root_that_is_a_package(clone: Path, editable: Path, tmp_path: Path, name: str) -> None:
    root = shutil.copytree(clone, tmp_path / name, ignore=shutil.ignore_patterns("test_*.py"))
    (root / "tests" / "server" / "net" / "test_small.py").write_text(
        "from support.peer import Peer\n\n\ndef test_small(zoolet):\n    assert zoolet.port and Peer\n"
    )

    output = run(root, editable, "-m", "pytest", "--verbose", "-p", "no:cacheprovider")

    assert "tests/server/net/test_small.py::test_small PASSED" in output


@pytest.mark.slow
def test_pytest_does_not_mind_that_zoolet_was_imported_before_it(from_wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "test_small.py").write_text("def test_small(zoolet):\n    assert zoolet.port\n")
    strict = "['-W', 'error::pytest.PytestAssertRewriteWarning', '-p', 'no:asyncio']"

    output = run(tmp_path, from_wheel, "-c", f"import zoolet.testing, pytest, sys; sys.exit(pytest.main({strict}))")

    assert "1 passed" in output


# --- make ---


PIP: Final = ".venv/bin/pip install --quiet --disable-pip-version-check --editable"
SERVE: Final = ".venv/bin/zoolet serve --port 2181"
PYTHON: Final = """#!/bin/sh
# A stand-in for Python: the programs of the environment that it makes write down how they are called.
test "$1 $2" = "-m venv" || exit 0
mkdir -p "$3/bin"
for name in pip zoolet; do
    printf '#!/bin/sh\\necho "$0 $*" >> called\\n' > "$3/bin/$name"
    chmod +x "$3/bin/$name"
done
printf '#!/bin/sh\n' > "$3/bin/python"
chmod +x "$3/bin/python"
"""


class Making:
    """A fresh clone, as far as make looks at it, with an environment that installs nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("Makefile", "pyproject.toml", "setup.py", "__init__.py"):
            shutil.copy2(ROOT / name, folder)
        (folder / "python").write_text(PYTHON)
        (folder / "python").chmod(0o755)

    def make(self, *words: str) -> list[str]:
        """Run make; return the commands of the environment that it called."""
        called = self.folder / "called"
        called.write_text("")
        run(self.folder, "make", "PYTHON=./python", *words)
        return [line.strip() for line in called.read_text().splitlines()]


@pytest.fixture
def making(tmp_path: Path) -> Making:
    """A fresh clone to run make in."""
    if not shutil.which("make"):
        pytest.skip("there is no make")
    return Making(tmp_path)


def test_make_run_installs_what_the_daemon_needs_once(making: Making) -> None:
    assert making.make("run") == [f"{PIP} .", SERVE]
    assert making.make("run") == [SERVE]


def test_make_setup_adds_the_test_tools_later(making: Making) -> None:
    making.make("run")

    assert making.make("setup") == [f"{PIP} .[dev]"]
    assert making.make("setup") == []


def test_make_setup_installs_what_the_daemon_needs_too(making: Making) -> None:
    assert making.make("setup") == [f"{PIP} .[dev]"]
    assert making.make("run") == [SERVE]


def test_the_tools_of_the_documentation_site_are_installed_apart_from_the_test_tools(making: Making) -> None:
    assert making.make(".venv/.docs") == [f"{PIP} .[docs]"]
    assert making.make(".venv/.docs") == []
    assert making.make("setup") == [f"{PIP} .[dev]"]


@pytest.mark.parametrize("name", ["pyproject.toml", "setup.py", "__init__.py"])
def test_make_installs_again_when_the_package_changes(making: Making, name: str) -> None:
    making.make("setup")
    stamp = (making.folder / ".venv" / ".daemon").stat().st_mtime
    os.utime(making.folder / name, (stamp + 1, stamp + 1))

    assert making.make("run") == [f"{PIP} .", SERVE]


def test_the_type_checkers_see_the_modules_of_the_root(making: Making) -> None:
    making.make("setup")

    assert {path.name for path in (making.folder / ".typing/zoolet").iterdir()} == {*MODULES, *PARTS, "py.typed"}


def test_pyright_gets_a_copy_of_all_that_mypy_sees(making: Making) -> None:
    (copy,) = (line for line in run(making.folder, "make", "--dry-run", "types").splitlines() if "cp -r" in line)

    assert {*MODULES, *PARTS, "py.typed"} <= set(copy.split())
