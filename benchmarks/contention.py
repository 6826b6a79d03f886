"""Contention of many processes for one kazoo Lock: how fast it changes hands, and whether it ever has two holders.

    python benchmarks/contention.py --hosts 127.0.0.1:2181 --processes 8 --rounds 200
    python benchmarks/contention.py --hosts 127.0.0.1:2181 --processes 8 --rounds 200 --kill-every 3 --session-timeout 2

Every worker is a process with its own session. In each round it takes the lock, finds the node ``/holder`` empty,
writes its name there, reads ``/counter`` and writes it back plus one, both without a version, finds its name still in
``/holder``, empties it, and releases the lock. Only the lock keeps the workers apart, so two simultaneous holders show
in three ways: as a different name in ``/holder`` (a *violation*), as a number written twice, or as too low a count.

With ``--kill-every`` the parent stops a current holder (SIGSTOP), makes sure that it is still the holder, records its
name under ``/dead``, and only then sends SIGKILL. So a worker always dies inside the critical section, and it is not a
violation if the next holder finds its name in ``/holder``. A new worker takes over the remaining rounds.

Each worker keeps a journal in a file, which outlives it. It writes ``begun`` once it has the lock, and ``done N`` when
the server has acknowledged the count N. If a worker is killed after ``begun``, it is unknown whether its update was
applied. Only such an update may be missing or unacknowledged. Therefore these rules must hold:

- No number is acknowledged twice, and none is above the final count: an acknowledged update is never lost.
- At most one number per kill, up to the count, is not acknowledged: its update was applied, but the reply was too late.
- The count is at most processes times rounds, and without kills exactly that.
- There are no violations, and no worker fails.
- After a kill the next holder takes the lock within the session timeout plus one tick, because ZooKeeper rounds the
  expiry of a session up to a whole tick. ``ALLOWANCE_S`` is added for the clients: one watch event and five round trips
  until the parent sees the new holder.

Prints one line of JSON. The exit code is 0 if all rules hold. ``--session-timeout`` and ``--tick`` are seconds and must
match the server's settings: the server would silently raise a timeout below its minSessionTimeout.
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
DEADLINE_S: Final = 600.0  # maximum time of a run, which only a failing run reaches

# --- a worker ---


def work(hosts: str, name: str, rounds: int, journal: Path, session_timeout: float) -> None:
    """Run a worker, in a separate process: take the lock *rounds* times, and increment the counter each time.

    Args:
        hosts: Address of the server, with the chroot of this run.
        name: Name of the worker, unique in this run.
        rounds: Number of increments.
        journal: File for the journal of the worker.
        session_timeout: Session timeout in seconds.
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
    """Increment the counter while holding the lock, and check that no other worker holds it."""
    holder, _ = client.get("/holder")
    if holder and not client.exists(f"/dead/{holder_name(holder)}"):
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


def holder_name(holder: bytes) -> str:
    """Return the worker's name from the data of ``/holder``: name, space, pid."""
    return holder.decode().split()[0]


# --- the parent ---


@dataclass(slots=True)
class Result:
    """The result of a run.

    Attributes:
        count: Final value of the counter.
        expected: Processes times rounds.
        acknowledged: Number of increments that the server has acknowledged.
        seconds: Seconds from the opening of the gate to the exit of the last worker.
        kills: Number of killed holders.
        worst_handover_s: Maximum number of seconds from a kill to the next holder, or None if no holder was killed.
        limit_s: Maximum number of seconds of a handover: session timeout, tick, and ``ALLOWANCE_S``.
        violations: Number of times that two holders were seen.
        broken: Descriptions of the broken rules, which the docstring of this module lists.
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
    """The parent's view of a worker: a process and a journal.

    Args:
        hosts: Address of the server, with the chroot of this run.
        name: Name of the worker, unique in this run.
        rounds: Number of increments.
        folder: Folder for the journal.
        session_timeout: Session timeout in seconds.
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
        """Whether the process is running."""
        return self.process.poll() is None

    @property
    def lines(self) -> list[str]:
        """The lines that the journal contains so far."""
        return self.journal.read_text().splitlines()

    @property
    def left(self) -> int:
        """Number of rounds that the worker has not started."""
        return self.rounds - self.lines.count("begun")

    def freeze(self) -> None:
        """Pause the process. Wait until all its threads have stopped, or the process has exited."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def kill(self) -> None:
        """Kill the process immediately."""
        self.killed_at = time.monotonic()
        self.process.kill()
        self.process.wait()


class Crew:
    """All workers of a run, including the killed ones.

    Args:
        hosts: Address of the server.
        base: Chroot of this run.
        folder: Folder for the journals.
        session_timeout: Session timeout of the workers in seconds.
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
        """Whether any worker is running.

        Raises:
            TimeoutError: The run has lasted ``DEADLINE_S``.
        """
        if time.monotonic() > self.deadline:
            raise TimeoutError(f"{DEADLINE_S} s have passed: expected the workers to end, found some that run")
        return any(worker.running for worker in self.workers.values())

    def hire(self, rounds: int) -> None:
        """Start an additional worker for a number of rounds."""
        name = f"worker-{len(self.workers)}"
        self.workers[name] = Worker(self.hosts, name, rounds, self.folder, self.session_timeout)

    def open_gate(self) -> None:
        """Wait until all workers are connected, and allow them to start."""
        while self.running and len(self.client.get_children("/ready")) < len(self.workers):
            time.sleep(0.01)
        self.client.delete("/gate")

    def wait(self, seconds: float) -> None:
        """Wait for some seconds, or until no worker is running."""
        end = time.monotonic() + seconds
        while self.running and time.monotonic() < end:
            time.sleep(0.01)

    def kill_holder(self) -> Worker | None:
        """Kill the holder while it holds the lock, and return this worker, or None if all workers have exited."""
        while self.running:
            holder, _ = self.client.get("/holder")
            worker = self.workers[holder_name(holder)] if holder else None
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
        """Return the seconds from the kill to the next holder, or None if all workers exit first."""
        changed = threading.Event()

        def wake(_: object) -> None:
            changed.set()

        while self.running:
            changed.clear()
            holder, _ = self.client.get("/holder", watch=wake)
            if victim.killed_at is not None and holder and holder_name(holder) != victim.name:
                return time.monotonic() - victim.killed_at
            changed.wait(0.1)  # a timeout, because no watch fires when the last worker exits
        return None

    def kill_some(self, every: float, most: int | None, result: Result) -> None:
        """Kill a holder, hire a new worker and measure the handover, until the work is done, at most *most* times.

        Args:
            every: Seconds to wait before each kill.
            most: Maximum number of kills, or None for no limit.
            result: Result to add the kills and handovers to.
        """
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
        """Stop the workers that are still running."""
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
    """Run the workers until they exit, and return the result.

    Args:
        hosts: Address of the server.
        processes: Number of workers that contend at the same time.
        rounds: Number of increments per worker.
        kill_every: Seconds from a handover to the next kill, or None for no kills.
        kills: Maximum number of kills, or None for no limit.
        session_timeout: Session timeout of the workers in seconds.
        tick: The server's tickTime in seconds.

    Raises:
        TimeoutError: The run lasted ``DEADLINE_S``.
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
    """Compare the journals of the workers with the final count, and add the broken rules to ``result.broken``."""
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
    """Parse the command line, run the workers, and print the result. Return 0 if all rules hold."""
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
