"""The package is complete, typed and importable under one name only, and it is the same for every kind of install."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from support.effort import FULL
from support.rooms import ROOMS, ROOT

import zoolet
import zoolet.testing

IGNORED_FILES: Final = (".*", "__pycache__", "build", "dist", "*.egg-info", "out", "zkload")
"""Generated and hidden files, which a fresh clone does not contain or a build does not need."""
FOLDER_NAMES: Final = ("root", "parent", "foreign")
ENVIRONMENT: Final = {
    **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")},
    "SOURCE_DATE_EPOCH": "1800000000",
}
"""The environment of commands: without the path of this clone, and with bytecode, which some tests need."""


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    """The content of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def module_folders() -> set[Path]:
    """Find the folders that hold modules."""
    return {path.parent.relative_to(ROOT) for part in ROOMS for path in (ROOT / part).rglob("*.py")}


def run_command(folder: Path, *command: str | Path, umask: int = -1) -> str:
    """Run a command in a folder, and return its output."""
    done = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, umask=umask, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- metadata ---


def test_list_of_packages_in_setup_is_complete(project: dict[str, Any]) -> None:
    listed = project["tool"]["setuptools"]["packages"]

    assert sorted(listed) == [
        "zoolet",
        *sorted(f"zoolet.{folder.as_posix().replace('/', '.')}" for folder in module_folders()),
    ]


def test_every_package_has_its_init() -> None:
    assert [folder for folder in module_folders() if not (ROOT / folder / "__init__.py").exists()] == []


def test_setuptools_finds_every_room_below_root(project: dict[str, Any]) -> None:
    declared = project["tool"]["setuptools"]["package-dir"]

    assert declared == {"zoolet": "."}


def test_root_is_package_without_package_folder() -> None:
    if "site-packages" in zoolet.__file__:
        pytest.skip("zoolet is installed, so these tests do not use the root")
    assert Path(zoolet.__file__).resolve().parent == ROOT
    assert not (ROOT / "zoolet").exists()


def test_package_is_typed() -> None:
    assert (ROOT / "py.typed").exists()


def test_py_typed_is_package_data(project: dict[str, Any]) -> None:
    assert "py.typed" in project["tool"]["setuptools"]["package-data"]["*"]


@pytest.mark.parametrize("part", ROOMS)
def test_room_refuses_import_by_second_name(part: str) -> None:
    spec = importlib.util.spec_from_file_location(part, ROOT / part / "__init__.py")
    assert spec is not None
    assert spec.loader is not None

    with pytest.raises(ImportError, match=f"import zoolet.{part}, not {part}"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_module_of_room_cannot_be_imported_from_root() -> None:
    command = "import server.core.engine"

    done = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.endswith("ImportError: import zoolet.server, not server\n")


@pytest.mark.parametrize("part", ROOMS)
def test_room_is_importable_by_name(part: str) -> None:
    module = importlib.import_module(f"zoolet.{part}")

    assert module.__file__ is not None
    assert Path(module.__file__).parent == Path(zoolet.__file__).parent / part


def test_command_is_installed() -> None:
    (command,) = (one for one in importlib.metadata.entry_points(group="console_scripts") if one.name == "zoolet")

    assert callable(command.load())


def test_pyinstaller_finds_hook() -> None:
    (point,) = (
        one for one in importlib.metadata.entry_points(group="pyinstaller40") if one.value.startswith("zoolet.")
    )
    (folder,) = point.load()()

    assert Path(folder, "hook-zoolet.py").is_file()


def test_version_has_one_source(project: dict[str, Any]) -> None:
    assert "version" not in project["project"]
    assert importlib.metadata.version("zoolet") == zoolet.__version__


def test_dependencies_are_msgpack_and_uvloop(project: dict[str, Any]) -> None:
    needed = {line.split(">")[0].split("=")[0].strip() for line in project["project"]["dependencies"]}

    assert needed <= {"msgpack", "uvloop"}


def test_uv_rebuilds_after_change_of_any_module(project: dict[str, Any]) -> None:
    files = [key["file"] for key in project["tool"]["uv"]["cache-keys"]]
    (rooms,) = (re.findall(r"\w+", name.partition("/")[0]) for name in files if name.startswith("{"))

    assert rooms == list(ROOMS)
    assert {"pyproject.toml", "setup.py", "*.py", "console/static/**"} < set(files)


# --- zoolet.testing ---


@pytest.mark.parametrize("name", zoolet.testing.__all__)
def test_every_public_name_of_testing_is_importable(name: str) -> None:
    assert getattr(zoolet.testing, name) is not None


def test_zoolet_testing_refuses_unknown_names() -> None:
    with pytest.raises(AttributeError, match=r"module 'zoolet\.testing' has no attribute 'Sever'"):
        zoolet.testing.Sever  # noqa: B018


def test_importing_zoolet_testing_imports_no_server() -> None:
    command = "import sys, zoolet.testing; print('asyncio' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


# --- builds ---


def packaging_changed() -> bool:
    """Return whether the inputs of a build differ from the commit before the last one, or cannot be compared."""
    compare = ["git", "-C", str(ROOT), "diff", "--name-only", "HEAD~1", "--"]
    asked = [[*compare, "pyproject.toml", "setup.py", "MANIFEST.in", "tests/architecture/test_packaging.py"]]
    asked.append([*compare[:-1], "--diff-filter=ADR", "--", "*.py", "*.pyi"])
    done = [subprocess.run(command, capture_output=True, text=True, check=False) for command in asked]
    return any(one.returncode or one.stdout for one in done)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone in a folder called ``zoolet``; builds of earlier versions left a module that has been deleted since."""
    if not (FULL or packaging_changed()):
        pytest.skip("nothing that is packaged was added, deleted or declared otherwise (ZOOLET_FULL=1 builds)")
    clone = tmp_path_factory.mktemp("parent") / "zoolet"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(*IGNORED_FILES))
    for left in ("lib", f"bdist.{sysconfig.get_platform()}/wheel"):
        ghost = clone / "build" / left / "zoolet" / "server" / "ghost.py"
        ghost.parent.mkdir(parents=True)
        ghost.touch()
    return clone


@pytest.fixture(scope="module")
def wheel(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built in the clone."""
    folder = tmp_path_factory.mktemp("wheel")
    run_command(folder, *pip_command("wheel"), "--no-build-isolation", "--wheel-dir", folder, clone)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def sdist(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The extracted content of an sdist built in the clone."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build(clone, "sdist", folder)) as archive:
        archive.extraction_filter = lambda member, path: member  # Python 3.11.2 has no argument for the filter
        archive.extractall(folder)
    return folder / f"zoolet-{zoolet.__version__}"


def build(source: Path, kind: str, folder: Path, umask: int = -1) -> Path:
    """Build an sdist or a wheel with the installed setuptools, and return the file."""
    call = f"import sys; from setuptools import build_meta; print(build_meta.build_{kind}(sys.argv[1]))"
    return folder / run_command(source, sys.executable, "-c", call, folder, umask=umask).splitlines()[-1]


def pip_command(command: str, python: str | Path = sys.executable) -> list[str | Path]:
    """Return the start of a pip command line that needs no network."""
    quiet = ["--quiet", "--disable-pip-version-check"]
    return [sys.executable, "-m", "pip", *quiet, "--python", python, command, "--no-index", "--no-deps"]


def source_files(folder: Path) -> set[str]:
    """List the files below a folder that a clone also contains."""
    ignored = shutil.ignore_patterns(*IGNORED_FILES)
    found = set()
    for path, folders, names in os.walk(folder):
        folders[:] = set(folders) - ignored(path, folders)
        found |= {(Path(path) / name).relative_to(folder).as_posix() for name in set(names) - ignored(path, names)}
    return found


def packed_files(wheel: Path) -> set[str]:
    """List the files in a wheel, without its metadata."""
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if not name.startswith(f"zoolet-{zoolet.__version__}.dist-info/")}


@pytest.mark.slow
def test_wheel_contains_only_modules(wheel: Path) -> None:
    kept = (".py", ".pyi", "/py.typed")
    parts = {
        path
        for path in source_files(ROOT)
        if path.split("/")[0] in ROOMS and (path.endswith(kept) or "/static/" in path)
    }

    pages = {name for name in packed_files(wheel) if "/data/share/man/man1/" in name}
    assert packed_files(wheel) - pages == {
        f"zoolet/{path}" for path in {"__init__.py", "__main__.py", "py.typed", *parts}
    }
    assert {Path(name).name for name in pages} == {file.name for file in (ROOT / "docs" / "man").iterdir()}


@pytest.mark.slow
def test_description_has_no_relative_links(wheel: Path) -> None:
    metadata = zipfile.ZipFile(wheel).read(f"zoolet-{zoolet.__version__}.dist-info/METADATA").decode()

    assert "You want to" in metadata
    assert re.findall(r"\]\((?!https?:)", metadata) == []


@pytest.mark.slow
def test_deleted_module_is_not_in_wheel(wheel: Path) -> None:
    assert [name for name in packed_files(wheel) if "ghost" in name] == []


@pytest.mark.slow
def test_sdist_contains_every_file(sdist: Path) -> None:
    assert source_files(ROOT) - source_files(sdist) == set()


@pytest.mark.slow
def test_sdist_has_no_build_folder(sdist: Path) -> None:
    assert (sdist / "PKG-INFO").exists()
    assert not (sdist / "build").exists()


@pytest.mark.slow
def test_wheel_from_sdist_is_equal(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    built = build(sdist, "wheel", tmp_path)

    assert packed_files(built) == packed_files(wheel)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sdist", "wheel"])
def test_build_leaves_clone_as_it_was(clone: Path, tmp_path: Path, kind: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in (clone, *clone.rglob("*"))}

    build(clone, kind, tmp_path)

    assert {path: path.stat().st_mtime_ns for path in (clone, *clone.rglob("*"))} == before


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sdist", "wheel"])
def test_builds_at_same_time_are_whole_and_equal(clone: Path, tmp_path: Path, kind: str) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    with ThreadPoolExecutor() as threads:
        for folder in folders:
            folder.mkdir()
        built = list(threads.map(partial(build, clone, kind), folders))

    assert built[0].read_bytes() == built[1].read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sdist", "wheel"])
def test_umask_does_not_change_bytes_of_build(clone: Path, tmp_path: Path, kind: str) -> None:
    strict = shutil.copytree(clone, tmp_path / "zoolet")
    run_command(strict, "chmod", "-R", "go-rwx", ".")
    outputs = [tmp_path / name for name in ("strict", "usual")]
    for folder in outputs:
        folder.mkdir()

    built = [build(strict, kind, outputs[0], umask=0o077), build(clone, kind, outputs[1], umask=0o022)]

    assert built[0].read_bytes() == built[1].read_bytes()


@pytest.mark.slow
def test_wheel_build_prints_no_setuptools_warning(clone: Path, tmp_path: Path) -> None:
    call = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"

    done = subprocess.run(
        [sys.executable, "-c", call, tmp_path], cwd=clone, env=ENVIRONMENT, capture_output=True, text=True, check=True
    )

    assert "is absent from the `packages` configuration" not in done.stderr


@pytest.mark.slow
def test_metadata_lists_licences_of_bundled_files(wheel: Path) -> None:
    names = {name.partition("/licenses/")[2] for name in zipfile.ZipFile(wheel).namelist()} - {""}
    metadata = zipfile.ZipFile(wheel).read(f"zoolet-{zoolet.__version__}.dist-info/METADATA").decode()

    assert names == {"LICENSE", "console/static/vendor/LICENSES"}
    assert "\nLicense-Expression: Apache-2.0 AND MIT\n" in metadata


# --- installs ---

PRINT_LOCATION: Final = "import zoolet; print(zoolet.__version__); print(zoolet.__file__)"


@pytest.fixture(scope="module")
def places(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The working folders of the tests; ``foreign`` contains an unrelated, empty folder called ``zoolet``."""
    foreign = tmp_path_factory.mktemp("foreign")
    (foreign / "zoolet").mkdir()
    return {"root": clone, "parent": clone.parent, "foreign": foreign}


@pytest.fixture(scope="module")
def from_wheel(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the installed wheel."""
    python = create_environment(tmp_path_factory.mktemp("wheel") / "venv")
    run_command(wheel.parent, *pip_command("install", python), "--no-compile", wheel)
    return python


@pytest.fixture(scope="module")
def editable(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with an editable install of the clone."""
    python = create_environment(tmp_path_factory.mktemp("editable") / "venv")
    run_command(clone.parent, *pip_command("install", python), "--no-build-isolation", "--editable", clone)
    return python


def create_environment(folder: Path) -> Path:
    """Create an environment that sees this environment's packages except editable installs. Return its Python."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "outer.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


@pytest.fixture(params=["from_wheel", "editable"])
def installed(request: pytest.FixtureRequest) -> Path:
    """The Python of an environment with zoolet, from the wheel or editable."""
    python: Path = request.getfixturevalue(request.param)
    return python


@pytest.mark.slow
@pytest.mark.parametrize("place", FOLDER_NAMES)
def test_python_m_zoolet_runs_command(installed: Path, places: dict[str, Path], place: str) -> None:
    assert run_command(places[place], installed, "-m", "zoolet", "--help").startswith("usage: zoolet ")


@pytest.mark.slow
@pytest.mark.parametrize("place", FOLDER_NAMES)
def test_package_is_importable_from_any_folder(installed: Path, places: dict[str, Path], place: str) -> None:
    imports = "import zoolet.testing, zoolet.server, zoolet.client; print(zoolet.testing.Server.__module__)"

    assert run_command(places[place], installed, "-c", imports).startswith("zoolet.testing")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["root", "foreign"])
def test_wheel_is_not_shadowed(from_wheel: Path, places: dict[str, Path], place: str) -> None:
    version, file = run_command(places[place], from_wheel, "-c", PRINT_LOCATION).splitlines()

    assert version == zoolet.__version__
    assert Path(file).is_relative_to(from_wheel.parents[1])


@pytest.mark.slow
@pytest.mark.parametrize("place", ["root", "parent"])
def test_editable_install_is_clone(editable: Path, places: dict[str, Path], place: str) -> None:
    version, file = run_command(places[place], editable, "-c", PRINT_LOCATION).splitlines()

    assert version == zoolet.__version__
    assert Path(file) == places["root"] / "__init__.py"


@pytest.mark.slow
def test_foreign_folder_does_not_hide_editable_install(editable: Path, places: dict[str, Path]) -> None:
    version, file = run_command(places["foreign"], editable, "-c", PRINT_LOCATION).splitlines()

    assert (version, Path(file)) == (zoolet.__version__, places["root"] / "__init__.py")


@pytest.mark.slow
def test_pythonpath_precedes_editable_install(editable: Path, tmp_path: Path) -> None:
    (tmp_path / "zoolet").mkdir()
    (tmp_path / "zoolet" / "__init__.py").write_text('__version__ = "other"\n')

    assert run_command(tmp_path, "env", f"PYTHONPATH={tmp_path}", editable, "-c", PRINT_LOCATION).startswith("other\n")


@pytest.mark.slow
def test_old_bytecode_does_not_hide_editable_install(
    clone: Path, wheel: Path, tmp_path: Path, places: dict[str, Path]
) -> None:
    python = create_environment(tmp_path / "venv")
    run_command(tmp_path, *pip_command("install", python), "--no-compile", wheel)
    (tmp_path / "test_small.py").write_text("def test_small(zoolet):\n    assert zoolet.port\n")
    run_command(tmp_path, python, "-m", "pytest")
    run_command(tmp_path, *pip_command("uninstall", python)[:-2], "--yes", "zoolet")
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    assert list(packages.glob("zoolet/__pycache__/*-pytest-*"))

    run_command(tmp_path, *pip_command("install", python), "--no-build-isolation", "--editable", clone)

    assert run_command(tmp_path, python, "-c", PRINT_LOCATION).splitlines() == [
        zoolet.__version__,
        str(clone / "__init__.py"),
    ]


@pytest.mark.slow
def test_builds_leave_no_metadata_in_clone(clone: Path, sdist: Path, editable: Path, wheel: Path) -> None:
    assert {path.name for path in clone.iterdir()} - {path.name for path in ROOT.iterdir()} <= {"build", "__pycache__"}
    assert [*clone.glob("**/*.egg-info"), *clone.glob("**/*.dist-info")] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["zoolet", "a-clone"])
def test_pytest_runs_in_root_that_is_package(clone: Path, editable: Path, tmp_path: Path, name: str) -> None:
    root = shutil.copytree(clone, tmp_path / name, ignore=shutil.ignore_patterns("test_*.py"))
    (root / "tests" / "server" / "net" / "test_small.py").write_text(
        "from support.peer import Peer\n\n\ndef test_small(zoolet):\n    assert zoolet.port and Peer\n"
    )

    output = run_command(root, editable, "-m", "pytest", "--verbose", "-p", "no:cacheprovider")

    assert "tests/server/net/test_small.py::test_small PASSED" in output


@pytest.mark.slow
def test_pytest_accepts_earlier_import_of_zoolet(from_wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "test_small.py").write_text("def test_small(zoolet):\n    assert zoolet.port\n")
    strict = "['-W', 'error::pytest.PytestAssertRewriteWarning', '-p', 'no:asyncio']"

    output = run_command(
        tmp_path, from_wheel, "-c", f"import zoolet.testing, pytest, sys; sys.exit(pytest.main({strict}))"
    )

    assert "1 passed" in output


# --- versions of Python ---


def test_declared_python_versions_match_workflow(project: dict[str, Any]) -> None:
    if not (ROOT / ".github").exists():
        pytest.skip("an sdist has no workflow")
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    matrix = re.findall(r'"([\d.]+)"', re.findall(r"matrix: {python: \[(.*)\]}", workflow)[0])
    classifiers = re.findall(r"Python :: (3\.\d+)", "\n".join(project["project"]["classifiers"]))

    assert classifiers == matrix
    assert project["project"]["requires-python"] == f">={matrix[0]}"


def test_mypy_and_pyright_read_every_room(project: dict[str, Any]) -> None:
    assert project["tool"]["mypy"]["packages"] == [f"zoolet.{room}" for room in ROOMS]
    assert project["tool"]["pyright"]["include"] == ["*.py", *ROOMS]
