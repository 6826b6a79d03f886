"""Nanoseconds of CPU a request costs in process: frames in, frames out, no socket. Steady even on a busy machine.

    python benchmarks/inproc.py            prints a table
    python benchmarks/inproc.py --tables   the same for `--compat 3.8`, and for a process that has just started (cold)
    python benchmarks/inproc.py --check    exits 1 if a figure is above its limit in benchmarks/budget.toml

The limits are in units of a fixed piece of work, measured beside each figure, for machines differ and do not stay as
fast as they are.
"""

from __future__ import annotations

import argparse
import gc
import struct
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from random import Random

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest
from zoolet.protocol.operations import OpCode
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.compat import BY_NAME
from zoolet.server.core.engine import Engine
from zoolet.server.core.server_connection import ServerConnection
from zoolet.server.core.settings import Settings

BATCH = 64
COUNT = 64_000
BUDGET = Path(__file__).with_name("budget.toml")


def request(op: int, body: bytes) -> bytes:
    """Return the frame of a request."""
    return frame(r.RequestHeader(1, op).encode() + body)


def create(path: str, flags: int = 0) -> bytes:
    """Return the frame of a create of 100 bytes."""
    return request(OpCode.CREATE, r.CreateRequest(path, b"x" * 100, OPEN_ACL_UNSAFE, flags).encode())


def multi(k: int) -> bytes:
    """Return the frame of a transaction of create, setData and delete."""
    return request(
        OpCode.MULTI,
        wire.encode_operations(
            [
                (OpCode.CREATE, r.CreateRequest(f"/m{k}", b"x" * 100, OPEN_ACL_UNSAFE, 0)),
                (OpCode.SET_DATA, r.SetDataRequest("/k0", b"x" * 100, -1)),
                (OpCode.DELETE, r.DeleteRequest(f"/m{k}", -1)),
            ]
        ),
    )


WORK: dict[str, Callable[[int], bytes]] = {
    "ping": lambda k: request(OpCode.PING, b""),
    "get": lambda k: request(OpCode.GET_DATA, r.GetDataRequest(f"/k{k % 100}", False).encode()),
    "exists": lambda k: request(OpCode.EXISTS, r.ExistsRequest(f"/k{k % 100}", False).encode()),
    "children": lambda k: request(OpCode.GET_CHILDREN2, r.GetChildrenRequest("/", False).encode()),
    "set": lambda k: request(OpCode.SET_DATA, r.SetDataRequest(f"/k{k % 100}", b"x" * 100, -1).encode()),
    "create": lambda k: create(f"/dir/n{k}"),
    "seq": lambda k: create("/dir/lock-", 3),
    "delete": lambda k: request(OpCode.DELETE, r.DeleteRequest(f"/dir/n{k}", -1).encode()),
    "multi": multi,
}


def fresh(op: str, compat: str = "3.9") -> ServerConnection:
    """Return a connection to an engine with what the operation needs."""
    connection = ServerConnection(Engine(Settings(compat=BY_NAME[compat]), rng=Random(0)), ClientConnection())
    connection.receive_data(frame(ConnectRequest().encode()) + create("/dir"))
    connection.receive_data(b"".join([create(f"/k{k}") for k in range(100)]))
    if op == "delete":
        for start in range(0, COUNT, BATCH):
            connection.receive_data(b"".join([create(f"/dir/n{k}") for k in range(start, start + BATCH)]))
            connection.data_to_send()
    return connection


def measure(op: str, compat: str = "3.9", runs: int = 3) -> float:
    """Return the nanoseconds of CPU that one request of a kind costs, the best of some runs."""
    batches = [b"".join([WORK[op](k) for k in range(at, at + BATCH)]) for at in range(0, COUNT, BATCH)]
    return min(_run(op, batches, compat) for _ in range(runs))


def in_units(op: str, compat: str, runs: int) -> float:
    """Return what one request of a kind costs, in units."""
    before = unit()
    spent = measure(op, compat, runs)
    return spent / ((before + unit()) / 2)


def cold(op: str) -> float:
    """Return what one request of a kind costs in a process that has just started, in units; the best of three."""
    command = [sys.executable, __file__, "--one", op]
    return min(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(3))


def _run(op: str, batches: list[bytes], compat: str) -> float:
    connection = fresh(op, compat)
    gc.collect()
    gc.disable()
    started = time.process_time_ns()
    for batch in batches:
        connection.receive_data(batch)
        connection.data_to_send()
    spent = time.process_time_ns() - started
    gc.enable()
    return spent / (len(batches) * BATCH)


def unit() -> float:
    """Return the nanoseconds of CPU of a fixed piece of work that is much like a request's: what the budget is counted
    in.
    """
    unpack, pack = struct.Struct(">iii").unpack_from, struct.Struct(">iiqi").pack
    buf, out = create("/dir/n123456"), []
    known = {f"/dir/n{k}": k for k in range(1000)}

    def work() -> None:
        length, xid, _ = unpack(buf, 0)
        path = buf[16:28].decode()
        known.get(path)
        out.append(pack(16, xid, length, 0))

    started = time.process_time_ns()
    for _ in range(20_000):
        work()
        out.clear()
    return (time.process_time_ns() - started) / 20_000


def over_budget(*ops: str, runs: int = 3) -> dict[str, str]:
    """Map each operation that costs more than its budget to a line; of these operations, or of all."""
    limits = tomllib.loads(BUDGET.read_text())["units_a_request"]
    over = {}
    for op in ops or limits:
        limit = limits[op]
        before = unit()
        spent = measure(op, runs=runs)
        yardstick = (before + unit()) / 2  # on both sides: a shared machine does not stay as fast as it is
        if spent > limit * yardstick:
            over[op] = f"{op}: {spent:.0f} ns, and {limit} x {yardstick:.0f} ns is its limit"
    return over


def main() -> int:
    """Print the table, or check the budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit 1 if a figure is above its limit")
    parser.add_argument("--tables", action="store_true", help="compare the releases' tables, and a cold start")
    parser.add_argument("--one", choices=sorted(WORK), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(in_units(options.one, "3.9", 1))
        return 0
    if options.tables:
        print("units a request    3.9    3.8   cold")
        for op in WORK:
            print(f"{op:15} {in_units(op, '3.9', 3):6.2f} {in_units(op, '3.8', 3):6.2f} {cold(op):6.2f}")
        return 0
    if options.check:
        over = over_budget()
        print("\n".join(over.values()) or "all within budget")
        return 1 if over else 0
    for op in WORK:
        yardstick = unit()
        spent = measure(op)
        print(f"{op:10} {spent:8.0f} ns {spent / ((yardstick + unit()) / 2):6.1f} units")
    return 0


if __name__ == "__main__":
    sys.exit(main())
