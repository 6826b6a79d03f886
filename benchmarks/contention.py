"""Many processes contend for one kazoo Lock: how fast it goes round, and whether it ever has two holders.

    python benchmarks/contention.py --hosts 127.0.0.1:2181 --processes 8 --rounds 200
    python benchmarks/contention.py --hosts 127.0.0.1:2181 --processes 8 --rounds 200 --kill-every 3 --session-timeout 2

Every worker is a process with a session of its own. In each round it takes the lock, finds the node ``/holder`` empty,
writes its name there, reads ``/counter`` and writes it back plus one, both without a version, finds ``/holder`` still
its own, empties it, and releases the lock. Only the lock keeps two of them apart, so two holders at once show in three
ways: as a foreign name in ``/holder`` (a *violation*), as a number written twice, or as a count that is too low.

With ``--kill-every`` the parent stops a current holder (SIGSTOP), makes sure that it is still the holder, writes its
name down under ``/dead``, and only then sends SIGKILL: so it always dies inside the critical section, and who comes
next may find its name in ``/holder`` without being a violation. A new worker takes over the rounds that the dead one
had not begun.

What must hold. Each worker keeps a journal in a file, which outlives it: ``begun`` once it has the lock, ``done N``
when the server has acknowledged the count N. The only update that may be missing or unacknowledged is the one a killed
worker had in flight: it has begun, and nobody knows more. Hence

- no number is acknowledged twice, and none is above the final count (an acknowledged update is never lost);
- of the numbers up to the count, at most one a kill is acknowledged to nobody (it was applied, the answer came too
late); - the count is at most processes times rounds, and without kills exactly that; - there are no violations, and no
worker fails; - after a kill the next holder is in within the session timeout plus one tick. (ZooKeeper rounds a
session's end up to a
  whole tick.) ``ALLOWANCE_S`` on top is for the clients: one watch event and five round trips until the parent sees it.

Prints one line of JSON; the exit code is 0 if all of that holds. ``--session-timeout`` and ``--tick`` are seconds and
must be what the server really grants and has: a timeout below its minSessionTimeout would be raised behind our back.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from kazoo.client import KazooClient

ALLOWANCE_S: Final = 0.25
DEADLINE_S: Final = 600.0  # the whole run; only ever reached on failure

# --- a worker ---


def work(hosts: str, name: str, rounds: int, journal: Path, session_timeout: float) -> None:
    """Take the lock *rounds* times and count; runs in a process of its own.

    Args:
        hosts: Where the server is; ends with the chroot of this run.
        name: Who this is; unique in this run.
        rounds: How often to increment.
        journal: The file that tells the parent what was done.
        session_timeout: Seconds.
    """
    client = KazooClient(hosts, timeout=session_timeout)
    client.start()
    client.create(f"/ready/{name}", ephemeral=True)
    client.Barrier("/gate").wait()
    lock = client.Lock("/lock", name)
    with journal.open("ab", buffering=0) as log:
        for _ in range(rounds):
            with lock:
                increment(client, f"{name} {os.getpid()}".encode(), log.write)
    client.stop()
    client.close()


def increment(client: KazooClient, me: bytes, log: Callable[[bytes], object]) -> None:
    """Count one up, within the lock, and look whether somebody else is within it too."""
    holder, _ = client.get("/holder")
    if holder and not client.exists(f"/dead/{name_of(holder)}"):
        log(b"violation: entered while it was held by %b\n" % holder)
    client.set("/holder", me)
    log(b"begun\n")

    count = int(client.get("/counter")[0]) + 1
    client.set("/counter", b"%d" % count)
    log(b"done %d\n" % count)

    holder, _ = client.get("/holder")
    if holder != me:
        log(b"violation: held, and so it was by %b\n" % holder)
    client.set("/holder", b"")


def name_of(holder: bytes) -> str:
    """Return the worker's name of what ``/holder`` says: name, space, pid."""
    return holder.decode().split()[0]


# --- the parent ---


@dataclass(slots=True)
class Result:
    """What a run came to.

    Attributes:
        count: What the counter says at the end.
        expected: Processes times rounds.
        acknowledged: How many increments the server has confirmed.
        seconds: From the opening of the gate to the end of the last worker.
        kills: How many holders were killed.
        worst_handover_s: The longest from a kill to the next holder; None if nobody was killed.
        limit_s: What no handover may exceed: session timeout, tick, and ``ALLOWANCE_S``.
        violations: How often two holders were seen.
        broken: Which of the rules in this module's docstring do not hold, in words.
    """

    processes: int
    rounds: int
    count: int = 0
    expected: int = 0
    acknowledged: int = 0
    seconds: float = 0.0
    kills: int = 0
    worst_handover_s: float | None = None
    limit_s: float = 0.0
    violations: int = 0
    broken: list[str] = field(default_factory=list)


class Worker:
    """A worker as its parent sees it: a process and a journal.

    Args:
        hosts: Where the server is; ends with the chroot of this run.
        name: Who it is; unique in this run.
        rounds: How often it is to increment.
        folder: Where its journal goes.
        session_timeout: Seconds.
    """

    def __init__(self, hosts: str, name: str, rounds: int, folder: Path, session_timeout: float) -> None:
        self.name = name
        self.rounds = rounds
        self.journal = folder / name
        self.killed_at: float | None = None
        self.journal.touch()
        options = ["--hosts", hosts, "--worker", name, "--rounds", str(rounds), "--journal", str(self.journal)]
        self.process = subprocess.Popen([sys.executable, __file__, *options, "--session-timeout", str(session_timeout)])

    @property
    def running(self) -> bool:
        """Whether the process has not ended yet."""
        return self.process.poll() is None

    @property
    def lines(self) -> list[str]:
        """The journal so far."""
        return self.journal.read_text().splitlines()

    @property
    def left(self) -> int:
        """How many rounds it has not begun."""
        return self.rounds - self.lines.count("begun")

    def freeze(self) -> None:
        """Stop the process where it is; returns when all its threads stand still, or it has ended."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def kill(self) -> None:
        """End the process, now."""
        self.killed_at = time.monotonic()
        self.process.kill()
        self.process.wait()


class Crew:
    """All workers of a run, the dead included.

    Args:
        hosts: Where the server is.
        base: The chroot of this run.
        folder: Where the journals go.
        session_timeout: Seconds; of the workers.
    """

    def __init__(self, hosts: str, base: str, folder: Path, session_timeout: float) -> None:
        self.hosts = hosts + base
        self.folder = folder
        self.session_timeout = session_timeout
        self.workers: dict[str, Worker] = {}
        self.client = KazooClient(self.hosts)
        self.deadline = time.monotonic() + DEADLINE_S

    @property
    def running(self) -> bool:
        """Whether any worker has not ended yet.

        Raises:
            TimeoutError: The run has lasted ``DEADLINE_S``.
        """
        if time.monotonic() > self.deadline:
            raise TimeoutError(f"{DEADLINE_S} s have passed: expected the workers to end, found some that run")
        return any(worker.running for worker in self.workers.values())

    def hire(self, rounds: int) -> None:
        """Start one more worker."""
        name = f"worker-{len(self.workers)}"
        self.workers[name] = Worker(self.hosts, name, rounds, self.folder, self.session_timeout)

    def open_gate(self) -> None:
        """Start the workers once every one of them is connected."""
        while self.running and len(self.client.get_children("/ready")) < len(self.workers):
            time.sleep(0.01)
        self.client.delete("/gate")

    def wait(self, seconds: float) -> None:
        """Return after some time, or as soon as no worker runs."""
        end = time.monotonic() + seconds
        while self.running and time.monotonic() < end:
            time.sleep(0.01)

    def kill_holder(self) -> Worker | None:
        """Kill the worker that holds the lock; None if all workers have ended."""
        while self.running:
            holder, _ = self.client.get("/holder")
            worker = self.workers[name_of(holder)] if holder else None
            if worker is None or not worker.running:
                continue
            worker.freeze()
            if worker.running and self.client.get("/holder")[0] == holder:
                self.client.create(f"/dead/{worker.name}")
                worker.kill()
                return worker
            worker.process.send_signal(signal.SIGCONT)
        return None

    def time_handover(self, victim: Worker) -> float | None:
        """Return how many seconds after the kill somebody else is in; None if all workers end first."""
        changed = threading.Event()

        def wake(_: object) -> None:
            changed.set()

        while self.running:
            changed.clear()
            holder, _ = self.client.get("/holder", watch=wake)
            if victim.killed_at is not None and holder and name_of(holder) != victim.name:
                return time.monotonic() - victim.killed_at
            changed.wait(0.1)  # the timeout is for the end of the last worker, which no watch tells
        return None

    def kill_some(self, every: float, most: int | None, result: Result) -> None:
        """Kill a holder, measure the handover, hire a new worker; and again, till *most* or till the work is done."""
        while most is None or result.kills < most:
            self.wait(every)
            victim = self.kill_holder()
            if victim is None:
                return
            result.kills += 1
            if victim.left:
                self.hire(victim.left)
            handover = self.time_handover(victim)
            if handover is not None:
                result.worst_handover_s = max(handover, result.worst_handover_s or 0.0)

    def dismiss(self) -> None:
        """End what still runs."""
        for worker in self.workers.values():
            if worker.running:
                worker.kill()


def contend(
    hosts: str,
    *,
    processes: int,
    rounds: int,
    kill_every: float | None = None,
    kills: int | None = None,
    session_timeout: float = 4.0,
    tick: float = 2.0,
) -> Result:
    """Run contending workers, and return the result.

    Args:
        hosts: Where the server is.
        processes: How many workers contend at a time.
        rounds: How often each is to increment.
        kill_every: Seconds from a handover to the next kill; None kills nobody.
        kills: How many to kill at most; None has no limit.
        session_timeout: Seconds; of the workers.
        tick: Seconds; the server's tickTime.

    Raises:
        TimeoutError: It lasted ``DEADLINE_S``.
    """
    result = Result(
        processes, rounds, expected=processes * rounds, limit_s=round(session_timeout + tick + ALLOWANCE_S, 3)
    )
    base = f"/contention-{uuid.uuid4().hex}"
    keeper = KazooClient(hosts)
    keeper.start()
    for path, data in (("lock", b""), ("holder", b""), ("counter", b"0"), ("dead", b""), ("ready", b""), ("gate", b"")):
        keeper.create(f"{base}/{path}", data, makepath=True)
    with tempfile.TemporaryDirectory() as folder:
        crew = Crew(hosts, base, Path(folder), session_timeout)
        crew.client.start()
        try:
            for _ in range(processes):
                crew.hire(rounds)
            crew.open_gate()
            start = time.monotonic()
            if kill_every is not None:
                crew.kill_some(kill_every, kills, result)
            crew.wait(DEADLINE_S)
            result.seconds = round(time.monotonic() - start, 3)
            result.count = int(crew.client.get("/counter")[0])
        finally:
            crew.dismiss()
            crew.client.stop()
            crew.client.close()
            keeper.delete(base, recursive=True)
            keeper.stop()
            keeper.close()
        judge(result, list(crew.workers.values()))
    return result


def judge(result: Result, workers: list[Worker]) -> None:
    """Hold the journals against the count; what does not fit is put into ``result.broken``."""
    lines = [line for worker in workers for line in worker.lines]
    numbers = [int(line.removeprefix("done ")) for line in lines if line.startswith("done ")]
    distinct = set(numbers)
    violations = [line for line in lines if line.startswith("violation")]
    failed = [worker.name for worker in workers if worker.process.returncode != 0 and worker.killed_at is None]
    result.acknowledged = len(numbers)
    result.violations = len(violations)

    rules = {
        "a number was acknowledged twice": len(distinct) == len(numbers),
        "an acknowledged number is above the count": max(distinct, default=0) <= result.count,
        "more than one number a kill is acknowledged to nobody": result.count - len(distinct) <= result.kills,
        "the count is above processes times rounds": result.count <= result.expected,
        "the count is too low although nobody was killed": result.kills > 0 or result.count == result.expected,
        f"workers failed: {failed}": not failed,
        f"two holders: {violations[:3]}": not violations,
        "a handover took too long": (result.worst_handover_s or 0.0) <= result.limit_s,
    }
    result.broken = [text for text, holds in rules.items() if not holds]
    if result.worst_handover_s is not None:
        result.worst_handover_s = round(result.worst_handover_s, 3)


def main() -> int:
    """Run from the command line; the exit code says whether all rules hold."""
    parser = argparse.ArgumentParser(description="Contend for one kazoo Lock from many processes.")
    parser.add_argument("--hosts", required=True, help="where the server is, host:port")
    parser.add_argument("--processes", type=int, default=8, help="how many workers (default 8)")
    parser.add_argument("--rounds", type=int, default=200, help="how often each takes the lock (default 200)")
    parser.add_argument("--kill-every", type=float, metavar="SECONDS", help="kill a holder this often")
    parser.add_argument("--kills", type=int, help="how many to kill at most (default: till the work is done)")
    parser.add_argument("--session-timeout", type=float, default=4.0, help="of the workers, in seconds (default 4)")
    parser.add_argument("--tick", type=float, default=2.0, help="the server's tickTime, in seconds (default 2)")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--journal", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(given.hosts, given.worker, given.rounds, given.journal, given.session_timeout)
        return 0
    result = contend(
        given.hosts,
        processes=given.processes,
        rounds=given.rounds,
        kill_every=given.kill_every,
        kills=given.kills,
        session_timeout=given.session_timeout,
        tick=given.tick,
    )
    print(json.dumps(asdict(result)))
    return 1 if result.broken else 0


if __name__ == "__main__":
    sys.exit(main())
