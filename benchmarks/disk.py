"""A comparison of writes: zoolet in memory, zoolet on a disk, and Apache ZooKeeper with forceSync on the same disk.

    make bench-disk FOLDER=/mnt/disk      about two minutes

In each row, the servers are measured alternately.
"""

from __future__ import annotations

import argparse
import statistics
from contextlib import ExitStack
from typing import Final

from load import ROWS, Row, Server, apache, generator, machine, run, zoolet

DISK_ROWS: Final = (
    Row("set, 8 x 64", "set", 8, 64, 60_000, 0),
    Row("create, 8 x 64", "create", 8, 64, 40_000, 0),
    Row("multi, 8 x 16", "multi", 8, 16, 20_000, 0),
    Row("set, 64 x 1", "set", 64, 1, 20_000, 0),
    Row("set, 8 x 1", "set", 8, 1, 10_000, 0),
    Row("set, 1 x 1", "set", 1, 1, 3_000, 0),
    Row("get, 8 x 64", "get", 8, 64, 100_000, 0),
)


def main() -> None:
    """Measure the rows, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True, help="a folder on the disk")
    parser.add_argument("--rounds", type=int, default=3, help="turns for each row (default 3)")
    options = parser.parse_args()
    servers: dict[str, Server | None] = {"in memory": zoolet()}
    for fsync in ("interval", "never", "always"):
        servers[fsync] = zoolet("--data-dir", "{home}/data", f"-Dzoolet.fsync={fsync}", folder=options.folder)
    servers["Apache, forceSync"] = apache("yes", options.folder)
    load = generator()
    with ExitStack() as stack:
        running = {name: stack.enter_context(server) for name, server in servers.items() if server is not None}
        for server in running.values():
            for row in ROWS[4:8]:
                run(load, server, row, 20_000)
        print(machine())
        print("writes a second".ljust(18), *(name.rjust(18) for name in running))
        for row in DISK_ROWS:
            results: dict[str, list[float]] = {name: [] for name in running}
            for _ in range(options.rounds):
                for name, server in running.items():
                    results[name].append(run(load, server, row)["ops_per_s"])
            medians = (f"{statistics.median(result):,.0f}".rjust(18) for result in results.values())
            print(row.name.ljust(18), *medians, flush=True)


if __name__ == "__main__":
    main()
