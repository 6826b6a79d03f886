"""The program of ``make mutations``, which plants defects one by one, and runs tests until one fails.

Each defect is planted in a copy of the project, so the sources stay unchanged. First all tests of ``make test`` that
need no Java run without a defect, and the lines that they execute are recorded. Then, for each defect, the tests that
execute its statement run: first the files named after its module, then the others, then slow tests, and last some tests
that start other processes. A test must fail twice with the defect and pass without it. Tests that hang or cannot start
also count, and the output shows which. Defects that no test finds are listed at the end. ``--again`` with such a list
tries only these defects, and records lines only for tests that have changed since.
"""

from __future__ import annotations

import argparse
import hashlib
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

from mutations.mutants import SOURCES, Mutant, find_mutants
from mutations.plugin import ONLY, TRACE_INTO, Trace, merge_traces, read_traces

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = tuple(
    f"tests/{folder}" for folder in "protocol server model client fuzz console testing cli compat".split()
)
"""The tests to run; the others of ``make test`` need Java, or check the sources and the docs."""
TIMEOUT_FACTOR: Final = 4
"""Limit for the duration of tests, as a multiple of the time without a defect; above it the defect counts as found."""
PYTEST: Final[tuple[str, ...]] = (
    *(sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider"),
    "--general-forms",
)
STRAIGHT: Final = ROOT / "server" / "core" / "ops" / "straight.py"
"""A module that is made from others, which receive the defects. The tests are run without it."""
TRACE_FILE: Final = ROOT / "build" / "mutations.json"
"""The recorded lines of the previous run."""
START_S: Final = 15
"""Limit for the start of pytest, in seconds."""


class SourcePart(NamedTuple):
    """A part of the sources.

    Args:
        name: Its name in `SOURCES`.
        share: Percentage of the defects that are planted here.
        processes: Paths of tests that run it in another process.
    """

    name: str
    share: int
    processes: tuple[str, ...]

    def mutants(self) -> list[Mutant]:
        """Return all defects that can be planted here."""
        files = sorted({file for pattern in SOURCES[self.name] for file in ROOT.glob(pattern)} - {STRAIGHT})
        return [mutant for file in files for mutant in find_mutants(ROOT, file)]


PARTS: Final = (
    SourcePart("core", 40, ("tests/cli/test_data_dir",)),
    SourcePart("storage", 20, ("tests/server/storage", "tests/cli/test_data_dir")),
    SourcePart("session", 20, ("tests/client/test_",)),
    SourcePart("recipes", 20, ("tests/client/recipes",)),
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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # exit normally, which also stops child processes
    if arguments.again is None:
        chosen = choose_mutants(arguments.count, Random(arguments.seed), arguments.part)
    else:
        listed = dict.fromkeys(re.findall(r"not found: (.*)", arguments.again.read_text()))
        every = {str(mutant): (part, mutant) for part in PARTS for mutant in part.mutants()}
        if gone := [line for line in listed if line not in every]:
            print("the sources have no such place any more:", *gone, sep="\n  ")
            return 2
        chosen = [every[line] for line in listed]
    if not chosen:
        parser.error("there is nothing to try")
    print(f"{len(chosen)} defects, {arguments.jobs} at a time; this takes about "
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


def choose_mutants(count: int, rng: Random, only: str | None) -> list[tuple[SourcePart, Mutant]]:
    """Choose defects at random, by the share of each part."""
    chosen: list[tuple[SourcePart, Mutant]] = []
    for part in PARTS:
        if only not in (None, part.name):
            continue
        every = part.mutants()
        wanted = count if only else count * part.share // 100
        chosen += [(part, mutant) for mutant in rng.sample(every, min(wanted, len(every)))]
    rng.shuffle(chosen)
    return chosen


class Trial:
    """Copies of the project in which defects are planted.

    Args:
        folder: Parent folder of the copies.
        jobs: Number of defects to try at the same time, each in its own copy.
    """

    def __init__(self, folder: Path, jobs: int) -> None:
        self._folder = folder
        self._parallel_jobs = jobs
        self._trace = Trace({}, [], {})
        self._sound_tests: set[str] = set()  # tests that have passed here without a defect
        self._unique_mtimes = itertools.count(int(time.time()))  # unique mtimes, or old bytecode would look fresh
        self._copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            self._copies.put(_copy(folder / str(number)))

    def trace(self, *, since: bool) -> set[str]:
        """Run all tests without a defect, and record the lines that they execute. Return the tests that fail.

        Args:
            since: Whether to run only test files that have changed since the previous run.
        """
        folder = self._copies.get()
        files = {
            str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
            for each in TESTS
            for file in (folder / each).rglob("test_*.py")
        }
        self._trace, before = Trace({}, [], {}), {}
        if since:
            before, noted = json.loads(TRACE_FILE.read_text())
            self._trace = Trace(*noted).without({name for name in before if before[name] != files.get(name)})
        end = PytestResult(0, frozenset(), "")
        if tests := [name for name in files if files[name] != before.get(name)]:
            began = time.monotonic()
            into = self._folder / "traces"
            into.mkdir()
            options = ["-n", str(self._parallel_jobs), "--dist", "loadfile", "-p", "mutations.plugin"]
            end = run_pytest(folder, [*options, *(tests if since else TESTS)], {TRACE_INTO: str(into)}, 3600)
            new = read_traces(into)
            if not new.seconds or not (end.passed or end.failed):
                raise RuntimeError(f"the tests could not be run: {end.output}")
            print(f"{time.monotonic() - began:.0f} s without a defect: {len(new.seconds)} tests", flush=True)
            self._trace = merge_traces([self._trace, new])
        TRACE_FILE.parent.mkdir(exist_ok=True)
        TRACE_FILE.write_text(json.dumps((files, self._trace)))
        broken = {test for test in end.failed if not self._run(folder, [test]).passed}  # tracing makes tests slow
        self._copies.put(folder)
        return broken

    def run(self, chosen: list[tuple[SourcePart, Mutant]]) -> list[Mutant]:
        """Try defects. Return the defects that no test finds."""
        alive: list[Mutant] = []
        began = time.monotonic()
        pool = ThreadPoolExecutor(self._parallel_jobs)
        try:
            running = {pool.submit(self._finder, part, mutant): mutant for part, mutant in chosen}
            for number, done in enumerate(as_completed(running), 1):
                mutant = running[done]
                if finder := done.result():
                    print(f"found: {mutant}: {finder}", flush=True)
                else:
                    alive.append(mutant)
                    print(f"not found: {mutant}", flush=True)
                if number % 10 == 0:
                    minutes = (time.monotonic() - began) / 60
                    print(f"{number} of {len(chosen)} tried, {len(alive)} not found, {minutes:.0f} minutes", flush=True)
        finally:  # also after an interrupt
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(LIVE_PROCESSES):
                _kill(process)
        return alive

    def _finder(self, part: SourcePart, mutant: Mutant) -> str:
        """Plant a defect. Return the test that finds the defect, or an empty string."""
        folder = self._copies.get()
        file = folder / mutant.file
        before, planted = file.read_text(), mutant.source(folder)
        shutil.rmtree(folder / ".hypothesis", ignore_errors=True)  # examples that failed with an earlier defect
        try:
            self._write(file, planted)
            for tests in self._tests(part, mutant):
                while tests:
                    end = self._run(folder, tests)
                    if end.passed:
                        break
                    if not end.failed:
                        return "no end in time" if end.code is None else f"exit code {end.code} of pytest"
                    failed = sorted(end.failed)
                    if not self._run(folder, failed).passed:
                        self._write(file, before)
                        if self._is_sound(folder, failed):
                            return failed[0]
                        self._write(file, planted)
                    tests = [test for test in tests if end.failed.isdisjoint((test, test.partition("::")[0]))]
            return ""
        finally:
            self._write(file, before)
            self._copies.put(folder)

    def _is_sound(self, folder: Path, tests: list[str]) -> bool:
        """Return whether tests pass without a defect, in a run of the same kind."""
        if not self._sound_tests.issuperset(tests):
            if not self._run(folder, tests).passed:
                print(f"fails without a defect: {tests}", flush=True)
                return False
            self._sound_tests.update(tests)
        return True

    def _tests(self, part: SourcePart, mutant: Mutant) -> list[list[str]]:
        """Return the lists of tests to run for a defect, in order."""
        lines = self._trace.lines.get(mutant.file, {})
        every = list(self._trace.seconds)
        stem = Path(mutant.file).stem.lstrip("_")
        near = {test for test in every if f"/test_{stem}" in test}
        executing = {every[test] for line in mutant.lines for test in lines.get(str(line), ())}
        executing = executing or near  # an import executes the line, so no test is recorded for it
        near &= executing
        elsewhere = {test for test in self._trace.processes if test.startswith(part.processes)}
        quick = {test for test in executing if self._trace.seconds[test] < 0.5}
        parts = [near & quick, quick - near, executing - quick, elsewhere - executing]
        return [self._by_file(tests) for tests in parts if tests]

    def _by_file(self, tests: Iterable[str]) -> list[str]:
        """Group tests by file, the fastest file first."""
        files: dict[str, list[str]] = {}
        for test in sorted(tests):
            files.setdefault(test.partition("::")[0], []).append(test)
        return list(itertools.chain(*sorted(files.values(), key=self._seconds)))

    def _seconds(self, tests: Iterable[str]) -> float:
        return sum(self._trace.seconds.get(test, 1.0) for test in tests)  # default: an unimportable file

    def _run(self, folder: Path, tests: list[str]) -> PytestResult:
        only = folder.with_suffix(".only")
        only.write_text("\n".join(tests))
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        seconds = TIMEOUT_FACTOR * (self._seconds(tests) + START_S)
        return run_pytest(folder, ["-x", "-n", "0", "-p", "mutations.plugin", *files], {ONLY: str(only)}, seconds)

    def _write(self, file: Path, source: str) -> None:
        file.write_text(source)
        stamp = next(self._unique_mtimes)
        os.utime(file, (stamp, stamp))


def _copy(folder: Path) -> Path:
    """Copy the project."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in listed.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    (folder / "build" / "typing").mkdir(parents=True)
    (folder / "build" / "typing" / "zoolet").symlink_to(folder)
    return folder


class PytestResult(NamedTuple):
    """The result of a pytest run.

    Args:
        code: Its exit code; None after a timeout.
        failed: The tests that failed, and files that could not be imported.
        output: The end of its output.
    """

    code: int | None
    failed: frozenset[str]
    output: str

    @property
    def passed(self) -> bool:
        """Whether all tests passed."""
        return self.code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


LIVE_PROCESSES: Final[set[subprocess.Popen[bytes]]] = set()
"""The running processes."""


def run_pytest(folder: Path, options: list[str], settings: dict[str, str], seconds: float) -> PytestResult:
    """Run tests in a copy of the project."""
    output = folder.with_suffix(".out")
    with output.open("wb") as stdout:
        process = subprocess.Popen(
            [*PYTEST, *options],
            cwd=folder,
            env=os.environ
            | {
                "PYTHONPATH": f"{folder / 'build' / 'typing'}:{folder / 'tests'}",
                "ZOOLET_NO_APACHE": "1",
                "COLUMNS": "1000",
            }
            | settings,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        LIVE_PROCESSES.add(process)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _kill(process)
            LIVE_PROCESSES.discard(process)
    text = output.read_text(errors="replace")
    failed = re.findall(r"^(?:FAILED|ERROR) (tests/\S+\.py(?:::.*?)?)(?: - .*)?$", text, re.MULTILINE)
    return PytestResult(code, frozenset(failed if code else ()), text[-2000:])


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


if __name__ == "__main__":
    sys.exit(main())
