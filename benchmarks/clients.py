"""A comparison of Python clients on the same zoolet server: zoolet's own, kazoo and aiozk.

    python benchmarks/clients.py              three alternating rounds; a table, and benchmarks/out/clients.json

A missing client (``pip install kazoo aiozk``) is skipped with a message. Both asyncio clients run on
uvloop if it is installed. The rows are *sequential* (one get after the other), *pipelined* (1,000 gets in flight) and
*server away* (gets that are cancelled while 10,000 others wait for a connection).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "out"
SEQUENTIAL_GETS = 3_000
PIPELINED_GETS = 20_000
IN_FLIGHT = 1_000
WAITING_CALLS = 10_000
PATH = "/bench"


async def zoolet_sequential(hosts: str) -> float:
    """Measure zoolet's client, one get after the other."""
    from zoolet.client import Client

    async with Client(hosts) as zk:
        started = time.perf_counter()
        for _ in range(SEQUENTIAL_GETS):
            await zk.get(PATH)
        return SEQUENTIAL_GETS / (time.perf_counter() - started)


async def zoolet_pipelined(hosts: str) -> float:
    """Measure zoolet's client with many gets in flight."""
    from zoolet.client import Client

    async with Client(hosts) as zk:
        started = time.perf_counter()
        for _ in range(PIPELINED_GETS // IN_FLIGHT):
            await asyncio.gather(*[zk.get(PATH) for _ in range(IN_FLIGHT)])
        return PIPELINED_GETS / (time.perf_counter() - started)


async def aiozk_sequential(hosts: str) -> float:
    """Measure aiozk, one get after the other."""
    import aiozk

    zk = aiozk.ZKClient(hosts)
    await zk.start()
    started = time.perf_counter()
    for _ in range(SEQUENTIAL_GETS):
        await zk.get(PATH)
    took = time.perf_counter() - started
    await zk.close()
    return SEQUENTIAL_GETS / took


async def aiozk_pipelined(hosts: str) -> float:
    """Measure aiozk with many gets in flight."""
    import aiozk

    zk = aiozk.ZKClient(hosts)
    await zk.start()
    started = time.perf_counter()
    for _ in range(PIPELINED_GETS // IN_FLIGHT):
        await asyncio.gather(*[zk.get(PATH) for _ in range(IN_FLIGHT)])
    took = time.perf_counter() - started
    await zk.close()
    return PIPELINED_GETS / took


def kazoo_sequential(hosts: str) -> float:
    """Measure kazoo, one get after the other."""
    from kazoo.client import KazooClient

    zk = KazooClient(hosts)
    zk.start()
    started = time.perf_counter()
    for _ in range(SEQUENTIAL_GETS):
        zk.get(PATH)
    took = time.perf_counter() - started
    zk.stop()
    zk.close()
    return SEQUENTIAL_GETS / took


def kazoo_pipelined(hosts: str) -> float:
    """Measure kazoo with many gets in flight."""
    from kazoo.client import KazooClient

    zk = KazooClient(hosts)
    zk.start()
    started = time.perf_counter()
    for _ in range(PIPELINED_GETS // IN_FLIGHT):
        for call in [zk.get_async(PATH) for _ in range(IN_FLIGHT)]:
            call.get()
    took = time.perf_counter() - started
    zk.stop()
    zk.close()
    return PIPELINED_GETS / took


async def zoolet_away(hosts: str) -> float:
    """Measure calls that are made and cancelled while the server is away and 10,000 other calls wait."""
    from zoolet.client import Client

    zk: Client[bytes] = Client("127.0.0.1:1")
    await zk.start(wait=False)
    try:
        waiting = [zk.get(PATH) for _ in range(WAITING_CALLS)]
        await asyncio.sleep(0)
        started = time.perf_counter()
        for _ in range(SEQUENTIAL_GETS):
            call = zk.get(PATH)
            await asyncio.sleep(0)  # one iteration of the event loop per call, as in a program that awaits each call
            call.cancel()
        took = time.perf_counter() - started
        for call in waiting:
            call.cancel()
        return SEQUENTIAL_GETS / took
    finally:
        await zk.aclose()


ROWS: dict[str, dict[str, Callable[[str], Any]]] = {
    "sequential": {"zoolet": zoolet_sequential, "kazoo": kazoo_sequential, "aiozk": aiozk_sequential},
    "server away": {"zoolet": zoolet_away},
    "pipelined": {"zoolet": zoolet_pipelined, "kazoo": kazoo_pipelined, "aiozk": aiozk_pipelined},
}
GOALS = {"sequential": 2.0, "pipelined": 5.0}


def run(measure: Callable[[str], Any], hosts: str) -> float:
    """Run one measurement. asyncio clients run on uvloop if it is installed."""
    result = measure(hosts)
    if not asyncio.iscoroutine(result):
        return float(result)
    return float(run_on_fastest_loop(result))


def run_on_fastest_loop(main: Coroutine[Any, Any, float]) -> float:
    """Run a coroutine on uvloop if it is installed, otherwise on asyncio's loop. Return its result."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def installed_clients(names: list[str]) -> list[str]:
    """Return the clients that are installed, and print a message for each missing client."""
    found = []
    for name in names:
        try:
            __import__("zoolet.client" if name == "zoolet" else name)
        except ImportError:
            print(f"{name} is not installed: left out", file=sys.stderr)
        else:
            found.append(name)
    return found


def daemon() -> tuple[subprocess.Popen[str], str]:
    """Start a zoolet daemon, and return it with its address."""
    command = [sys.executable, "-m", "zoolet", "serve", "--port", "0", "-Dzookeeper.maxClientCnxns=0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().split()[-1]


def main() -> None:
    """Measure the clients alternately, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=3, metavar=("ROW", "CLIENT", "HOSTS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:  # this is the separate process of a client, whose threads must not slow down the others
        row, client, hosts = options.one
        print(run(ROWS[row][client], hosts))
        return
    server, hosts = daemon()
    try:
        print(json.dumps(measure(hosts, options.rounds), indent=1), file=sys.stderr)
    finally:
        server.terminate()
        server.wait()


def measure(hosts: str, rounds: int) -> dict[str, dict[str, float]]:
    """Return the median number of operations per second of each row and client."""
    from zoolet.client.blocking import Client

    with Client(hosts) as zk:
        zk.create(PATH, b"x" * 100)
    clients = installed_clients(list(ROWS["sequential"]))
    found: dict[str, dict[str, float]] = {}
    for row in ROWS:
        samples: dict[str, list[float]] = {client: [] for client in clients if client in ROWS[row]}
        for _ in range(rounds):
            for client in samples:
                command = [sys.executable, __file__, "--one", row, client, hosts]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                samples[client].append(float(done.stdout))
        found[row] = {client: statistics.median(taken) for client, taken in samples.items()}
        others = max((rate for client, rate in found[row].items() if client != "zoolet"), default=0.0)
        shown = "  ".join(f"{client} {rate:9,.0f}/s" for client, rate in found[row].items())
        ratio = found[row]["zoolet"] / others if others else float("nan")
        missed = "" if ratio >= GOALS.get(row, 0.0) else "  MISSED"
        compared = f"   x {ratio:.1f} of the better   goal {GOALS[row]:g}{missed}" if row in GOALS else ""
        print(f"{row:12} {shown}{compared}")
    OUT.mkdir(exist_ok=True)
    (OUT / "clients.json").write_text(json.dumps(found, indent=1))
    return found


if __name__ == "__main__":
    main()
