"""The growth of the cost of a request with the data on the server, and the cost of large amounts.

    make bench-scale                          everything; about one minute
    python benchmarks/scale.py --only children,watches

Each row of the first table is measured in process, without a socket, with 100 to 100,000 of its neighbours: children of
a folder, sessions, watches, levels of a path, ephemeral nodes of a session, operations of a multi. Each cell is the
median CPU of one step in microseconds. Steps that handle all neighbours are divided by their number. So every row
should be flat, except for lists of children, which are copied, and random reads, which wait for memory. The second
table contains the amounts with a goal, measured with daemons. A complete run writes its results to ``benchmarks/out/``,
and ``--publish`` copies them into ``docs/``.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import load
from inproc import create, request

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import Record
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest
from zoolet.protocol.operations import OpCode
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.engine import Engine
from zoolet.server.core.server_connection import ServerConnection
from zoolet.server.core.settings import EngineSettings

SIZES: Final = (100, 1_000, 10_000, 100_000)
STEPS: Final = 64
"""Number of steps per cell, whose median is the result. A row whose step handles all neighbours takes fewer."""
EPHEMERAL_FLAG: Final = 1
"""The flags of an ephemeral create."""
EPHEMERALS_OF_ENDED_SESSION: Final = 200_000
"""Number of ephemeral nodes of the session whose end is measured as an amount."""
GOALS: Final = {
    f"end of a session with {EPHEMERALS_OF_ENDED_SESSION:,} ephemeral nodes, ms": 100,
    "memory of 1,000,000 nodes of 100 bytes, MB": 320,
    "slowest request while they are created, ms": 30,
    "start to first answer, ms": 70,
}
"""Maximum of each amount. The keys contain the units."""


class EngineWorld:
    """An engine and its connections, without limits that would stop a row."""

    def __init__(self) -> None:
        settings = EngineSettings(max_frame=1 << 26, max_multi_operations=1 << 20, max_watches_per_connection=1 << 20)
        self.engine = Engine(settings, rng=Random(0))
        self.client = self.connect()

    def connect(self) -> ServerConnection:
        """Open a session."""
        connection = ServerConnection(self.engine, ClientConnection())
        self.send(frame(ConnectRequest().encode()), connection)
        return connection

    def send(self, frames: bytes, connection: ServerConnection | None = None) -> None:
        """Send requests, and discard the replies."""
        connection = connection or self.client
        while connection.receive_data(frames):
            frames = b""
            connection.data_to_send()
        connection.data_to_send()

    def fill(self, path: Callable[[int], str], count: int, flags: int = 0) -> None:
        """Create the nodes ``path(0)`` to ``path(count - 1)``."""
        for at in range(0, count, 1000):
            self.send(b"".join([create(path(k), flags) for k in range(at, min(at + 1000, count))]))

    def folder(self, count: int, flags: int = 0) -> None:
        """Create ``/dir`` with *count* children, and list it."""
        self.send(create("/dir"))
        self.fill("/dir/n{:06}".format, count, flags)
        self.send(LIST_REQUEST)

    def discard_events(self) -> None:
        """Discard the events of all connections."""
        for client in self.engine.pending_output:
            client.outbox.clear()
        self.engine.pending_output.clear()


LIST_REQUEST: Final = request(OpCode.GET_CHILDREN2, r.GetChildrenRequest("/dir", False).encode())
CLOSE_REQUEST: Final = request(OpCode.CLOSE_SESSION, b"")


def delete(path: str) -> bytes:
    """Return the frame of a delete."""
    return request(OpCode.DELETE, r.DeleteRequest(path, -1).encode())


def get(path: str, *, watch: bool = False) -> bytes:
    """Return the frame of a get."""
    return request(OpCode.GET_DATA, r.GetDataRequest(path, watch).encode())


def change(path: str) -> bytes:
    """Return the frame of a set."""
    return request(OpCode.SET_DATA, r.SetDataRequest(path, b"x" * 100, -1).encode())


# --- the rows: each yields the nanoseconds of its steps, divided by the number of neighbours that a step handles ---

Steps = Iterator[float]


def cpu_ns_per_part(do: Callable[..., object], *arguments: Any, parts: int = 1) -> float:
    """Return the CPU time of a call, divided by *parts*, in nanoseconds."""
    started = time.process_time_ns()
    do(*arguments)
    return (time.process_time_ns() - started) / parts


def create_and_list(n: int) -> Steps:
    """Measure joining a lock, queue or group: create the last child, and list the children."""
    world = EngineWorld()
    world.folder(n)
    for k in range(STEPS):
        yield cpu_ns_per_part(world.send, create(f"/dir/x{k}") + LIST_REQUEST)


def delete_first_and_list(n: int) -> Steps:
    """Measure the consumer of a queue: delete the first child, and list the children."""
    world = EngineWorld()
    world.folder(n + STEPS)
    for k in range(STEPS):
        yield cpu_ns_per_part(world.send, delete(f"/dir/n{k:06}") + LIST_REQUEST)


def delete_any_and_list(n: int) -> Steps:
    """Measure leaving a group: delete a random child, and list the children."""
    world = EngineWorld()
    world.folder(n + STEPS)
    for k in Random(1).sample(range(n + STEPS), STEPS):
        yield cpu_ns_per_part(world.send, delete(f"/dir/n{k:06}") + LIST_REQUEST)


def member_leaves(n: int) -> Steps:
    """Measure the loss of a member of a group: its session ends, and the children are listed."""
    world = EngineWorld()
    world.folder(n)
    for k in range(STEPS):
        member = world.connect()
        world.send(create(f"/dir/m{k}", EPHEMERAL_FLAG), member)
        world.send(LIST_REQUEST + create(f"/dir/x{k}") + LIST_REQUEST)

        def leave(member: ServerConnection = member) -> None:
            world.send(CLOSE_REQUEST, member)
            world.send(LIST_REQUEST)

        yield cpu_ns_per_part(leave)


def get_any(n: int) -> Steps:
    """Measure reads of nodes in random order, after all nodes have been read once."""
    world = EngineWorld()
    world.folder(n)
    for at in range(0, n, 100):
        world.send(b"".join([get(f"/dir/n{k:06}") for k in range(at, at + 100)]))
    numbers = Random(1).choices(range(n), k=STEPS * 64)
    for at in range(0, len(numbers), 64):
        yield cpu_ns_per_part(world.send, b"".join([get(f"/dir/n{k:06}") for k in numbers[at : at + 64]]), parts=64)


def open_and_close(n: int) -> Steps:
    """Measure the opening and closing of a session while n other sessions are open."""
    world = EngineWorld()
    others = [world.connect() for _ in range(n)]
    for _ in range(STEPS):
        yield cpu_ns_per_part(lambda: world.send(CLOSE_REQUEST, world.connect()))
        world.discard_events()
    assert len(world.engine.connections) >= len(others)


def fire_to_many(n: int) -> Steps:
    """Measure one change of a node that n connections watch, including the events, per connection."""
    world = EngineWorld()
    world.send(create("/k"))
    others = [world.connect() for _ in range(n)]
    for _ in range(3 if n > 10_000 else 9):
        for other in others:
            world.send(get("/k", watch=True), other)
        yield cpu_ns_per_part(world.send, change("/k"), parts=n)
        world.discard_events()


def watch_and_fire(n: int) -> Steps:
    """Measure a read that sets a watch, and the change that fires it, on one of n watched nodes."""
    world = EngineWorld()
    world.folder(n)
    world.send(b"".join([get(f"/dir/n{k:06}", watch=True) for k in range(n)]))
    for k in Random(1).choices(range(n), k=STEPS):
        path = f"/dir/n{k:06}"
        yield cpu_ns_per_part(world.send, get(path, watch=True) + change(path))
        world.discard_events()


def lose_watches(n: int) -> Steps:
    """Measure the loss of a connection with watches on n nodes, per watch."""
    world = EngineWorld()
    world.folder(n)
    for _ in range(3):
        watcher = world.connect()
        world.send(b"".join([get(f"/dir/n{k:06}", watch=True) for k in range(n)]), watcher)

        def lose(watcher: ServerConnection = watcher) -> None:
            watcher.connection_lost()
            while world.engine.watches.unswept:
                world.engine.watches.sweep()

        yield cpu_ns_per_part(lose, parts=n)


def create_and_delete_at_depth(n: int) -> Steps:
    """Measure a create and a delete below n levels, per 100 levels. The path has two bytes for each level."""
    world = EngineWorld()
    tree, path = world.engine.tree, ""
    for _ in range(n):
        parent, path = tree.find(path), path + "/d"
        tree.create(path, "d", parent, b"", 0, 0, 1, 1)
    for _ in range(9):
        yield cpu_ns_per_part(world.send, create(path + "/x") + delete(path + "/x"), parts=n // 100)


def create_and_delete_with_ephemerals(n: int) -> Steps:
    """Measure a create and a delete of an ephemeral node by a session that owns n other ephemeral nodes."""
    world = EngineWorld()
    world.folder(n, EPHEMERAL_FLAG)
    for k in range(STEPS):
        yield cpu_ns_per_part(world.send, create(f"/dir/x{k}", EPHEMERAL_FLAG) + delete(f"/dir/x{k}"))


def end_session(n: int) -> Steps:
    """Measure the end of a session with n ephemeral nodes, per node."""
    for _ in range(3):
        world = EngineWorld()
        world.folder(0)
        world.send(create("/k") + get("/k", watch=True))  # because most servers have watches
        owner = world.connect()
        for at in range(0, n, 1000):
            frames = [create(f"/dir/n{k:06}", EPHEMERAL_FLAG) for k in range(at, min(at + 1000, n))]
            world.send(b"".join(frames), owner)
        yield cpu_ns_per_part(world.send, CLOSE_REQUEST, owner, parts=n)


def multi(n: int, *, fails: bool = False) -> Steps:
    """Measure a multi of n creates, per operation. If *fails*, the last operation fails, which undoes the others."""
    for _ in range(3):
        world = EngineWorld()
        world.folder(0)
        paths = [f"/dir/n{k:06}" for k in range(n - 1)] + ["/dir" if fails else "/dir/last"]
        operations: list[tuple[OpCode, Record]] = [
            (OpCode.CREATE, r.CreateRequest(path, b"x", OPEN_ACL_UNSAFE, 0)) for path in paths
        ]
        yield cpu_ns_per_part(world.send, request(OpCode.MULTI, wire.encode_operations(operations)), parts=n)


class Row(NamedTuple):
    """A row of the table.

    Args:
        title: Name of the step.
        neighbours: Name of the items that are already on the server.
        steps: A function that measures the steps for a number of neighbours.
    """

    title: str
    neighbours: str
    steps: Callable[[int], Steps]


END_OF_SESSION: Final = Row("end of a session, per node", "ephemeral nodes", end_session)
ROWS: Final = (
    Row("create, and list of the folder", "children", create_and_list),
    Row("delete of the first child, and list", "children", delete_first_and_list),
    Row("delete of any child, and list", "children", delete_any_and_list),
    Row("end of a member's session, and list", "children", member_leaves),
    Row("get of any child", "children", get_any),
    Row("session opened and closed", "sessions", open_and_close),
    Row("change of a watched node, per watcher", "watches on one node", fire_to_many),
    Row("get with a watch, and change", "watches on many nodes", watch_and_fire),
    Row("loss of a connection, per watch", "watches on many nodes", lose_watches),
    Row("create and delete, per 100 levels", "levels", create_and_delete_at_depth),
    Row("ephemeral create and delete", "ephemeral nodes", create_and_delete_with_ephemerals),
    END_OF_SESSION,
    Row("multi, per operation", "operations", multi),
    Row("multi that fails, per operation", "operations", lambda n: multi(n, fails=True)),
)


def measure_cell(row: Row, n: int) -> float:
    """Return the median time of a row's step with *n* neighbours, in microseconds.

    Each cell gets a new process, because the objects of an old process are scattered in memory, and slower.
    """
    command = [sys.executable, __file__, "--cell", row.title, str(n)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def amounts(nodes: int = 1_000_000) -> dict[str, float]:
    """Measure the amounts with a goal, in the order of :data:`GOALS`."""
    end = measure_cell(END_OF_SESSION, EPHEMERALS_OF_ENDED_SESSION) * EPHEMERALS_OF_ENDED_SESSION / 1000
    tree = load.big_tree(load.generator(), nodes)
    return dict(
        zip(GOALS, (end, tree["resident_mb"], tree["worst_request_ms"], load.measure_start_up(9) * 1000), strict=True)
    )


# --- reports ---


def format_number(value: float) -> str:
    """Format a number with two or three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(report: dict[str, Any]) -> str:
    """Format the report as two tables in Markdown."""
    lines = [
        f"Measured {report['date'][:10]} on {report['machine']}. CPU in microseconds, in process.",
        "",
        "| | number of | " + " | ".join(f"{size:,}" for size in report["sizes"]) + " | growth |",
        "|---|---|" + "---:|" * (len(report["sizes"]) + 1),
    ]
    for row in report["rows"]:
        costs = row["us"]
        cells = " | ".join(map(format_number, [*costs, costs[-1] / costs[0]]))
        lines.append(f"| {row['title']} | {row['neighbours']} | {cells} |")
    if report["amounts"]:
        lines += ["", "| | measured | goal |", "|---|---:|---:|"]
        lines += [f"| {name} | {format_number(value)} | {GOALS[name]} |" for name, value in report["amounts"].items()]
    return "\n".join(lines)


COLORS: Final = ("#3b7dd8", "#c0392b", "#27875a", "#8e44ad", "#d98200", "#16a085", "#7f8c8d")
WIDTH, HEIGHT, LEFT, TOP = 460, 380, 60, 40


def plot(report: dict[str, Any]) -> str:
    """Draw the costs of all rows over the number of neighbours, both on logarithmic scales."""
    rows, sizes = report["rows"], report["sizes"]
    costs = [cost for row in rows for cost in row["us"]]
    low, high = math.floor(math.log10(min(costs))), math.ceil(math.log10(max(costs)))
    first, last = math.log10(sizes[0]), math.log10(sizes[-1])

    def x(size: float) -> float:
        return LEFT + WIDTH * (math.log10(size) - first) / (last - first)

    def y(cost: float) -> float:
        return TOP + HEIGHT * (high - math.log10(cost)) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 320}" height="{TOP + HEIGHT + 50}"',
        ' font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="10" y="20">microseconds of CPU, over the number of neighbours</text>',
    ]
    for power in range(low, high + 1):
        at = y(10**power)
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{at:.0f}" y2="{at:.0f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at + 4:.0f}" text-anchor="end">{10**power:g}</text>')
    for size in sizes:
        parts.append(f'<line x1="{x(size):.0f}" x2="{x(size):.0f}" y1="{TOP}" y2="{TOP + HEIGHT}" stroke="#eee"/>')
        parts.append(f'<text x="{x(size):.0f}" y="{TOP + HEIGHT + 20}" text-anchor="middle">{size:,}</text>')
    label_y = -math.inf
    for number, row in sorted(enumerate(rows), key=lambda item: y(item[1]["us"][-1])):
        color = COLORS[number % len(COLORS)]
        dash = ' stroke-dasharray="6 3"' if number >= len(COLORS) else ""
        points = " ".join(f"{x(size):.0f},{y(cost):.0f}" for size, cost in zip(sizes, row["us"], strict=True))
        end_y = y(row["us"][-1])
        label_y = max(label_y + 16, end_y)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"{dash}/>')
        parts.append(
            f'<line x1="{LEFT + WIDTH}" x2="{LEFT + WIDTH + 16}" y1="{end_y:.0f}" y2="{label_y:.0f}" stroke="{color}"/>'
        )
        parts.append(f'<text x="{LEFT + WIDTH + 20}" y="{label_y + 4:.0f}" fill="{color}">{row["title"]}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Measure the rows and amounts, print the tables, and keep or publish the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose title or neighbours contain one of these, comma between")
    parser.add_argument("--up-to", type=int, default=SIZES[-1], help="largest number of neighbours (default 100,000)")
    parser.add_argument("--no-amounts", action="store_true", help="leave out the second table, and write nothing")
    parser.add_argument("--publish", action="store_true", help="put the last results into docs/, measure nothing")
    parser.add_argument("--cell", nargs=2, metavar=("ROW", "SIZE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        gc.disable()
        title, size = options.cell
        (steps,) = [row.steps(int(size)) for row in ROWS if row.title == title]
        print(statistics.median(steps) / 1000)
        return
    if options.publish:
        docs = load.HERE.parent / "docs"
        report = json.loads((load.OUT / "scale.json").read_text())
        load.replace_table(docs / "project" / "speed.md", table(report), "scale")
        shutil.copy(load.OUT / "scale.svg", docs / "scale.svg")
        return
    words = [word for word in options.only.split(",") if word]
    sizes = [size for size in SIZES if size <= options.up_to] or [SIZES[0]]
    report: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": load.machine(),
        "sizes": sizes,
        "rows": [],
        "amounts": {},
    }
    print(report["machine"])
    print(f"{'CPU in microseconds, neighbours:':40} {' '.join(f'{size:>9,}' for size in sizes)}")
    for row in ROWS:
        if not words or any(word in f"{row.title} {row.neighbours}" for word in words):
            costs = [measure_cell(row, size) for size in sizes]
            report["rows"].append({"title": row.title, "neighbours": row.neighbours, "us": costs})
            print(f"{row.title:40} {' '.join(f'{format_number(cost):>9}' for cost in costs)} us", flush=True)
    if not options.no_amounts and not words and len(sizes) == len(SIZES):  # only complete results are kept
        report["amounts"] = amounts()
        for name, value in report["amounts"].items():
            verdict = "" if value <= GOALS[name] else "   MISSED"
            print(f"{name:60} {format_number(value):>9}   goal {GOALS[name]}{verdict}")
    if not report["amounts"]:
        return
    load.OUT.mkdir(exist_ok=True)
    Path(load.OUT / "scale.json").write_text(json.dumps(report, indent=1))
    Path(load.OUT / "scale.svg").write_text(plot(report))
    print(f"written to {load.OUT}")


if __name__ == "__main__":
    main()
