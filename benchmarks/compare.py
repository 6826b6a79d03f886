"""Two revisions in turns: the CPU that one operation costs in the checkout, beside that of another commit.

    make bench-compare REV=HEAD~1             all rows, seven rounds; about ten minutes
    python benchmarks/compare.py REV --only get,lock --rounds 5

Three kinds of rows: requests in process (no socket), a daemon under load (its CPU, from /proc), and clients (theirs).
Each round measures a row on both, one right after the other, so that a machine that gets slower does so for both. A
row is slower or faster if the median of the ratios says so by more than 3 % and nearly all of five or more rounds
agree; the exit code is 1 if any row is slower. A row that the other commit cannot run is said to be missing there.
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
"""How far the median ratio must be from 1 for a verdict."""
MIN_ROUNDS: Final = 5
"""The fewest rounds that give a verdict."""
SHARE: Final = 0.8
"""The part of the rounds that must agree."""
REQUESTS: Final = 40_000
"""The most requests that one round makes of a row in load.py."""
LEAST_REQUESTS: Final = 15_000
"""The fewest, so that the CPU is far above the clock's resolution; sessions and fan-outs cost enough."""


class Verdict(NamedTuple):
    """The comparison of a row.

    Args:
        word: ``slower``, ``faster`` or ``equal``.
        ratio: The median ratio, checkout to other commit.
        low: The lowest ratio.
        high: The highest ratio.
    """

    word: str
    ratio: float
    low: float
    high: float


def verdict(here: list[float], there: list[float]) -> Verdict:
    """Compare the costs of a row, measured in pairs."""
    ratios = [one / other for one, other in zip(here, there, strict=True)]
    middle = statistics.median(ratios)
    word = "equal"
    if len(ratios) < MIN_ROUNDS:
        return Verdict(word, middle, min(ratios), max(ratios))
    if middle > 1 + THRESHOLD and sum(ratio > 1 for ratio in ratios) >= SHARE * len(ratios):
        word = "slower"
    elif middle < 1 - THRESHOLD and sum(ratio < 1 for ratio in ratios) >= SHARE * len(ratios):
        word = "faster"
    return Verdict(word, middle, min(ratios), max(ratios))


# --- what is measured: nanoseconds of CPU for an operation ---


def in_process(row: str) -> float:
    """Measure a request without a socket."""
    import inproc

    return inproc.measure(row, runs=1)


IN_FLIGHT: Final = 1_000
"""Calls that are in flight in the row that says so."""
Operation = Callable[[], Any]
Measure = Callable[..., Any]
"""Runs an operation that consists of some parts so many times, as :func:`cpu` does, and returns the row's result."""


async def gets(hosts: str, measure: Measure) -> Any:
    """Measure gets of the asyncio client, one after another."""
    from zoolet.client import Client

    async with Client(hosts) as zk:
        return await measure(3_000, lambda: zk.get("/"))


async def pipelined(hosts: str, measure: Measure) -> Any:
    """Measure 1,000 gets of the asyncio client, all in flight."""
    from zoolet.client import Client

    async with Client(hosts) as zk:
        return await measure(20, lambda: asyncio.gather(*[zk.get("/") for _ in range(IN_FLIGHT)]), IN_FLIGHT)


async def creates(hosts: str, measure: Measure) -> Any:
    """Measure sequential creates of the asyncio client, one after another."""
    from zoolet.client import Client

    async with Client(hosts) as zk:
        return await measure(2_000, lambda: zk.create("/c-", b"x" * 100, ephemeral=True, sequential=True))


async def locks(hosts: str, measure: Measure) -> Any:
    """Measure acquiring and releasing a lock that nobody else wants."""
    from zoolet.client import Client

    async with Client(hosts) as zk:
        lock = zk.lock("/lock")

        async def once() -> None:
            async with lock:
                pass

        return await measure(600, once)


async def embedded(hosts: str, measure: Measure) -> Any:
    """Measure sets on a server in the same process, its part included."""
    from zoolet.client import Client
    from zoolet.server import Server

    async with Server() as server, Client(server.hosts) as zk:
        return await measure(2_000, lambda: zk.set("/", b"x" * 100))


async def blocking(hosts: str, measure: Measure) -> Any:
    """Measure gets of the client for threads, 20 at a time."""
    from zoolet.client.blocking import Client

    with Client(hosts) as zk:

        async def some() -> None:
            for _ in range(20):
                zk.get("/")

        return await measure(100, some, 20)


async def cpu(count: int, do: Operation, parts: int = 1) -> float:
    """Return the nanoseconds of CPU of a part of one of many operations, after some to warm up."""
    for _ in range(max(1, count // 10)):
        await do()
    started = time.process_time_ns()
    for _ in range(count):
        await do()
    return (time.process_time_ns() - started) / count / parts


IN_PROCESS: Final = ("ping", "get", "exists", "children", "set", "create", "seq", "delete", "multi")
CLIENTS: Final[dict[str, Callable[[str, Measure], Coroutine[Any, Any, Any]]]] = {
    "client get": gets,
    "client get, 1,000 in flight": pipelined,
    "client create": creates,
    "client lock": locks,
    "client and embedded server set": embedded,
    "client for threads get": blocking,
}


def one(row: str, hosts: str) -> float:
    """Measure a row in this process."""
    if row in CLIENTS:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return float(runner.run(CLIENTS[row](hosts, cpu)))
    return in_process(row.removeprefix("in process "))


# --- both revisions ---


class Revision:
    """One of the two, with a daemon of its own.

    Args:
        folder: The folder that has its package, ``zoolet``.
        stack: What ends its daemon.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._environment = {**os.environ, "PYTHONPATH": str(folder)}
        self.daemon = stack.enter_context(load.zoolet(environment=self._environment))

    def one(self, row: str, hosts: str) -> float | None:
        """Measure a row in a process of its own; None if this revision cannot run it."""
        command = [sys.executable, __file__, "--one", row, hosts]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"{row}: {done.stderr.strip().rpartition(chr(10))[2]}", file=sys.stderr)
            return None
        return float(done.stdout)

    def under_load(self, generator: list[str], row: load.Row) -> float:
        """Measure the daemon's CPU for an operation of a load."""
        total = row.total if row.op in ("fanout", "connect") else min(max(row.total, LEAST_REQUESTS), REQUESTS)
        before = self.daemon.cpu_ns()
        load.run(generator, self.daemon, row, total)
        return (self.daemon.cpu_ns() - before) / total


def checked_out(commit: str, folder: Path) -> Path:
    """Write a commit's files where they can be imported; return the folder."""
    package = folder / "zoolet"
    package.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit], cwd=HERE.parent, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(package)], input=archive, check=True)
    return folder


def linked(folder: Path) -> Path:
    """Link the checkout where it can be imported; return the folder."""
    folder.mkdir()
    (folder / "zoolet").symlink_to(HERE.parent)
    return folder


def measures(generator: list[str], hosts: str) -> dict[str, Callable[[Revision], float | None]]:
    """Return what measures each row."""
    found: dict[str, Callable[[Revision], float | None]] = {}
    for row in [*(f"in process {name}" for name in IN_PROCESS), *CLIENTS]:
        found[row] = lambda revision, row=row: revision.one(row, hosts)  # type: ignore[misc]
    for line in load.ROWS:
        found[f"daemon {line.name}"] = lambda revision, line=line: revision.under_load(generator, line)  # type: ignore[misc]
    return found


def compare(commit: str, rounds: int, only: list[str]) -> bool:
    """Measure and print each row; return whether any is slower."""
    generator = load.generator()
    slower = False
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zoolet-compare-")))
        here = Revision(linked(folder / "here"), stack)
        there = Revision(checked_out(commit, folder / "there"), stack)
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
    """Compare, or measure one row."""
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
