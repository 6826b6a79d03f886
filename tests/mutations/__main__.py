"""Plant defects one by one, and run the tests of their part until one fails: ``make mutations``.

Each defect is planted in a copy of the project, so that the sources stay as they are. A part's own tests come first,
and then those of the parts above it, as far as ``make test`` has them. What no test finds is listed at the end.
"""

from __future__ import annotations

import argparse
import os
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

from mutations.mutants import Mutant, mutants_of

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ("__init__.py", "__main__.py", "event_loop.py", "pem.py", "progress.py", "testing.py", "usage.py",
                  "py.typed", "protocol", "server", "client")  # fmt: skip
TIMEOUT_S: Final = 240.0
"""Seconds that the tests of a part may take with a defect; then it counts as found, as they would never end."""
PASSED: Final = 0


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
    arguments = parser.parse_args()
    chosen = choose(arguments.count, Random(arguments.seed), arguments.part)
    print(f"{len(chosen)} defects of seed {arguments.seed}, {arguments.jobs} at a time; this takes about "
          f"{len(chosen) * 18 // arguments.jobs // 60} minutes", flush=True)  # fmt: skip
    copies: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="zoolet-mutations-") as folder:
        for number in range(arguments.jobs):
            copies.put(copy(Path(folder) / str(number)))
        broken = [" ".join(tests) for part in PARTS for tests in part.tests if fails(Path(folder) / "0", tests)]
        if broken:
            print(f"these tests fail without a defect: {', '.join(broken)}")
            return 2
        alive = try_all(chosen, copies, arguments.jobs)
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


def copy(folder: Path) -> Path:
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


def try_all(chosen: list[tuple[Part, Mutant]], copies: SimpleQueue[Path], jobs: int) -> list[Mutant]:
    """Try defects, as many at a time as there are copies; return those that no test finds."""
    alive: list[Mutant] = []
    began = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(is_found, part, mutant, copies): mutant for part, mutant in chosen}
        for number, done in enumerate(as_completed(running), 1):
            mutant = running[done]
            if not done.result():
                alive.append(mutant)
                print(f"not found: {mutant}", flush=True)
            if number % 10 == 0:
                minutes = (time.monotonic() - began) / 60
                print(f"{number} of {len(chosen)} tried, {len(alive)} not found, {minutes:.0f} minutes", flush=True)
    return alive


def is_found(part: Part, mutant: Mutant, copies: SimpleQueue[Path]) -> bool:
    """Plant a defect in a copy, and return whether a test fails."""
    folder = copies.get()
    file = folder / mutant.file
    before = file.read_text()
    try:
        file.write_text(mutant.source(folder))
        return any(fails(folder, tests) for tests in part.tests)
    finally:
        file.write_text(before)
        copies.put(folder)


def fails(folder: Path, tests: tuple[str, ...]) -> bool:
    """Return whether one of some tests fails, or does not end in time."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        *tests,
    ]
    environment = os.environ | {
        "PYTHONPATH": f"{folder / '.typing'}:{folder / 'tests'}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        return process.wait(TIMEOUT_S) != PASSED
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
