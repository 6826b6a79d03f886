"""A check of the CPU cost of requests and client calls. The exit code is 1 if any exceeds its limit in ``budget.toml``.

    make budget                                all rows; about two minutes
    python benchmarks/budget.py --only get     rows that contain one of these words
    python benchmarks/budget.py --write        measure, and write the limits again

If valgrind is installed, it counts the instructions of the process, which vary by less than a thousandth whatever else
the machine does. Otherwise the cost is the best of several measurements of CPU time, the cold rows are left out, and a
row may exceed its limit by half. Costs are in units of :func:`inproc.piece_of_work`, measured in the same way, so the
limits are valid for all machines.

Rows are requests in process, and calls of the client without the server's part. Requests are measured ``warm``, warm
with the tables of 3.8, and ``cold``: the first 64 of a process.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

import compare
import inproc
import load

BUDGET: Final = Path(__file__).with_name("budget.toml")
ROOM: Final = 1.1
"""Ratio of a new limit to the measured cost."""
CPU_TIME_RATIO: Final = 1.5
"""Permitted ratio of a row's cost to its limit if only CPU time can be measured."""
HEADER: Final = """\
# What a request may cost, in units of the fixed piece of work in `inproc.py`: 10 % more than `make budget` counted when
# this was written (`python benchmarks/budget.py --write`).
"""


class Row(NamedTuple):
    """A row to measure. Its cost is the extra cost of *many* operations over *few*, per operation.

    Args:
        table: Table of budget.toml.
        name: Row of the table.
        few: Number of operations to warm up.
        many: Total number of operations.
    """

    table: str
    name: str
    few: int
    many: int


UNIT_ROW: Final = Row("", "unit", 100, 2_100)
CLIENTS: Final = {"client get": 200, "client create": 100, "client lock": 50, "client get, 1,000 in flight": 2}
"""The client rows whose cost does not depend on threads, and the number of operations that measures each."""
CALLS_PER_OPERATION: Final = {"client get, 1,000 in flight": compare.IN_FLIGHT}
"""Number of calls per operation, for the rows whose operation consists of several calls."""


def rows() -> list[Row]:
    """Return all rows: warm requests, cold requests and client calls."""
    warm = [Row(table, op, 64, 1344) for table in ("warm", "warm-3.8") for op in inproc.REQUEST_BUILDERS]
    cold = [Row("cold", op, 0, 64) for op in inproc.REQUEST_BUILDERS]
    return [*warm, *cold, *(Row("client", name, count, 3 * count) for name, count in CLIENTS.items())]


# --- counting instructions with valgrind, which prints the count of a process at its exit ---


def count_instructions(wanted: list[Row], hosts: str) -> dict[Row, float]:
    """Return the number of instructions of one operation of each row.

    Raises:
        RuntimeError: A process failed.
    """
    with tempfile.TemporaryDirectory(prefix="zoolet-budget-") as folder:
        linked = compare.link_checkout(Path(folder, "here"))
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(linked)}
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, __file__]
        asked = ["unit" if row == UNIT_ROW else str(rows().index(row)) for row in wanted]
        done = subprocess.run(
            [*command, "--count", hosts, *asked], env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    spent = {pid: int(count) for pid, count in re.findall(r"==(\d+)== Collected : (\d+)", done.stderr)}
    pids = done.stdout.split()
    costs = [(spent[many] - spent[few]) for few, many in zip(pids[::2], pids[1::2], strict=True)]
    return {
        row: cost / (row.many - row.few) / CALLS_PER_OPERATION.get(row.name, 1)
        for row, cost in zip(wanted, costs, strict=True)
    }


def count(hosts: str, wanted: list[Row]) -> None:
    """Run each row in two processes, with few and with many operations, and print the process ids."""
    for row in wanted:
        for operations in (row.few, row.many):
            pid = os.fork()
            if pid == 0:
                perform(row, operations, hosts)
                os._exit(0)
            _, status = os.waitpid(pid, 0)
            if status:
                sys.exit(f"{row}: the process ended with {status}")
            print(pid, flush=True)


def perform(row: Row, operations: int, hosts: str) -> None:
    """Execute a number of operations of a row, in this process."""
    if row == UNIT_ROW:
        work = inproc.piece_of_work()
        for _ in range(operations):
            work()
    elif row.table == "client":
        import uvloop

        async def times(_count: int, do: compare.Operation, _parts: int = 1) -> None:
            for _ in range(operations):
                await do()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(compare.CLIENTS[row.name](hosts, times))
    else:
        connection = inproc.new_connection(row.name, _release(row), row.many)
        batches = inproc.batches(row.name, row.many)[: operations // inproc.BATCH]
        gc.disable()  # otherwise earlier allocations decide whether a collection falls into these requests
        for batch in batches:
            connection.receive_data(batch)
            connection.data_to_send()


def _release(row: Row) -> str:
    return "3.8" if row.table == "warm-3.8" else "3.9"


# --- measuring CPU time, without valgrind ---


def time_operations(wanted: list[Row], hosts: str) -> dict[Row, float]:
    """Return the CPU time of one operation of each row, in units: the best of three measurements."""
    return {row: min(_time_operation(row, hosts) for _ in range(3)) for row in wanted}


def _time_operation(row: Row, hosts: str) -> float:
    if row == UNIT_ROW:
        return 1.0
    before = inproc.unit()
    if row.table == "client":
        spent = compare.one(row.name, hosts)
    else:
        spent = inproc.measure(row.name, _release(row), runs=1)
    return spent / ((before + inproc.unit()) / 2)


# --- the check ---


def measure_rows(wanted: list[Row], *, counts: bool) -> dict[Row, float]:
    """Return the cost of one operation of each row, in units. *counts* selects instructions instead of CPU time."""
    with load.zoolet() as daemon:
        hosts = f"127.0.0.1:{daemon.port}"
        costs = (count_instructions if counts else time_operations)([UNIT_ROW, *wanted], hosts)
    unit = costs.pop(UNIT_ROW)
    return {row: cost / unit for row, cost in costs.items()}


def read_limits(room: float = 1) -> dict[Row, float]:
    """Read the limit of each row from ``budget.toml``, and divide it by *room*."""
    tables = tomllib.loads(BUDGET.read_text())
    return {row: tables[row.table][row.name] / room for row in rows()}


def write(costs: dict[Row, float]) -> None:
    """Write the measured costs times ``ROOM`` to ``budget.toml``, as limits."""
    text = HEADER
    for table in dict.fromkeys(row.table for row in costs):
        lines = [f'"{row.name}" = {cost * ROOM:.2f}' for row, cost in costs.items() if row.table == table]
        text += "\n".join(["", f'["{table}"]', *lines, ""])
    BUDGET.write_text(text)


def main() -> int:
    """Check the rows, or write the limits. Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows that contain one of these words, comma between")
    parser.add_argument("--write", action="store_true", help="write the limits again")
    parser.add_argument("--count", nargs="+", metavar="HOSTS ROW", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.count:
        hosts, *numbers = options.count
        count(hosts, [UNIT_ROW if number == "unit" else rows()[int(number)] for number in numbers])
        return 0
    words = list(filter(None, options.only.split(",")))
    found = [row for row in rows() if not words or any(word in f"{row.table} {row.name}" for word in words)]
    counts = shutil.which("valgrind") is not None
    if not found:
        parser.error(f"no row contains {options.only}")
    if options.write and not counts:
        parser.error("limits are written with what valgrind counts: install it")
    costs = measure_rows([row for row in found if counts or row.table != "cold"], counts=counts)
    if options.write:
        write(costs if len(found) == len(rows()) else read_limits(ROOM) | costs)
        return 0
    room = 1 if counts else CPU_TIME_RATIO
    allowed = read_limits()
    over = [row for row, cost in costs.items() if cost > allowed[row] * room]
    for row, cost in costs.items():
        verdict = "   OVER" if row in over else ""
        print(f"{row.table:10} {row.name:30} {cost:8.2f} of {allowed[row] * room:8.2f} units{verdict}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
