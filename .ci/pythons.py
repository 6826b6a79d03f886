#!/usr/bin/env python3
"""The test suite on every supported Python of this machine, with a table of the results:

    make pythons        make pythons ARGS="--only 3.13 -- tests/protocol"        make pythons ARGS=--lowest

It finds the versions of pyenv, and python3.N in the PATH and in /usr/bin. Each Python gets its own environment,
such as .venv-3.13.0. If this script runs as root, one Python also runs the committed code as an ordinary user, in
a new clone, with conditions that a developer's machine does not have: LANG=C, umask 077, 1,024 file descriptors, a
different time zone, and a space in the path of the temporary folder. If you are not root, these conditions apply to
one of the runs. --lowest makes only one run: of the committed code, on the oldest Python, with the lowest version of
each dependency that pyproject.toml admits.

The script fails if a test fails, if pytest stops early, or if no Python is found. The logs are in build/pythons.
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
LOGS: Final = ROOT / "build" / "pythons"
MINUTES_PER_RUN: Final = 6
"""Expected time of one run on two cores, in minutes, including the creation of the environment."""
MAX_DESCRIPTORS: Final = 1024
PLAIN_USER: Final = pwd.getpwuid(65534).pw_name
"""Name of the unprivileged user that exists on every Linux system."""
WORKERS: Final = (os.cpu_count() or 1) + 2
_VERSION_PROGRAM: Final = "import platform; print(platform.python_version())"
_COUNTS_PATTERN: Final = r"(\d+) (passed|failed|skipped|errors?)\b"


class Python(NamedTuple):
    """An interpreter.

    Args:
        version: The complete version, such as ``3.13.0``.
        path: The executable.
    """

    version: str
    path: Path


class RunOutcome(NamedTuple):
    """The result of one run.

    Args:
        label: The version, and the user if it is not the current one.
        counts: The number of tests by outcome: ``passed``, ``failed``, ``skipped``, ``error``.
        skips: The number of skipped tests by reason.
        exit_code: The exit code of pytest, or of make if it could not create the environment.
        seconds: The duration.
    """

    label: str
    counts: Mapping[str, int]
    skips: Mapping[str, int]
    exit_code: int
    seconds: float


def supported(pyproject: str) -> tuple[str, ...]:
    """Return the minor versions in the classifiers of pyproject.toml, such as ``3.11``."""
    return tuple(re.findall(r'"Programming Language :: Python :: (3\.\d+)"', pyproject))


def lowest(pyproject: str) -> str:
    """Return constraints for pip: the lower bound of each requirement in pyproject.toml."""
    bounds = re.findall(r'"([A-Za-z][\w.-]*)(?:\[[\w,-]+\])?[>=]=([\d.]+)', pyproject)
    return "".join(sorted({f"{name}=={version}\n" for name, version in bounds}))


def interpreter_candidates(minors: tuple[str, ...], environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the possible paths of an interpreter. Those in /usr/bin come first, because every user may run them."""
    pyenv = Path(environ.get("PYENV_ROOT") or Path(environ.get("HOME", "/")) / ".pyenv")
    for minor in minors:
        yield Path("/usr/bin") / f"python{minor}"
        yield from sorted((pyenv / "versions").glob(f"{minor}.*/bin/python{minor}"))
        for folder in environ.get("PATH", "").split(os.pathsep):
            if "shims" not in folder:  # pyenv's shims only start the versions above
                yield Path(folder) / f"python{minor}"
    yield Path(sys.executable)


def find_interpreters(minors: tuple[str, ...], environ: Mapping[str, str]) -> list[Python]:
    """Return the interpreters of this machine, one for each version, sorted by version."""
    found: dict[str, Path] = {}
    for path in interpreter_candidates(minors, environ):
        if not os.access(path, os.X_OK):
            continue
        done = subprocess.run([path, "-c", _VERSION_PROGRAM], capture_output=True, text=True, check=False)
        version = done.stdout.strip()
        if done.returncode == 0 and version.rpartition(".")[0] in minors:
            found.setdefault(version, path)
    return sorted((Python(*each) for each in found.items()), key=_version_numbers)


def _version_numbers(python: Python) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", python.version)]


def parse_outcome(label: str, output: str, exit_code: int, seconds: float) -> RunOutcome:
    """Parse the output of pytest, which must run with the option ``-ra``."""
    last = next((line for line in reversed(output.splitlines()) if re.search(_COUNTS_PATTERN, line)), "")
    counts = {kind.removesuffix("s"): int(number) for number, kind in re.findall(_COUNTS_PATTERN, last)}
    skips: Counter[str] = Counter()
    for number, reason in re.findall(r"^SKIPPED \[(\d+)\] \S+ (.*)$", output, re.MULTILINE):
        skips[reason] += int(number)
    return RunOutcome(label, counts, skips, exit_code, seconds)


def table(outcomes: list[RunOutcome]) -> str:
    """Format the results as a table, followed by the reasons for skipped tests."""
    width = max(len(each.label) for each in outcomes)
    lines = [f"{'Python':{width}}  passed  failed  skipped  minutes"]
    for each in outcomes:
        failed = each.counts.get("failed", 0) + each.counts.get("error", 0)
        note = "" if each.exit_code == 0 or failed else f"  ended early (exit code {each.exit_code})"
        passed, skipped = each.counts.get("passed", 0), each.counts.get("skipped", 0)
        minutes = each.seconds / 60
        lines.append(f"{each.label:{width}}  {passed:6}  {failed:6}  {skipped:7}  {minutes:7.1f}{note}")
    reasons: dict[str, list[str]] = {}
    for each in outcomes:
        for reason, number in each.skips.items():
            reasons.setdefault(reason, []).append(f"{number} on {each.label}")
    return "\n".join([*lines, *(f"skipped: {reason}: {', '.join(where)}" for reason, where in reasons.items())])


def _make_environment(folder: Path, python: Python, how: Mapping[str, object]) -> int:
    """Create the environment of a Python, with everything that the tests can use. Return the exit code of make."""
    venv = f".venv-{python.version}"
    # -k: continue if the package for JKS key stores cannot be compiled. Tests that need it are skipped.
    targets = ["setup", f"{venv}/.docs", f"{venv}/.jks"]
    done = subprocess.run(["make", "-k", *targets, f"PYTHON={python.path}"], cwd=folder, check=False, **how)  # type: ignore[call-overload]
    return 0 if (folder / venv / ".dev").exists() else int(done.returncode) or 1


def _run(label: str, folder: Path, python: Python, arguments: list[str], how: Mapping[str, object]) -> RunOutcome:
    started = time.monotonic()
    log = LOGS / f"{label.replace(' ', '-')}.log"
    print(f"{label}: {python.path}, log in {log.relative_to(ROOT)}", flush=True)
    with log.open("w", encoding="utf-8") as file:
        how = {**how, "stdout": file, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
        code = _make_environment(folder, python, how)
        if code == 0:
            pytest = [f".venv-{python.version}/bin/pytest", "-n", str(WORKERS), "--dist", "loadfile", *arguments]
            code = subprocess.run(pytest, cwd=folder, check=False, **how).returncode  # type: ignore[call-overload]
    output = log.read_text(encoding="utf-8", errors="replace")
    return parse_outcome(label, output, code, time.monotonic() - started)


def _limit_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_DESCRIPTORS, MAX_DESCRIPTORS))


def _odd_conditions(home: Path) -> dict[str, object]:
    """Return the arguments of ``subprocess.run`` for conditions that differ from a developer's machine."""
    temporary = home / "t t"  # short, because the path of a Unix socket is limited to 107 bytes
    temporary.mkdir()
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "XDG_", "PYENV"))}
    environ |= {"LANG": "C", "LC_ALL": "C", "TZ": "Pacific/Chatham", "HOME": str(home), "TMPDIR": str(temporary)}
    environ["PATH"] = "/usr/local/bin:/usr/bin:/bin"  # users may not be able to read other folders of root's PATH
    return {"env": environ, "umask": 0o077, "preexec_fn": _limit_descriptors}


def _run_with_lowest_versions(python: Python, arguments: list[str]) -> RunOutcome:
    """Run the committed code with the lowest version of each dependency that pyproject.toml admits."""
    with tempfile.TemporaryDirectory(prefix="py") as home:
        folder, constraints = Path(home, "clone"), Path(home, "constraints.txt")
        subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
        constraints.write_text(lowest((folder / "pyproject.toml").read_text(encoding="utf-8")))
        names = ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT")
        conditions = {"env": {**os.environ, **dict.fromkeys(names, str(constraints))}}
        return _run(f"{python.version} lowest versions", folder, python, arguments, conditions)


def _run_as_plain_user(pythons: list[Python], arguments: list[str]) -> RunOutcome | None:
    """Run the committed code as an ordinary user. Return None if this user cannot run any of the interpreters."""
    user = pwd.getpwnam(PLAIN_USER)
    who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    home = Path(tempfile.mkdtemp(prefix="py"))
    try:
        python = next((each for each in pythons if _can_run(each, who)), None)
        if python is None:
            return None
        folder = home / "clone"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
        conditions = _odd_conditions(home)
        for path in (home, *home.rglob("*")):
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
        return _run(f"{python.version} as {PLAIN_USER}", folder, python, arguments, conditions | who)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _can_run(python: Python, who: Mapping[str, object]) -> bool:
    try:
        return subprocess.run([python.path, "-c", ""], check=False, **who).returncode == 0  # type: ignore[call-overload]
    except PermissionError:
        return False


def main(arguments: list[str]) -> int:
    """Run the suite on all Pythons, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="make pythons", description="Run the suite on every supported Python.")
    parser.add_argument("--only", default="", help="versions that start with this, such as 3.13")
    parser.add_argument("--lowest", action="store_true", help="run with the lowest version of each dependency")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    given = parser.parse_args(arguments)
    minors = supported((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pythons = [each for each in find_interpreters(minors, os.environ) if each.version.startswith(given.only)]
    if not pythons:
        print(f"no Python {given.only or ' or '.join(minors)} was found", file=sys.stderr)
        return 1
    LOGS.mkdir(parents=True, exist_ok=True)
    if given.lowest:
        outcome = _run_with_lowest_versions(pythons[0], given.pytest)
        print(table([outcome]))
        return outcome.exit_code
    is_root = os.geteuid() == 0
    missing = [minor for minor in minors if not any(each.version.startswith(f"{minor}.") for each in pythons)]
    absent = f"; not found: {', '.join(missing)}" if missing and not given.only else ""
    runs = len(pythons) + is_root
    print(
        f"{runs} runs of about {MINUTES_PER_RUN} minutes, {runs * MINUTES_PER_RUN} minutes in all{absent}", flush=True
    )
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="py") as folder:
        for number, python in enumerate(pythons):
            odd = number == 0 and not is_root
            conditions = _odd_conditions(Path(folder)) if odd else {}
            outcomes.append(_run(python.version, ROOT, python, given.pytest, conditions))
    if is_root:
        if (outcome := _run_as_plain_user(pythons, given.pytest)) is not None:
            outcomes.append(outcome)
        else:
            print(f"the user {PLAIN_USER} can run none of these Pythons, so no run was made as an ordinary user")
    print(table(outcomes))
    return int(any(each.exit_code for each in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
