#!/usr/bin/env python3
"""Installations of the committed code in every way, on every supported Python of this machine:

    make installs        make installs ARGS="--only 3.13 --ways wheel,uv"

In each installation, it runs the command and opens the console. If the installation has a Python, it also imports every
module and runs a user's test. Before that, it looks for a wheel of every dependency, and builds two wheels at the same
time, 20 times. The path of the clone contains a space. uv, pipx and PyInstaller are downloaded. The result is a table.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).parent))
from pythons import ROOT, find_interpreters, supported

BUILD_ROUNDS: Final = 20
EXTRAS: Final = "[admin,shell,tls]"
TEST_PACKAGES: Final = ("pytest", "pytest-asyncio", "kazoo")
USER_TEST: Final = """
def test_kazoo(zoolet, zoolet_kazoo):
    zoolet_kazoo.create("/a")
    assert "/a" in zoolet.tree()
"""
FROZEN_PROGRAM: Final = """
import runpy, sys
from zoolet.__main__ import main
sys.exit(main())
"""
UV_PROJECT: Final = """
[project]
name = "user"
version = "1"
requires-python = ">=3.11"
dependencies = ["zoolet[admin,shell,tls]", "pytest", "pytest-asyncio", "kazoo"]
[tool.uv.sources]
zoolet = {{ path = "{}" }}
"""
PAGE_CHECK: Final = (
    "import os, urllib.request as u; assert b'<script' in u.urlopen(os.environ['ZOOLET_ADMIN'] + '/').read()"
)
STATUS_SCRIPT: Final = f'''
set -e
"$@" status "$ZOOLET_HOSTS"
"$@" shell -server "$ZOOLET_HOSTS" ls /
{shlex.quote(sys.executable)} -c "{PAGE_CHECK}"
'''
Command = Sequence[str | Path]


class InstallTarget(NamedTuple):
    """The sources, the interpreter and the folder of an installation.

    Args:
        clone: The clone of the committed code.
        folder: An empty folder.
        python: The interpreter.
        tools: The folder with the programs uv and pipx, and a Python with setuptools.
    """

    clone: Path
    folder: Path
    python: Path
    tools: Path


class Installation(NamedTuple):
    """An installed zoolet, and how to run it.

    Args:
        zoolet: The command.
        python: A Python that imports zoolet and pytest, with its options; None if only the command is installed.
        path: The value of PYTHONPATH.
    """

    zoolet: Command
    python: Path | None
    path: str = ""


def run(*command: str | Path, cwd: Path, **variables: str) -> None:
    """Run a command, with *variables* added to the environment.

    Raises:
        RuntimeError: The command failed. The message contains the end of its output.
    """
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    done = subprocess.run(command, cwd=cwd, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        words = " ".join(map(str, command))[:200]
        raise RuntimeError(f"exit code {done.returncode} of {words}\n{done.stdout[-3000:].decode(errors='replace')}")


def environment(place: InstallTarget, *packages: str | Path, tests: Sequence[str] = TEST_PACKAGES) -> Installation:
    """Create a virtual environment with packages that pip installs only from wheels."""
    run(place.python, "-m", "venv", place.folder / "venv", cwd=place.folder)
    bin = place.folder / "venv" / "bin"
    run(bin / "pip", "install", "-q", "--only-binary", ":all:", *packages, *tests, cwd=place.folder)
    return Installation([bin / "zoolet"], bin / "python")


def build(place: InstallTarget, kind: str) -> Path:
    """Build an sdist or a wheel, and return the file."""
    run(place.tools / "pyproject-build", f"--{kind}", "--outdir", place.folder / "dist", place.clone, cwd=place.folder)
    return next((place.folder / "dist").iterdir())


def install_sdist(place: InstallTarget) -> Installation:
    """Install the sdist."""
    return environment(place, f"{build(place, 'sdist')}{EXTRAS}")


def install_wheel(place: InstallTarget) -> Installation:
    """Install the wheel."""
    return environment(place, f"{build(place, 'wheel')}{EXTRAS}")


def install_with_uv(place: InstallTarget) -> Installation:
    """Create a uv project that depends on the clone by path, and install it."""
    (place.folder / "pyproject.toml").write_text(UV_PROJECT.format(place.clone))
    run(place.tools / "uv", "sync", "-q", "--python", place.python, cwd=place.folder)
    bin = place.folder / ".venv" / "bin"
    return Installation([bin / "zoolet"], bin / "python")


def install_with_pipx(place: InstallTarget) -> Installation:
    """Install only the command, with pipx."""
    homes = {"PIPX_HOME": str(place.folder / "home"), "PIPX_BIN_DIR": str(place.folder / "bin")}
    run(place.tools / "pipx", "install", "--python", place.python, f"{place.clone}{EXTRAS}", cwd=place.folder, **homes)
    return Installation([place.folder / "bin" / "zoolet"], None)


def build_zipapp(place: InstallTarget) -> Installation:
    """Pack zoolet and its dependencies into one zipapp, except cryptography, which must be a folder."""
    app, file = place.folder / "app", place.folder / "zoolet.pyz"
    run(place.python, "-m", "pip", "install", "-q", "--target", app, f"{place.clone}[admin,shell]", cwd=place.folder)
    run(place.python, "-m", "zipapp", app, "-m", "zoolet.__main__:main", "-o", file, cwd=place.folder)
    run(place.python, "-m", "venv", place.folder / "venv", cwd=place.folder)
    run(place.folder / "venv/bin/pip", "install", "-q", "cryptography", *TEST_PACKAGES, cwd=place.folder)
    return Installation([place.python, file], place.folder / "venv" / "bin" / "python", str(file))


def freeze_with_pyinstaller(place: InstallTarget) -> Installation:
    """Freeze the command into a program without Python."""
    packages = environment(place, f"{place.clone}{EXTRAS}", "pyinstaller")
    (place.folder / "frozen.py").write_text(FROZEN_PROGRAM)
    assert packages.python is not None
    run(packages.python, "-m", "PyInstaller", "--log-level", "ERROR", "frozen.py", cwd=place.folder)
    return Installation([place.folder / "dist" / "frozen" / "frozen"], None)


def install_old_pytest(place: InstallTarget) -> Installation:
    """Install pytest 7, and run a test with pluggy 1.2, and with pluggy 1.0, which disables the fixtures."""
    python = environment(place, f"{place.clone}{EXTRAS}", tests=("pytest==7.4.4", "pluggy==1.2.0", "kazoo")).python
    assert python is not None
    test = place.folder / "test_user.py"
    test.write_text(USER_TEST)
    run(python, "-m", "pytest", "-q", cwd=place.folder)
    run(python, "-m", "pip", "install", "-q", "pluggy==1.0.0", cwd=place.folder)
    test.write_text("def test_nothing():\n    pass\n")
    run(python, "-m", "pytest", "-q", cwd=place.folder)
    return Installation([python.with_name("zoolet")], None)


INSTALLERS: Final[dict[str, Callable[[InstallTarget], Installation]]] = {
    "path": lambda place: environment(place, f"{place.clone}{EXTRAS}"),
    "editable": lambda place: environment(place, "--editable", f"{place.clone}{EXTRAS}"),
    "git+file": lambda place: environment(place, f"zoolet{EXTRAS} @ git+file://localhost{quote(str(place.clone))}"),
    "sdist": install_sdist,
    "wheel": install_wheel,
    "uv": install_with_uv,
    "pipx": install_with_pipx,
    "zipapp": build_zipapp,
    "pyinstaller": freeze_with_pyinstaller,
    "old pytest": install_old_pytest,
}


def modules(clone: Path) -> list[str]:
    """Return the names of all modules of zoolet."""
    rooms = (path.parent for path in clone.glob("*/__init__.py"))
    files = (path.relative_to(clone).with_suffix("") for room in rooms for path in room.rglob("*.py"))
    return sorted(
        ".".join(["zoolet", *file.parts]).removesuffix(".__init__") for file in files if file.name.isidentifier()
    )


def check(installed: Installation, names: list[str], folder: Path) -> None:
    """Use an installation as a user would: run commands, import all modules, and run a test.

    Raises:
        RuntimeError: A command failed.
    """
    run(*installed.zoolet, "run", "--admin", "--", "sh", "-c", STATUS_SCRIPT, "status", *installed.zoolet, cwd=folder)
    if installed.python is None:
        return
    variables = {"PYTHONPATH": installed.path} if installed.path else {}
    imports = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    run(installed.python, "-c", imports, *names, cwd=folder, **variables)
    (folder / "test_user.py").write_text(USER_TEST)
    run(installed.python, "-m", "pytest", "-q", cwd=folder, **variables)


def build_at_same_time(place: InstallTarget) -> None:
    """Build two wheels at the same time, several times, and check that no file is missing in any of them.

    Raises:
        RuntimeError: The wheels have different numbers of files.
    """
    sizes = set()
    for number in range(BUILD_ROUNDS):
        places = [place._replace(folder=place.folder / f"{number}-{name}") for name in ("first", "second")]
        for each in places:
            each.folder.mkdir()
        with ThreadPoolExecutor() as threads:
            sizes |= {len(zipfile.ZipFile(wheel).namelist()) for wheel in threads.map(build_without_isolation, places)}
    if len(sizes) > 1:
        raise RuntimeError(f"the wheels have different numbers of files: {sizes}")
    print(f"{2 * BUILD_ROUNDS} wheels, two at a time: each has {sizes.pop()} files", flush=True)


def build_without_isolation(place: InstallTarget) -> Path:
    """Build a wheel without isolation, which would take most of the time. Return the file."""
    call = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    run(place.tools / "python", "-c", call, place.folder, cwd=place.clone)
    return next(place.folder.glob("*.whl"))


def resolve_wheels(place: InstallTarget, minors: Sequence[str]) -> None:
    """Check that every dependency has wheels for all supported versions, except the extra for Java key stores.

    Raises:
        RuntimeError: A dependency has no wheel.
    """
    project = tomllib.loads((place.clone / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [word for extra in project["optional-dependencies"] if extra != "jks" for word in ("--extra", extra)]
    for minor in minors:
        target = ("--python-version", minor, "--only-binary", ":all:", "-o", os.devnull)
        run(place.tools / "uv", "pip", "compile", "-q", *target, *extras, "pyproject.toml", cwd=place.clone)
    print(f"every dependency has a wheel for {', '.join(minors)}", flush=True)


def main(arguments: list[str]) -> int:
    """Run all installations, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="make installs", description="Install zoolet in every way.")
    parser.add_argument("--only", default="", help="versions of Python that start with this, such as 3.13")
    parser.add_argument("--ways", default=",".join(INSTALLERS), help="some of the ways, separated by commas")
    given = parser.parse_args(arguments)
    minors = supported((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pythons = [each for each in find_interpreters(minors, os.environ) if each.version.startswith(given.only)]
    ways = given.ways.split(",")
    if not pythons or not INSTALLERS.keys() >= set(ways):
        print(f"no Python was found, or a way is not one of {', '.join(INSTALLERS)}", file=sys.stderr)
        return 1
    print(f"{len(pythons) * len(ways)} installations, about half a minute each", flush=True)
    results: dict[str, list[str]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(prefix="zoolet installs ") as name:
        folder = Path(name)
        clone = folder / "zoolet"
        run("git", "clone", "-q", ROOT, clone, cwd=folder)
        run(sys.executable, "-m", "venv", folder / "tools", cwd=folder)
        tools = folder / "tools" / "bin"
        run(tools / "pip", "install", "-q", "uv", "pipx", "build", "setuptools>=77.0.1", cwd=folder)
        (folder / "builds").mkdir()
        place = InstallTarget(clone, folder / "builds", pythons[0].path, tools)
        resolve_wheels(place, minors)
        build_at_same_time(place)
        for python in pythons:
            for way in ways:
                place = InstallTarget(clone, folder / f"{python.version} {way}", python.path, tools)
                (place.folder / "work").mkdir(parents=True)
                started = time.monotonic()
                try:
                    check(INSTALLERS[way](place), modules(clone), place.folder / "work")
                    results[way].append(f"{time.monotonic() - started:.0f} s")
                except (RuntimeError, OSError) as error:
                    print(f"{python.version} {way}: {error}", file=sys.stderr, flush=True)
                    results[way].append("failed")
    print(f"{'':12}" + "".join(f"{python.version:>9}" for python in pythons))
    for way, cells in results.items():
        print(f"{way:12}" + "".join(f"{cell:>9}" for cell in cells))
    return int(any("failed" in cells for cells in results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
