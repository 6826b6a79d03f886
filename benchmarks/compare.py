"""A comparison of the CPU cost of operations in the checkout and in a different commit, measured alternately.

    make bench-compare REV=HEAD~1             all rows, seven rounds; about ten minutes
    python benchmarks/compare.py REV --only get,lock --rounds 5

There are three kinds of rows: requests in process (no socket), a daemon under load (the daemon's CPU, from /proc), and
clients (the client's CPU). Each round measures a row on both revisions, one right after the other, because the speed of
the machine may change. A row is slower or faster if the median of the ratios differs from 1 by more than 3 %, and
nearly all of five or more rounds agree. The exit code is 1 if any row is slower. A row that the other commit cannot run
is marked as missing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import load

HERE: Final = Path(__file__).parent
THRESHOLD: Final = 0.03
"""Minimum difference of the median ratio from 1 for a verdict."""
MIN_ROUNDS: Final = 5
"""Minimum number of rounds for a verdict."""
AGREEING_SHARE: Final = 0.8
"""Share of the rounds that must agree."""
MAX_REQUESTS: Final = 40_000
"""Maximum number of requests per round, for the rows of load.py."""
MIN_REQUESTS: Final = 15_000
"""Minimum number of requests per round, well above the clock's resolution. Sessions and fan-outs cost enough anyway."""


class Verdict(NamedTuple):
    """The result of the comparison of a row.

    Args:
        word: ``slower``, ``faster`` or ``equal``.
        ratio: Median ratio of the checkout's cost to the other commit's cost.
        low: Lowest ratio.
        high: Highest ratio.
    """

    word: str
    ratio: float
    low: float
    high: float


def verdict(here: list[float], there: list[float]) -> Verdict:
    """Compare the costs of a row in the checkout and in the other commit, measured in pairs."""
    ratios = [one / other for one, other in zip(here, there, strict=True)]
    middle = statistics.median(ratios)
    word = "equal"
    if len(ratios) < MIN_ROUNDS:
        return Verdict(word, middle, min(ratios), max(ratios))
    if middle > 1 + THRESHOLD and sum(ratio > 1 for ratio in ratios) >= AGREEING_SHARE * len(ratios):
        word = "slower"
    elif middle < 1 - THRESHOLD and sum(ratio < 1 for ratio in ratios) >= AGREEING_SHARE * len(ratios):
        word = "faster"
    return Verdict(word, middle, min(ratios), max(ratios))


# --- measurements: nanoseconds of CPU per operation ---


def measure_in_process(row: str) -> float:
    """Measure a request without a socket."""
    import inproc

    return inproc.measure(row, runs=1)


IN_FLIGHT: Final = 1_000
"""Number of calls in flight in the pipelined row."""
Operation = Callable[[], Any]
Measure = Callable[..., Any]
"""A function like :func:`measure_cpu_ns`, which runs an operation repeatedly, and returns the result of the row."""


async def measure_gets(hosts: str, measure: Measure) -> Any:
    """Measure gets of the asyncio client, one after another."""
    from zoolet.client import Client

    async with Client(hosts) as zk:
        return await measure(3_000, lambda: zk.get("/"))


async def measure_pipelined_gets(hosts: str, measure: Measure) -> Any:
    """Measure gets of the asyncio client, with 1,000 in flight."""
    from zoolet.client import Client

    async with Client(hosts) as zk:
        return await measure(20, lambda: asyncio.gather(*[zk.get("/") for _ in range(IN_FLIGHT)]), IN_FLIGHT)


async def measure_creates(hosts: str, measure: Measure) -> Any:
    """Measure creates of sequential ephemeral nodes with the asyncio client, one at a time."""
    from zoolet.client import Client

    async with Client(hosts) as zk:
        return await measure(2_000, lambda: zk.create("/c-", b"x" * 100, ephemeral=True, sequential=True))


async def measure_locks(hosts: str, measure: Measure) -> Any:
    """Measure acquiring and releasing a lock without contention."""
    from zoolet.client import Client

    async with Client(hosts) as zk:
        lock = zk.lock("/lock")

        async def once() -> None:
            async with lock:
                pass

        return await measure(600, once)


async def measure_embedded_server(hosts: str, measure: Measure) -> Any:
    """Measure sets of a client and its server in the same process, including the cost of the server."""
    from zoolet.client import Client
    from zoolet.testing import Server

    async with Server() as server, Client(server.hosts) as zk:
        return await measure(2_000, lambda: zk.set("/", b"x" * 100))


async def measure_blocking_gets(hosts: str, measure: Measure) -> Any:
    """Measure gets of the blocking client, 20 per operation."""
    from zoolet.client.blocking import Client

    with Client(hosts) as zk:

        async def some() -> None:
            for _ in range(20):
                zk.get("/")

        return await measure(100, some, 20)


async def measure_cpu_ns(count: int, do: Operation, parts: int = 1) -> float:
    """Run an operation *count* times after a warm-up, and return the nanoseconds of CPU per part of an operation."""
    for _ in range(max(1, count // 10)):
        await do()
    started = time.process_time_ns()
    for _ in range(count):
        await do()
    return (time.process_time_ns() - started) / count / parts


IN_PROCESS: Final = ("ping", "get", "exists", "children", "set", "create", "seq", "delete", "multi")
CLIENTS: Final[dict[str, Callable[[str, Measure], Coroutine[Any, Any, Any]]]] = {
    "client get": measure_gets,
    "client get, 1,000 in flight": measure_pipelined_gets,
    "client create": measure_creates,
    "client lock": measure_locks,
    "client and embedded server set": measure_embedded_server,
    "client for threads get": measure_blocking_gets,
}


def one(row: str, hosts: str) -> float:
    """Measure a row in this process."""
    if row in CLIENTS:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return float(runner.run(CLIENTS[row](hosts, measure_cpu_ns)))
    return measure_in_process(row.removeprefix("in process "))


# --- both revisions ---


class Revision:
    """A revision to measure, with its own daemon.

    Args:
        folder: Folder that contains the revision's package, ``zoolet``.
        stack: Exit stack that stops the daemon.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._environment = {**os.environ, "PYTHONPATH": str(folder)}
        self.daemon = stack.enter_context(load.zoolet(environment=self._environment))

    def one(self, row: str, hosts: str) -> float | None:
        """Measure a row in a separate process. Return None if this revision cannot run it."""
        command = [sys.executable, __file__, "--one", row, hosts]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"{row}: {done.stderr.strip().rpartition(chr(10))[2]}", file=sys.stderr)
            return None
        return float(done.stdout)

    def measure_under_load(self, generator: list[str], row: load.Row) -> float:
        """Measure the daemon's CPU per operation under a load."""
        total = row.total if row.op in ("fanout", "connect") else min(max(row.total, MIN_REQUESTS), MAX_REQUESTS)
        before = self.daemon.cpu_ns()
        load.run(generator, self.daemon, row, total)
        return (self.daemon.cpu_ns() - before) / total


def extract_commit(commit: str, folder: Path) -> Path:
    """Extract the files of a commit, as an importable package in *folder*. Return the folder."""
    package = folder / "zoolet"
    package.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit], cwd=HERE.parent, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(package)], input=archive, check=True)
    # Early commits lack these files, and the installed package would be measured instead.
    (package / "__init__.py").touch()
    if not (package / "__main__.py").exists():
        (package / "__main__.py").write_text("from runpy import run_module\nrun_module('zoolet.server')\n")
    return folder


def link_checkout(folder: Path) -> Path:
    """Link the checkout, as an importable package in *folder*. Return the folder."""
    folder.mkdir()
    (folder / "zoolet").symlink_to(HERE.parent)
    return folder


def measures(generator: list[str], hosts: str) -> dict[str, Callable[[Revision], float | None]]:
    """Return the function that measures a row, by the name of the row."""
    found: dict[str, Callable[[Revision], float | None]] = {}
    for row in [*(f"in process {name}" for name in IN_PROCESS), *CLIENTS]:
        found[row] = lambda revision, row=row: revision.one(row, hosts)  # type: ignore[misc]
    for line in load.ROWS:
        found[f"daemon {line.name}"] = lambda revision, line=line: revision.measure_under_load(generator, line)  # type: ignore[misc]
    return found


def compare(commit: str, rounds: int, only: list[str]) -> bool:
    """Measure and print each row. Return whether any row is slower in the checkout."""
    generator = load.generator()
    slower = False
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zoolet-compare-")))
        here = Revision(link_checkout(folder / "here"), stack)
        there = Revision(extract_commit(commit, folder / "there"), stack)
        rows = measures(generator, f"127.0.0.1:{here.daemon.port}")
        print(f"{'CPU for an operation':42} {'checkout':>12} {commit[:12]:>12}   ratio (lowest to highest)")
        for name, measure in rows.items():
            if only and not any(word in name for word in only):
                continue
            pairs = []
            for number in range(rounds):
                turns = (here, there) if number % 2 else (there, here)
                spent = {revision: measure(revision) for revision in turns}
                if None in spent.values():
                    break
                pairs.append((spent[here] or 0.0, spent[there] or 0.0))
            if len(pairs) < rounds:
                print(f"{name:42} cannot be run on both", flush=True)
                continue
            ours, theirs = ([pair[side] for pair in pairs] for side in (0, 1))
            found = verdict(ours, theirs)
            slower = slower or found.word == "slower"
            costs = f"{statistics.median(ours) / 1000:9.2f} us {statistics.median(theirs) / 1000:9.2f} us"
            shown = f"{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f})"
            print(f"{name:42} {costs}   {shown} {'' if found.word == 'equal' else found.word}", flush=True)
    return slower


def main() -> int:
    """Compare the revisions, or measure one row for the comparison. Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", default="HEAD", help="the other commit (default HEAD)")
    parser.add_argument("--rounds", type=int, default=7, help="turns for each row (default 7)")
    parser.add_argument("--only", default="", help="rows that contain one of these words, comma between")
    parser.add_argument("--one", nargs=2, metavar=("ROW", "HOSTS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(one(*options.one))
        return 0
    print(load.machine())
    return int(compare(options.commit, options.rounds, [word for word in options.only.split(",") if word]))


if __name__ == "__main__":
    sys.exit(main())
