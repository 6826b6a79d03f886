"""Plant defects one by one, and run tests until one fails: ``make mutations``.

Each defect is planted in a copy of the project, so that the sources stay as they are. The test files that are named
after the module come first, then the quick tests of its part and of the parts above it, and at last the slow ones, all
as ``make test`` has them without Java. What no test finds is listed at the end; ``--again`` with such a list tries only
those.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Final, NamedTuple

import pytest

from mutations.mutants import Mutant, mutants_of

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ("__init__.py", "__main__.py", "event_loop.py", "pem.py", "progress.py", "testing.py", "usage.py",
                  "py.typed", "protocol", "server", "client")  # fmt: skip
TIMES_AS_LONG: Final = 4
"""How many times as long as without a defect tests may take; then it counts as found, as they would never end."""
QUICK: Final = "not slow"
SLOW: Final = "slow"


class Part(NamedTuple):
    """A part of the sources, and what tests it.

    Args:
        name: Its name.
        files: Its modules, as globs.
        share: How many of a hundred defects are planted here.
        tests: What is run, one after the other: its own tests, and those of what uses it.
    """

    name: str
    files: tuple[str, ...]
    share: int
    tests: tuple[tuple[str, ...], ...]


class Stage(NamedTuple):
    """Some tests that are run at once.

    Args:
        tests: Files and folders.
        marks: Which of them, as pytest's ``-m`` has it.
    """

    tests: tuple[str, ...]
    marks: str

    def __str__(self) -> str:
        return f"{' '.join(self.tests)} ({self.marks})"


ABOVE_CORE: Final = ("tests/model", "tests/server/net", "tests/server/admin", "tests/cluster/test_cluster.py")
ABOVE_STORAGE: Final = ("tests/server/cli", "tests/server/test_app.py", "tests/testing/test_data_dir.py")
PARTS: Final = (
    Part(
        "core",
        ("server/core/*.py", "server/core/ops/*.py"),
        40,
        (("tests/server/core",), ABOVE_CORE, ("tests/client", "tests/fuzz")),
    ),
    Part("storage", ("server/storage/*.py",), 20, (("tests/server/storage",), ABOVE_STORAGE)),
    Part(
        "session",
        ("client/aio/*.py", "client/wire/*.py", "client/*.py"),
        20,
        (("tests/client",), ("tests/recipes", "tests/fuzz")),
    ),
    Part("recipes", ("client/recipes/*.py",), 20, (("tests/recipes",), ("tests/client",))),
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
        broken = trial.measure({stage for part, _ in chosen for stage in stages(part)})
        if broken:
            print(f"these tests fail without a defect: {', '.join(map(str, broken))}")
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


def stages(part: Part) -> list[Stage]:
    """Return what is run for each defect of a part, the quick tests first."""
    return [*(Stage(tests, QUICK) for tests in part.tests), *(Stage(tests, SLOW) for tests in part.tests[:2])]


def nearest(mutant: Mutant, part: Part) -> list[Stage]:
    """Return the test files that are named after the module of a defect, as they are the likeliest to find it."""
    stem = Path(mutant.file).stem.lstrip("_")
    files = {file for folder in part.tests[0] for file in (ROOT / folder).glob(f"test_{stem}*.py")}
    return [Stage(tuple(sorted(str(file.relative_to(ROOT)) for file in files)), QUICK)] if files else []


class Trial:
    """Copies of the project in which defects are planted.

    Args:
        folder: Where the copies are made.
        jobs: How many defects are tried at a time, each in a copy of its own.
    """

    def __init__(self, folder: Path, jobs: int) -> None:
        self._at_once = jobs
        self._seconds: dict[Stage, float] = {}  # that the tests take without a defect
        self._times = itertools.count(int(time.time()))  # of files: each another, or bytecode would be taken for fresh
        self._copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            self._copies.put(_copy(folder / str(number)))

    def measure(self, wanted: set[Stage]) -> list[Stage]:
        """Run tests without a defect, and return those that fail."""
        with ThreadPoolExecutor(self._at_once) as pool:
            return [stage for stage in pool.map(self._measure_one, wanted) if stage is not None]

    def _measure_one(self, stage: Stage) -> Stage | None:
        folder = self._copies.get()
        began = time.monotonic()
        try:
            failed = fails(folder, stage, 1200)
        finally:
            self._copies.put(folder)
        self._seconds[stage] = seconds = time.monotonic() - began
        print(f"{seconds:4.0f} s without a defect: {stage}", flush=True)
        return stage if failed else None

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
            return any(
                fails(folder, stage, TIMES_AS_LONG * (self._seconds.get(stage, 10) + 10))
                for stage in [*nearest(mutant, part), *stages(part)]
            )
        finally:
            self._write(file, before)
            self._copies.put(folder)

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


def fails(folder: Path, stage: Stage, seconds: float) -> bool:
    """Return whether one of some tests fails, or whether they do not end in time."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    process = subprocess.Popen(
        [*command, "-m", stage.marks, *stage.tests],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{folder / '.typing'}:{folder / 'tests'}", "ZOOLET_NO_APACHE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(seconds) not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    except subprocess.TimeoutExpired:
        return True
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
