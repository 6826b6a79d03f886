"""Benchmarks of locks: zoolet's, kazoo's, textbook locks with the herd effect, and common alternatives.

    python benchmarks/locks.py [--rounds 3] [--publish]

The *uncontended* column is the median time of an acquire and a release, in microseconds. In the *crowded* column, 200
clients wait and pass on the lock; it shows the milliseconds per hand-over. Redis (``redis-server``, redis-py's asyncio
lock), memcached (``add``) and SQLite (a row with a version) run on this machine on free ports. Missing programs are
skipped with a message. These alternatives differ from a ZooKeeper lock: the last column of the table shows how each
holder learns of its loss.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clients import daemon, run_on_fastest_loop
from herd.children_lock import ChildrenLock
from herd.node_lock import NodeLock

HERE = Path(__file__).parent
OUT = HERE / "out"
LOCK_TURNS = 500
CROWD_CLIENTS = 200

LOSS_SIGNALS = {
    "zoolet Lock": "token, lost, transaction",
    "zoolet Lock, release awaited": "token, lost, transaction",
    "zoolet TryLock": "token, lost, transaction",
    "kazoo Lock": "no token; is_acquired stays true",
    "redis-py asyncio Lock": "no token; a timeout",
    "memcached add": "nothing; a timeout",
    "SQLite row with version": "version; no timeout",
    "herd: one node": "for comparison",
    "herd: all watch the list": "for comparison",
}


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(*command: str, port: int) -> Iterator[None]:
    """Run a server process for the block, after waiting until its port accepts connections."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            for _ in range(500):
                try:
                    socket.create_connection(("127.0.0.1", port), 0.1).close()
                    break
                except OSError:
                    time.sleep(0.01)
            yield
        finally:
            running.terminate()


# --- uncontended locks: seconds per turn ---


async def zoolet_lock(hosts: str) -> list[float]:
    """Measure zoolet's lock as a context manager, which does not wait for the reply to the release."""
    from zoolet.client import Client

    taken = []
    async with Client(hosts) as zk:
        for _ in range(LOCK_TURNS):
            started = time.perf_counter()
            async with zk.lock("/locks/zoolet"):
                pass
            taken.append(time.perf_counter() - started)
    return taken


async def zoolet_waiting(hosts: str) -> list[float]:
    """Measure zoolet's lock with ``release()``, which waits for the reply."""
    from zoolet.client import Client

    taken = []
    async with Client(hosts) as zk:
        lock = zk.lock("/locks/zoolet")
        for _ in range(LOCK_TURNS):
            started = time.perf_counter()
            held = await lock.acquire()
            await held.release()
            taken.append(time.perf_counter() - started)
    return taken


async def zoolet_trylock(hosts: str) -> list[float]:
    """Measure zoolet's unfair lock."""
    from zoolet.client import Client
    from zoolet.client.recipes import TryLock

    taken = []
    async with Client(hosts) as zk:
        lock = TryLock(zk, "/locks-try")
        for _ in range(LOCK_TURNS):
            started = time.perf_counter()
            async with lock:
                pass
            taken.append(time.perf_counter() - started)
    return taken


def kazoo_lock(hosts: str) -> list[float]:
    """Measure kazoo's lock."""
    from kazoo.client import KazooClient

    zk = KazooClient(hosts)
    zk.start()
    taken = []
    for _ in range(LOCK_TURNS):
        started = time.perf_counter()
        with zk.Lock("/locks/kazoo"):
            pass
        taken.append(time.perf_counter() - started)
    zk.stop()
    zk.close()
    return taken


async def redis_lock(hosts: str) -> list[float]:
    """Measure redis-py's lock on a new Redis server."""
    import redis.asyncio

    port = free_port()
    taken = []
    with process("redis-server", "--port", str(port), "--save", "", "--appendonly", "no", port=port):
        client = redis.asyncio.Redis(port=port)
        for _ in range(LOCK_TURNS):
            started = time.perf_counter()
            async with client.lock("lock", timeout=10):
                pass
            taken.append(time.perf_counter() - started)
        await client.aclose()
    return taken


async def memcached_add(hosts: str) -> list[float]:
    """Measure memcached's add and delete, over a plain connection."""
    port = free_port()
    taken = []
    with process("memcached", "-u", "nobody", "-l", "127.0.0.1", "-p", str(port), port=port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(LOCK_TURNS):
            started = time.perf_counter()
            writer.write(b"add lock 0 10 2\r\nme\r\n")
            assert await reader.readline() == b"STORED\r\n"
            writer.write(b"delete lock\r\n")
            assert await reader.readline() == b"DELETED\r\n"
            taken.append(time.perf_counter() - started)
        writer.close()
    return taken


def sqlite_row(hosts: str) -> list[float]:
    """Measure a lock that is a row of an SQLite database, acquired and released by compare-and-set."""
    taken = []
    with tempfile.TemporaryDirectory() as home:
        db = sqlite3.connect(f"{home}/locks.db", isolation_level=None)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE lock (name TEXT PRIMARY KEY, owner TEXT, version INTEGER)")
        db.execute("INSERT INTO lock VALUES ('lock', NULL, 0)")
        for turn in range(LOCK_TURNS):
            started = time.perf_counter()
            mine = "UPDATE lock SET owner='me', version=version+1 WHERE name='lock' AND owner IS NULL"
            assert db.execute(mine).rowcount == 1
            freed = db.execute("UPDATE lock SET owner=NULL WHERE name='lock' AND version=?", (turn + 1,))
            assert freed.rowcount == 1
            taken.append(time.perf_counter() - started)
        db.close()
    return taken


# --- crowded locks: seconds per hand-over ---


async def _measure_crowd(hosts: str, make: Callable[[Any], Any]) -> float:
    from zoolet.client import Client

    async with Client(hosts) as zk:
        await zk.ensure_path("/crowd")

        async def one() -> None:
            async with make(zk):
                pass

        gate = make(zk)
        await gate.__aenter__()
        tasks = [asyncio.create_task(one()) for _ in range(CROWD_CLIENTS)]
        await _wait_until_settled(zk)
        started = time.perf_counter()
        await gate.__aexit__(None, None, None)
        await asyncio.gather(*tasks)
        took = time.perf_counter() - started
        await zk.delete("/crowd", recursive=True)
        return took / CROWD_CLIENTS


async def _wait_until_settled(zk: Any) -> None:
    """Wait until all contenders have joined the queue, which shows in a constant zxid."""
    quiet, last = 0, -1
    while quiet < 5:
        await asyncio.sleep(0.02)
        now = zk.last_zxid
        quiet, last = (quiet + 1, now) if now == last else (0, now)


def zoolet_crowd(hosts: str) -> Coroutine[Any, Any, float]:
    """Measure hand-overs of zoolet's lock."""
    return _measure_crowd(hosts, lambda zk: zk.lock("/crowd"))


def node_crowd(hosts: str) -> Coroutine[Any, Any, float]:
    """Measure hand-overs of the textbook lock whose contenders all watch one node."""
    return _measure_crowd(hosts, lambda zk: NodeLock(zk, "/crowd/lock"))


def children_crowd(hosts: str) -> Coroutine[Any, Any, float]:
    """Measure hand-overs of the textbook lock whose contenders all watch the list of nodes."""
    return _measure_crowd(hosts, lambda zk: ChildrenLock(zk, "/crowd"))


def kazoo_crowd(hosts: str) -> float:
    """Measure hand-overs of the Lock of kazoo, with one thread per contender."""
    from kazoo.client import KazooClient

    zk = KazooClient(hosts, timeout=30)
    zk.start()
    gate = zk.Lock("/crowd-kazoo")
    gate.acquire()

    def one() -> None:
        with zk.Lock("/crowd-kazoo"):
            pass

    threads = [threading.Thread(target=one) for _ in range(CROWD_CLIENTS)]
    for thread in threads:
        thread.start()
    while len(zk.get_children("/crowd-kazoo")) < CROWD_CLIENTS + 1:
        time.sleep(0.02)
    time.sleep(0.3)
    started = time.perf_counter()
    gate.release()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - started
    zk.stop()
    zk.close()
    return took / CROWD_CLIENTS


UNCONTENDED_ROWS: dict[str, tuple[Callable[[str], Any], str]] = {
    "zoolet Lock": (zoolet_lock, ""),
    "zoolet Lock, release awaited": (zoolet_waiting, ""),
    "zoolet TryLock": (zoolet_trylock, ""),
    "kazoo Lock": (kazoo_lock, "kazoo"),
    "redis-py asyncio Lock": (redis_lock, "redis redis-server"),
    "memcached add": (memcached_add, "memcached"),
    "SQLite row with version": (sqlite_row, ""),
}
CROWDED_ROWS: dict[str, tuple[Callable[[str], Any], str]] = {
    "zoolet Lock": (zoolet_crowd, ""),
    "kazoo Lock": (kazoo_crowd, "kazoo"),
    "herd: one node": (node_crowd, ""),
    "herd: all watch the list": (children_crowd, ""),
}


def missing_requirement(needs: str) -> str | None:
    """Return the name of the module or program in *needs* if it is missing, otherwise None."""
    for need in needs.split():
        if shutil.which(need) is None:
            try:
                __import__(need)
            except ImportError:
                return f"{need} is not installed"
    return None


def run(measure: Callable[[str], Any], hosts: str) -> Any:
    """Run one measurement."""
    result = measure(hosts)
    return run_on_fastest_loop(result) if asyncio.iscoroutine(result) else result


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Measure all locks alternately. Return the medians: microseconds if uncontended, milliseconds if crowded."""
    server, hosts = daemon()
    found: dict[str, dict[str, float]] = {"uncontended_us": {}, "crowded_ms": {}}
    try:
        for title, rows, unit in (("uncontended_us", UNCONTENDED_ROWS, 1e6), ("crowded_ms", CROWDED_ROWS, 1e3)):
            samples: dict[str, list[float]] = {}
            for turn in range(rounds):
                for name, (_, needs) in rows.items():
                    missing = missing_requirement(needs)
                    if missing is not None:
                        if not turn:
                            print(f"{name}: left out, {missing}", file=sys.stderr)
                        continue
                    command = [sys.executable, __file__, "--one", title, name, hosts]
                    done = subprocess.run(command, capture_output=True, text=True, check=True)
                    samples.setdefault(name, []).append(float(done.stdout) * unit)
            found[title] = {name: statistics.median(taken) for name, taken in samples.items()}
    finally:
        server.terminate()
        server.wait()
    return found


def table(found: dict[str, dict[str, float]]) -> str:
    """Format the results as a Markdown table."""
    alone, crowd = found["uncontended_us"], found["crowded_ms"]
    lines = ["| | acquire + release, p50 | 200 wait: a hand-over | knows of its loss |", "|---|---:|---:|---|"]
    for name in (*alone, *(name for name in crowd if name not in alone)):
        one = f"{alone[name]:,.0f} us" if name in alone else ""
        many = f"{crowd[name]:.2f} ms" if name in crowd else ""
        lines.append(f"| {name} | {one} | {many} | {LOSS_SIGNALS[name]} |")
    return "\n".join(lines)


def goal_lines(found: dict[str, dict[str, float]]) -> list[str]:
    """Return a line for each goal, with the ratio and whether the goal is reached."""
    alone, crowd = found["uncontended_us"], found["crowded_ms"]
    lines = []
    if "kazoo Lock" in alone:
        ratio = alone["kazoo Lock"] / alone["zoolet Lock"]
        lines.append(f"uncontended, times faster than kazoo: {ratio:.1f} (goal 4){'' if ratio >= 4 else '  MISSED'}")
        ratio = crowd["kazoo Lock"] / crowd["zoolet Lock"]
        lines.append(f"200 waiters, times better than kazoo: {ratio:.1f} (goal 3){'' if ratio >= 3 else '  MISSED'}")
    if "redis-py asyncio Lock" in alone:
        ratio = alone["redis-py asyncio Lock"] / alone["zoolet Lock"]
        lines.append(f"uncontended, compared with redis-py: {ratio:.2f} (goal 1.7){'' if ratio >= 1.7 else '  MISSED'}")
    return lines


def draw_chart(found: dict[str, dict[str, float]]) -> str:
    """Draw the uncontended results as an SVG bar chart."""
    bars = sorted(found["uncontended_us"].items(), key=lambda one: one[1])
    longest = max(value for _, value in bars)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{len(bars) * 30 + 40}" '
        'font-family="sans-serif" font-size="13">',
        '<text x="10" y="20">acquire + release, median, microseconds (shorter is better)</text>',
    ]
    for place, (name, value) in enumerate(bars):
        y, width = 34 + place * 30, 400 * value / longest
        color = "#2a7" if name.startswith("zoolet") else "#99a"
        parts.append(f'<text x="190" y="{y + 15}" text-anchor="end">{name}</text>')
        parts.append(f'<rect x="200" y="{y}" width="{width:.0f}" height="20" fill="{color}"/>')
        parts.append(f'<text x="{206 + width:.0f}" y="{y + 15}">{value:,.0f}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Measure the locks, print the table and the goals, and publish the results if requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--publish", action="store_true", help="write the chart to docs/locks.svg")
    parser.add_argument("--one", nargs=3, metavar=("TABLE", "ROW", "HOSTS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:  # this is the separate process of one measurement
        title, name, hosts = options.one
        rows = UNCONTENDED_ROWS if title == "uncontended_us" else CROWDED_ROWS
        result = run(rows[name][0], hosts)
        print(statistics.median(result) if isinstance(result, list) else result)
        return
    found = measure(options.rounds)
    print(table(found))
    print("\n".join(goal_lines(found)))
    OUT.mkdir(exist_ok=True)
    (OUT / "locks.json").write_text(json.dumps(found, indent=1))
    (OUT / "locks.svg").write_text(draw_chart(found))
    if options.publish:
        (HERE.parent / "docs" / "locks.svg").write_text(draw_chart(found))


if __name__ == "__main__":
    main()
