"""Plant defects one by one, and run tests until one fails: ``make mutations``.

Each defect is planted in a copy of the project, so that the sources stay as they are. At first all tests run without
one, as ``make test`` has them without Java, and note which lines they execute. Then each defect meets those that
execute its statement: the files that are named after its module first, then the others, and at last those that start
other processes. A test that fails has to fail twice. What no test finds is listed at the end; ``--again`` with such a
list tries only those, as long as the sources stay as they are, and notes lines only of tests that were changed since.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Final, NamedTuple

import pytest

from mutations.mutants import Mutant, mutants_of
from mutations.plugin import ONLY, TRACE_INTO, Trace, merged, read_traces

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ("__init__.py", "__main__.py", "event_loop.py", "pem.py", "progress.py", "testing.py", "usage.py",
                  "py.typed", "protocol", "server", "client")  # fmt: skip
TESTS: Final = tuple(
    f"tests/{folder}"
    for folder in "server model client recipes fuzz checking cluster testing console compat protocol".split()
)
"""What is run; the others of ``make test`` need Java, or look at the sources and the docs."""
TIMES_AS_LONG: Final = 4
"""How many times as long as without a defect tests may take; then it counts as found, as they would never end."""
NOTES: Final = ROOT / "build" / "mutations.json"
"""What tests execute, of the run before."""
START_S: Final = 15
"""What pytest takes to start, at most."""


class Part(NamedTuple):
    """A part of the sources.

    Args:
        name: Its name.
        files: Its modules, as globs.
        share: How many of a hundred defects are planted here.
        processes: Where tests lie that run it in another process.
    """

    name: str
    files: tuple[str, ...]
    share: int
    processes: tuple[str, ...]


PARTS: Final = (
    Part("core", ("server/core/*.py", "server/core/ops/*.py"), 40, ("tests/server/cli/test_data_dir",)),
    Part("storage", ("server/storage/*.py",), 20, ("tests/server/storage", "tests/server/cli/test_data_dir")),
    Part("session", ("client/aio/*.py", "client/wire/*.py", "client/*.py"), 20, ("tests/client/test_",)),
    Part("recipes", ("client/recipes/*.py",), 20, ("tests/recipes",)),
)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="mutations", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--part", choices=[part.name for part in PARTS])
    parser.add_argument("--again", type=Path, help="a file with lines «not found: ...» of a run before: only those")
    arguments = parser.parse_args()
    chosen = choose(arguments.count, Random(arguments.seed), arguments.part)
    if arguments.again is not None:
        listed = set(re.findall(r"not found: (.*)", arguments.again.read_text()))
        chosen = [(part, mutant) for part, mutant in chosen if str(mutant) in listed]
    print(f"{len(chosen)} defects of seed {arguments.seed}, {arguments.jobs} at a time; this takes about "
          f"{10 + len(chosen) * 20 // arguments.jobs // 60} minutes", flush=True)  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="zoolet-mutations-") as name:
        trial = Trial(Path(name), arguments.jobs)
        if broken := trial.trace(since=arguments.again is not None):
            print(f"these tests fail without a defect: {', '.join(sorted(broken))}")
            return 2
        alive = trial.run(chosen)
    found = len(chosen) - len(alive)
    print(f"\n{found} of {len(chosen)} found, {100 * found / len(chosen):.1f} %")
    for mutant in sorted(alive, key=str):
        print(f"  not found: {mutant}")
    return 0 if found >= 0.95 * len(chosen) else 1


def choose(count: int, rng: Random, only: str | None) -> list[tuple[Part, Mutant]]:
    """Choose defects at random, by the share of each part."""
    chosen: list[tuple[Part, Mutant]] = []
    for part in PARTS:
        if only not in (None, part.name):
            continue
        files = sorted({file for pattern in part.files for file in ROOT.glob(pattern)})
        every = [mutant for file in files for mutant in mutants_of(ROOT, file)]
        wanted = count if only else count * part.share // 100
        chosen += [(part, mutant) for mutant in rng.sample(every, min(wanted, len(every)))]
    rng.shuffle(chosen)
    return chosen


class Trial:
    """Copies of the project in which defects are planted.

    Args:
        folder: Where the copies are made.
        jobs: How many defects are tried at a time, each in a copy of its own.
    """

    def __init__(self, folder: Path, jobs: int) -> None:
        self._folder = folder
        self._at_once = jobs
        self._trace = Trace({}, [], {})
        self._times = itertools.count(int(time.time()))  # of files: each another, or bytecode would be taken for fresh
        self._copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            self._copies.put(_copy(folder / str(number)))

    def trace(self, *, since: bool) -> set[str]:
        """Run all tests without a defect and note what they execute; return those that fail.

        Args:
            since: Only those of files that were changed since the run before, or that it did not have.
        """
        tests = list(TESTS)
        known = Trace({}, [], {})
        if since:
            known = Trace(*json.loads(NOTES.read_text()))
            noted, had = NOTES.stat().st_mtime, {test.partition("::")[0] for test in known.seconds}
            files = [file for each in TESTS for file in (ROOT / each).rglob("test_*.py")]
            names = {str(file.relative_to(ROOT)): file.stat().st_mtime for file in files}
            tests = [name for name, changed in names.items() if changed > noted or name not in had]
        folder = self._copies.get()
        began = time.monotonic()
        failed = Result(False, frozenset())
        if tests:
            into = self._folder / "traces"
            into.mkdir()
            options = ["-n", str(self._at_once), "--dist", "loadfile", "-p", "mutations.plugin", *tests]
            failed = run(folder, options, {TRACE_INTO: str(into)}, 3600)
            new = read_traces(into)
            if not new.seconds:
                raise RuntimeError(f"no test has run: {' '.join(options)}")
            print(f"{time.monotonic() - began:.0f} s without a defect: {len(new.seconds)} tests", flush=True)
            known = merged([known, new])
        self._trace = known
        NOTES.parent.mkdir(exist_ok=True)
        NOTES.write_text(json.dumps(known))
        broken = {test for test in failed.tests if self._fails(folder, [test])}  # tracing makes tests slow
        self._copies.put(folder)
        return broken

    def run(self, chosen: list[tuple[Part, Mutant]]) -> list[Mutant]:
        """Try defects; return those that no test finds."""
        alive: list[Mutant] = []
        began = time.monotonic()
        with ThreadPoolExecutor(self._at_once) as pool:
            running = {pool.submit(self._is_found, part, mutant): mutant for part, mutant in chosen}
            for number, done in enumerate(as_completed(running), 1):
                mutant = running[done]
                if not done.result():
                    alive.append(mutant)
                    print(f"not found: {mutant}", flush=True)
                if number % 10 == 0:
                    minutes = (time.monotonic() - began) / 60
                    print(f"{number} of {len(chosen)} tried, {len(alive)} not found, {minutes:.0f} minutes", flush=True)
        return alive

    def _is_found(self, part: Part, mutant: Mutant) -> bool:
        folder = self._copies.get()
        file = folder / mutant.file
        before = file.read_text()
        try:
            self._write(file, mutant.source(folder))
            return any(self._fails(folder, tests) for tests in self._tests(part, mutant))
        finally:
            self._write(file, before)
            self._copies.put(folder)

    def _tests(self, part: Part, mutant: Mutant) -> list[list[str]]:
        """Return what is run for a defect, one list after the other."""
        lines = self._trace.lines.get(mutant.file, {})
        every = list(self._trace.seconds)
        executing = {every[test] for line in mutant.lines for test in lines.get(str(line), ())}
        stem = Path(mutant.file).stem.lstrip("_")
        near = {test for test in executing if f"/test_{stem}" in test}
        elsewhere = {test for test in self._trace.processes if test.startswith(part.processes)}
        quick = {test for test in executing if self._trace.seconds[test] < 0.5}
        parts = [near & quick, quick - near, executing - quick, elsewhere - executing]
        return [self._by_file(tests) for tests in parts if tests]

    def _by_file(self, tests: Iterable[str]) -> list[str]:
        """Order tests by their files, the quickest file first."""
        files: dict[str, list[str]] = {}
        for test in sorted(tests):
            files.setdefault(test.partition("::")[0], []).append(test)
        return list(itertools.chain(*sorted(files.values(), key=self._seconds)))

    def _seconds(self, tests: Iterable[str]) -> float:
        return sum(self._trace.seconds[test] for test in tests)

    def _fails(self, folder: Path, tests: list[str]) -> bool:
        """Return whether one of some tests fails twice, or whether they do not end in time."""
        while tests:
            result = self._run(folder, tests)
            if not result.failed:
                return False
            if not result.tests or self._run(folder, sorted(result.tests)).failed:
                return True
            tests = [test for test in tests if test not in result.tests]  # one that fails at times says nothing
        return False

    def _run(self, folder: Path, tests: list[str]) -> Result:
        only = folder.with_suffix(".only")
        only.write_text("\n".join(tests))
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        seconds = TIMES_AS_LONG * (self._seconds(tests) + START_S)
        return run(folder, ["-x", "-n", "0", "-p", "mutations.plugin", *files], {ONLY: str(only)}, seconds)

    def _write(self, file: Path, source: str) -> None:
        file.write_text(source)
        stamp = next(self._times)
        os.utime(file, (stamp, stamp))


def _copy(folder: Path) -> Path:
    """Copy the project."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in listed.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    (folder / ".typing" / "zoolet").mkdir(parents=True)
    for name in PACKAGE:
        (folder / ".typing" / "zoolet" / name).symlink_to(folder / name)
    return folder


class Result(NamedTuple):
    """How tests ended.

    Args:
        failed: Whether one failed, could not be imported, or did not end in time.
        tests: Which ones failed.
    """

    failed: bool
    tests: frozenset[str]


def run(folder: Path, options: list[str], settings: dict[str, str], seconds: float) -> Result:
    """Run tests in a copy of the project."""
    output = folder.with_suffix(".out")
    with output.open("wb") as stdout:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", *options],
            cwd=folder,
            env=os.environ
            | {"PYTHONPATH": f"{folder / '.typing'}:{folder / 'tests'}", "ZOOLET_NO_APACHE": "1", "COLUMNS": "1000"}
            | settings,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            failed = process.wait(seconds) not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        except subprocess.TimeoutExpired:
            return Result(True, frozenset())
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
    tests = re.findall(r"^(?:FAILED|ERROR) (\S*?::.*?)(?: - .*)?$", output.read_text(errors="replace"), re.MULTILINE)
    return Result(failed, frozenset(tests) if failed else frozenset())


if __name__ == "__main__":
    sys.exit(main())
