"""The CPU time per request in process, without a socket, in nanoseconds. It is stable even on a busy machine.

The last column is in units of a fixed piece of work, which is measured next to each row, because machines differ and
their speed changes. ``budget.py`` checks the limits of the rows.
"""

from __future__ import annotations

import gc
import struct
import time
from collections.abc import Callable
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
from zoolet.server.core.settings import EngineSettings

BATCH = 64
REQUESTS = 64_000


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


REQUEST_BUILDERS: dict[str, Callable[[int], bytes]] = {
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


def new_connection(op: str, compat: str = "3.9", count: int = REQUESTS) -> ServerConnection:
    """Return a connection to a new engine that contains the nodes for *count* operations of a kind."""
    connection = ServerConnection(Engine(EngineSettings(compat=BY_NAME[compat]), rng=Random(0)), ClientConnection())
    connection.receive_data(frame(ConnectRequest().encode()) + create("/dir"))
    connection.receive_data(b"".join([create(f"/k{k}") for k in range(100)]))
    if op == "delete":
        for start in range(0, count, BATCH):
            connection.receive_data(b"".join([create(f"/dir/n{k}") for k in range(start, start + BATCH)]))
            connection.data_to_send()
    return connection


def measure(op: str, compat: str = "3.9", runs: int = 3) -> float:
    """Return the CPU time per request of a kind in nanoseconds: the best of several runs."""
    made = batches(op, REQUESTS)
    return min(_run(op, made, compat) for _ in range(runs))


def batches(op: str, count: int) -> list[bytes]:
    """Return *count* requests of a kind, in batches."""
    return [b"".join([REQUEST_BUILDERS[op](k) for k in range(at, at + BATCH)]) for at in range(0, count, BATCH)]


def _run(op: str, made: list[bytes], compat: str) -> float:
    connection = new_connection(op, compat)
    gc.collect()
    gc.disable()
    started = time.process_time_ns()
    for batch in made:
        connection.receive_data(batch)
        connection.data_to_send()
    spent = time.process_time_ns() - started
    gc.enable()
    return spent / (len(made) * BATCH)


def unit() -> float:
    """Return the CPU time of :func:`piece_of_work` in nanoseconds, which is the unit of the budget."""
    work = piece_of_work()
    started = time.process_time_ns()
    for _ in range(20_000):
        work()
    return (time.process_time_ns() - started) / 20_000


def piece_of_work() -> Callable[[], None]:
    """Return a function that does a fixed amount of work, similar to a request. Its cost is the unit of the budget."""
    unpack, pack = struct.Struct(">iii").unpack_from, struct.Struct(">iiqi").pack
    buf, out = create("/dir/n123456"), []
    known = {f"/dir/n{k}": k for k in range(1000)}

    def work() -> None:
        length, xid, _ = unpack(buf, 0)
        path = buf[16:28].decode()
        known.get(path)
        out.append(pack(16, xid, length, 0))
        out.clear()

    return work


def main() -> None:
    """Measure the requests, and print the table."""
    for op in REQUEST_BUILDERS:
        yardstick = unit()
        spent = measure(op)
        print(f"{op:10} {spent:8.0f} ns {spent / ((yardstick + unit()) / 2):6.1f} units")


if __name__ == "__main__":
    main()
