#!/usr/bin/env python3
"""Install the committed code in every way, on every supported Python of this machine; print a table of the results:

    make installs        make installs ARGS="--only 3.13 --ways wheel,uv"

In each installation, it runs the command and opens the console. If the installation has a Python, it also imports every
module and runs the test of a user. Before that, it looks for a wheel of every dependency, and builds two wheels at the
same time, 20 times. The path of the clone contains a space. uv, pipx and PyInstaller come from the network.
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
from pythons import ROOT, find, supported

BUILDS: Final = 20
EXTRAS: Final = "[admin,shell,tls]"
TESTS: Final = ("pytest", "pytest-asyncio", "kazoo")
TEST: Final = """
def test_kazoo(zoolet, zoolet_kazoo):
    zoolet_kazoo.create("/a")
    assert "/a" in zoolet.tree()
"""
FROZEN: Final = """
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
PAGE: Final = "import os, urllib.request as u; assert b'<script' in u.urlopen(os.environ['ZOOLET_ADMIN'] + '/').read()"
STATUS: Final = f'''
set -e
"$@" status "$ZOOLET_HOSTS"
"$@" shell -server "$ZOOLET_HOSTS" ls /
{shlex.quote(sys.executable)} -c "{PAGE}"
'''
Command = Sequence[str | Path]


class Place(NamedTuple):
    """Where to install.

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


class Installed(NamedTuple):
    """An installation.

    Args:
        zoolet: The command.
        python: A Python that imports zoolet and pytest, with its options; None if only the command is installed.
        path: The value of PYTHONPATH.
    """

    zoolet: Command
    python: Path | None
    path: str = ""


def run(*command: str | Path, cwd: Path, **variables: str) -> None:
    """Run a command; raise an error with the end of its output if it fails."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    done = subprocess.run(command, cwd=cwd, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        words = " ".join(map(str, command))[:200]
        raise RuntimeError(f"exit code {done.returncode} of {words}\n{done.stdout[-3000:].decode(errors='replace')}")


def environment(place: Place, *packages: str | Path, tests: Sequence[str] = TESTS) -> Installed:
    """Create a virtual environment with packages; pip must not need a compiler."""
    run(place.python, "-m", "venv", place.folder / "venv", cwd=place.folder)
    bin = place.folder / "venv" / "bin"
    run(bin / "pip", "install", "-q", "--only-binary", ":all:", *packages, *tests, cwd=place.folder)
    return Installed([bin / "zoolet"], bin / "python")


def build(place: Place, kind: str) -> Path:
    """Build an sdist or a wheel; return the file."""
    run(place.tools / "pyproject-build", f"--{kind}", "--outdir", place.folder / "dist", place.clone, cwd=place.folder)
    return next((place.folder / "dist").iterdir())


def by_sdist(place: Place) -> Installed:
    """Install the sdist."""
    return environment(place, f"{build(place, 'sdist')}{EXTRAS}")


def by_wheel(place: Place) -> Installed:
    """Install the wheel."""
    return environment(place, f"{build(place, 'wheel')}{EXTRAS}")


def by_uv(place: Place) -> Installed:
    """Depend on the clone by its path, in a project of uv."""
    (place.folder / "pyproject.toml").write_text(UV_PROJECT.format(place.clone))
    run(place.tools / "uv", "sync", "-q", "--python", place.python, cwd=place.folder)
    bin = place.folder / ".venv" / "bin"
    return Installed([bin / "zoolet"], bin / "python")


def by_pipx(place: Place) -> Installed:
    """Install only the command, with pipx."""
    homes = {"PIPX_HOME": str(place.folder / "home"), "PIPX_BIN_DIR": str(place.folder / "bin")}
    run(place.tools / "pipx", "install", "--python", place.python, f"{place.clone}{EXTRAS}", cwd=place.folder, **homes)
    return Installed([place.folder / "bin" / "zoolet"], None)


def by_zipapp(place: Place) -> Installed:
    """Put zoolet and its dependencies into one file, except cryptography, which must be a folder."""
    app, file = place.folder / "app", place.folder / "zoolet.pyz"
    run(place.python, "-m", "pip", "install", "-q", "--target", app, f"{place.clone}[admin,shell]", cwd=place.folder)
    run(place.python, "-m", "zipapp", app, "-m", "zoolet.__main__:main", "-o", file, cwd=place.folder)
    run(place.python, "-m", "venv", place.folder / "venv", cwd=place.folder)
    run(place.folder / "venv/bin/pip", "install", "-q", "cryptography", *TESTS, cwd=place.folder)
    return Installed([place.python, file], place.folder / "venv" / "bin" / "python", str(file))


def by_pyinstaller(place: Place) -> Installed:
    """Freeze the command into a program without Python."""
    packages = environment(place, f"{place.clone}{EXTRAS}", "pyinstaller")
    (place.folder / "frozen.py").write_text(FROZEN)
    assert packages.python is not None
    run(packages.python, "-m", "PyInstaller", "--log-level", "ERROR", "frozen.py", cwd=place.folder)
    return Installed([place.folder / "dist" / "frozen" / "frozen"], None)


def by_old_pytest(place: Place) -> Installed:
    """Install pytest 7. The fixtures work with pluggy 1.2, and are off with pluggy 1.0."""
    python = environment(place, f"{place.clone}{EXTRAS}", tests=("pytest==7.4.4", "pluggy==1.2.0", "kazoo")).python
    assert python is not None
    test = place.folder / "test_user.py"
    test.write_text(TEST)
    run(python, "-m", "pytest", "-q", cwd=place.folder)
    run(python, "-m", "pip", "install", "-q", "pluggy==1.0.0", cwd=place.folder)
    test.write_text("def test_nothing():\n    pass\n")
    run(python, "-m", "pytest", "-q", cwd=place.folder)
    return Installed([python.with_name("zoolet")], None)


WAYS: Final[dict[str, Callable[[Place], Installed]]] = {
    "path": lambda place: environment(place, f"{place.clone}{EXTRAS}"),
    "editable": lambda place: environment(place, "--editable", f"{place.clone}{EXTRAS}"),
    "git+file": lambda place: environment(place, f"zoolet{EXTRAS} @ git+file://localhost{quote(str(place.clone))}"),
    "sdist": by_sdist,
    "wheel": by_wheel,
    "uv": by_uv,
    "pipx": by_pipx,
    "zipapp": by_zipapp,
    "pyinstaller": by_pyinstaller,
    "old pytest": by_old_pytest,
}


def modules(clone: Path) -> list[str]:
    """List the modules of zoolet."""
    rooms = (path.parent for path in clone.glob("*/__init__.py"))
    files = (path.relative_to(clone).with_suffix("") for room in rooms for path in room.rglob("*.py"))
    return sorted(
        ".".join(["zoolet", *file.parts]).removesuffix(".__init__") for file in files if file.name.isidentifier()
    )


def check(installed: Installed, names: list[str], folder: Path) -> None:
    """Use an installation as its user does, in an empty folder."""
    run(*installed.zoolet, "run", "--admin", "--", "sh", "-c", STATUS, "status", *installed.zoolet, cwd=folder)
    if installed.python is None:
        return
    variables = {"PYTHONPATH": installed.path} if installed.path else {}
    imports = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    run(installed.python, "-c", imports, *names, cwd=folder, **variables)
    (folder / "test_user.py").write_text(TEST)
    run(installed.python, "-m", "pytest", "-q", cwd=folder, **variables)


def build_at_same_time(place: Place) -> None:
    """Build two wheels at the same time, several times. No file may be missing in any."""
    sizes = set()
    for number in range(BUILDS):
        places = [place._replace(folder=place.folder / f"{number}-{name}") for name in ("first", "second")]
        for each in places:
            each.folder.mkdir()
        with ThreadPoolExecutor() as threads:
            sizes |= {len(zipfile.ZipFile(wheel).namelist()) for wheel in threads.map(by_backend, places)}
    if len(sizes) > 1:
        raise RuntimeError(f"the wheels have different numbers of files: {sizes}")
    print(f"{2 * BUILDS} wheels, two at a time: each has {sizes.pop()} files", flush=True)


def by_backend(place: Place) -> Path:
    """Build a wheel without the isolation that takes most of the time; return the file."""
    call = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    run(place.tools / "python", "-c", call, place.folder, cwd=place.clone)
    return next(place.folder.glob("*.whl"))


def resolve_wheels(place: Place, minors: Sequence[str]) -> None:
    """Look for a wheel of every dependency, except for Java key stores: no supported Python needs a compiler."""
    project = tomllib.loads((place.clone / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [word for extra in project["optional-dependencies"] if extra != "jks" for word in ("--extra", extra)]
    for minor in minors:
        target = ("--python-version", minor, "--only-binary", ":all:", "-o", os.devnull)
        run(place.tools / "uv", "pip", "compile", "-q", *target, *extras, "pyproject.toml", cwd=place.clone)
    print(f"every dependency has a wheel for {', '.join(minors)}", flush=True)


def main(arguments: list[str]) -> int:
    """Run all; return the exit code."""
    parser = argparse.ArgumentParser(prog="make installs", description="Install zoolet in every way.")
    parser.add_argument("--only", default="", help="versions of Python that start with this, such as 3.13")
    parser.add_argument("--ways", default=",".join(WAYS), help="some of the ways, separated by commas")
    given = parser.parse_args(arguments)
    minors = supported((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pythons = [each for each in find(minors, os.environ) if each.version.startswith(given.only)]
    ways = given.ways.split(",")
    if not pythons or not WAYS.keys() >= set(ways):
        print(f"no Python was found, or a way is not one of {', '.join(WAYS)}", file=sys.stderr)
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
        place = Place(clone, folder / "builds", pythons[0].path, tools)
        resolve_wheels(place, minors)
        build_at_same_time(place)
        for python in pythons:
            for way in ways:
                place = Place(clone, folder / f"{python.version} {way}", python.path, tools)
                (place.folder / "work").mkdir(parents=True)
                started = time.monotonic()
                try:
                    check(WAYS[way](place), modules(clone), place.folder / "work")
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
