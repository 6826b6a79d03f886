"""A comparison of zoolet's daemon with the lower limit: a server that only sends prepared replies.

    make limits                               every row that has a goal; about two minutes
    python benchmarks/limits.py --only get    rows whose operation is one of these

The other server (:class:`NullConnection`, in a separate process) uses uvloop, finds the frames, and answers each with
prepared bytes. Every server must do at least this. Results are the CPU of the server's process per operation,
measured alternately. The last column is the ratio of zoolet's cost to the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import struct
import sys
from typing import Final, cast

import load

MAX_RATIOS: Final = {
    "get": 2.3,
    "set": 4.0,
    "create": 6.0,
    "get, 32 connections x 1": 1.4,
    "create, 32 connections x 1": 2.5,
    "sessions opened and closed": 2.0,
    "one change to 1,000 watchers": 1.25,
}
"""Goals by row: the maximum ratio of zoolet's cost to the cost of the server that does nothing."""
MIN_REQUESTS: Final = 30_000
"""Minimum number of requests of a row per turn, well above the clock's resolution."""

_unpack_length: Final = struct.Struct(">i").unpack_from
_unpack_request: Final = struct.Struct(">iii").unpack_from
_pack_reply: Final = struct.Struct(">iiqi").pack
_STAT: Final = bytes(68)
_PAYLOAD: Final = struct.pack(">i", 100) + b"x" * 100
_PATH: Final = struct.pack(">i", 24) + b"/zkload-nobody/and-n0000"
_BODIES: Final = {1: _PATH, 3: _STAT, 4: _PAYLOAD + _STAT, 5: _STAT, 12: struct.pack(">i", 0) + _STAT}
_SESSION: Final = struct.pack(">iiiqi16s?", 37, 0, 30_000, 1, 16, bytes(16), False)
_EVENT: Final = _pack_reply(16 + 8 + len(_PATH), -1, -1, 0) + struct.pack(">ii", 3, 3) + _PATH
_GET_DATA, _SET_DATA, _CLOSE = 4, 5, -11


class NullConnection(asyncio.Protocol):
    """A connection to the server that does nothing.

    Args:
        watchers: Transports that have set a watch, shared by all connections.
    """

    def __init__(self, watchers: set[asyncio.WriteTransport]) -> None:
        self._watchers = watchers
        self._rest = b""
        self._greeted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for the answers."""
        self._transport = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the transport from the watchers."""
        self._watchers.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        """Answer each complete frame with prepared bytes."""
        if self._rest:
            data = self._rest + data
        at, end, out = 0, len(data), []
        while end - at >= 4:
            (length,) = _unpack_length(data, at)
            if length == 0x73727672:  # "srvr", whose answer load.py waits for
                out.append(b"Mode: nothing\n")
                self._transport.write(b"".join(out))
                self._transport.close()
                return
            if end - at - 4 < length:
                break
            if not self._greeted:
                self._greeted = True
                out.append(_SESSION)
            else:
                _, xid, op = _unpack_request(data, at)
                result = _BODIES.get(op, b"")
                out.append(_pack_reply(16 + len(result), xid, 1, 0) + result)
                if op == _GET_DATA and data[at + 3 + length]:
                    self._watchers.add(self._transport)
                elif op == _SET_DATA and self._watchers:
                    for watcher in self._watchers:
                        watcher.write(_EVENT)
                    self._watchers.clear()
                elif op == _CLOSE:
                    self._transport.write(b"".join(out))
                    self._transport.close()
                    return
            at += 4 + length
        self._rest = data[at:]
        self._transport.write(b"".join(out))


async def serve(port: int) -> None:
    """Serve until the process is stopped."""
    watchers: set[asyncio.WriteTransport] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: NullConnection(watchers), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


def measure(rows: list[load.Row], rounds: int) -> bool:
    """Measure and print each row. Return whether all rows reach their goals."""
    generator = load.generator()
    reached = True
    nothing = load.Server([sys.executable, __file__, "--serve", "{port}"])
    print(f"{'CPU for an operation':42} {'zoolet':>12} {'nothing':>12}   ratio (lowest to highest)")
    with load.zoolet() as ours, nothing as limit:
        for row in rows:
            total = row.total if row.op in ("fanout", "connect") else max(row.total, MIN_REQUESTS)
            spent: dict[load.Server, list[float]] = {ours: [], limit: []}
            for _ in range(rounds):
                for server, costs in spent.items():
                    before = server.cpu_ns()
                    load.run(generator, server, row, total)
                    costs.append((server.cpu_ns() - before) / total)
            ratios = [one / other for one, other in zip(*spent.values(), strict=True)]
            ratio, goal = statistics.median(ratios), MAX_RATIOS[row.name]
            costs_us = " ".join(f"{statistics.median(costs) / 1000:9.2f} us" for costs in spent.values())
            verdict = "" if ratio <= goal else "   MISSED"
            shown = f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            print(f"{row.name:42} {costs_us}   {shown}   goal {goal:g}{verdict}", flush=True)
            reached = reached and ratio <= goal
    return reached


def main() -> int:
    """Measure the rows, or run the server that does nothing. Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="turns for each row (default 5)")
    parser.add_argument("--only", default="", help="rows whose operation is one of these, comma between")
    parser.add_argument("--serve", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(options.serve))
    wanted = set(filter(None, options.only.split(",")))
    print(load.machine())
    rows = [row for row in load.ROWS if row.name in MAX_RATIOS and (not wanted or row.op in wanted)]
    if not rows:
        parser.error(f"no row with a goal has the operation {options.only}")
    return 0 if measure(rows, options.rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
