"""A comparison of zoolet and Apache ZooKeeper under the same load: throughput ratios, pauses, memory, start-up.

    make bench                     everything; about five minutes
    python benchmarks/load.py --rounds 3 --only get,set

The load generator is ``zkload.c``, which this script compiles. Without a C compiler it uses ``pyload.py``, which is
itself the bottleneck and makes the ratios too small. Apache ZooKeeper is Debian's package ``zookeeper``, stand-alone,
without fsync and with its data on a RAM disk. If it is missing, only zoolet is measured. Results are written to
``benchmarks/out/``.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).parent
OUT = HERE / "out"
JARS = Path("/usr/share/java")


@dataclass(frozen=True)
class Row:
    """One line of the table: an operation, and the goal for the ratio.

    *depth* is the number of requests in flight on each connection, *total* the number of requests.
    """

    name: str
    op: str
    connections: int
    depth: int
    total: int
    goal: float


ROWS = [
    *(
        Row(name, op, 8, 64, total, goal)
        for name, op, total, goal in (
            ("get", "get", 200_000, 9),
            ("exists", "exists", 200_000, 9),
            ("ping", "ping", 200_000, 17),
            ("children, 100 names", "children", 100_000, 7),
            ("set", "set", 100_000, 7),
            ("create", "create", 60_000, 6.5),
            ("sequential ephemeral create", "seq", 60_000, 5),
            ("delete", "delete", 60_000, 7),
            ("multi of three", "multi", 50_000, 3.2),
            ("mixed 9:1", "mixed", 200_000, 9),
        )
    ),
    Row("get, 32 connections x 1", "get", 32, 1, 60_000, 1.9),
    Row("set, 32 connections x 1", "set", 32, 1, 60_000, 2.5),
    Row("create, 32 connections x 1", "create", 32, 1, 40_000, 2.4),
    Row("get, one in flight", "get", 1, 1, 10_000, 1.8),
    Row("set, one in flight", "set", 1, 1, 10_000, 2.1),
    Row("sessions opened and closed", "connect", 8, 1, 4_000, 2.8),
    Row("one change to 1,000 watchers", "fanout", 1000, 1, 10, 1.6),
]
README_ROWS = frozenset(
    {"get", "set", "create", "multi of three", "get, 32 connections x 1", "set, 32 connections x 1"}
)
"""Names of the rows in README.md; docs/speed.md contains all rows."""


@dataclass
class Result:
    """The measurements of a row: operations per second in each round."""

    row: Row
    zoolet: list[float] = field(default_factory=list)
    apache: list[float] = field(default_factory=list)

    def ratio(self) -> float | None:
        """Return the ratio of the medians."""
        return statistics.median(self.zoolet) / statistics.median(self.apache) if self.apache else None


# --- servers ---


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A server process as a context manager.

    Args:
        command: Command to run. ``{port}`` and ``{home}`` stand for the server's port and its own directory.
        config: Text of ``{home}/zoo.cfg``, with the same placeholders.
        folder: Folder for the directory, by default in memory.
        environment: Environment variables of the server, by default the same as for this process.
    """

    def __init__(
        self,
        command: list[str],
        config: str = "",
        folder: str | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.port = free_port()
        memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self._home = tempfile.mkdtemp(prefix="zoolet-bench-", dir=folder or memory)
        names = {"port": self.port, "home": self._home}
        Path(self._home, "zoo.cfg").write_text(config.format(**names))
        self._command = [part.format(**names) for part in command]
        self._environment = environment
        self.seconds_to_start = 0.0

    def __enter__(self) -> Self:
        started = time.perf_counter()
        with open(Path(self._home, "log"), "wb") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)
        while b"Mode:" not in self.ask(b"srvr"):
            if self.process.poll() is not None or time.perf_counter() > started + 60:
                raise RuntimeError(Path(self._home, "log").read_text(errors="replace")[-2000:])
        self.seconds_to_start = time.perf_counter() - started
        return self

    def ask(self, word: bytes) -> bytes:
        """Send a four-letter word, and return the answer. It is empty if the server is not listening."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as link:
                link.sendall(word)
                return b"".join(iter(lambda: link.recv(65536), b""))
        except OSError:
            time.sleep(0.002)
            return b""

    def resident_bytes(self) -> int:
        """Return the resident memory of the process in bytes."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def cpu_ns(self) -> int:
        """Return the CPU time of all threads of the process, in nanoseconds."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads)

    def __exit__(self, *exc: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self._home, ignore_errors=True)


def zoolet(*options: str, folder: str | None = None, environment: dict[str, str] | None = None) -> Server:
    """Return a zoolet daemon that is not started yet."""
    command = [sys.executable, "-m", "zoolet", "serve", "--port", "{port}", "-Dzookeeper.maxClientCnxns=0"]
    return Server([*command, *options], folder=folder, environment=environment)


def apache(force_sync: str = "no", folder: str | None = None) -> Server | None:
    """Return an Apache ZooKeeper that is not started yet, or None if it is not installed."""
    if not shutil.which("java") or not (JARS / "zookeeper.jar").exists():
        return None
    jars = ":".join(str(jar) for jar in sorted(JARS.glob("*.jar")))
    config = (
        "dataDir={home}\nclientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\ntickTime=2000\n"
        "admin.enableServer=false\n"
    )
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    return Server(
        ["java", "-Xmx2g", "-cp", jars, f"-Dzookeeper.forceSync={force_sync}", main, "{home}/zoo.cfg"], config, folder
    )


# --- load ---


def generator() -> list[str]:
    """Build the load generator, and return its command. Raise this process's limit of open files, which it inherits."""
    from zoolet.server.admin.descriptors import raise_limit  # older commits in compare.py lack this

    raise_limit()
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        print(
            "no C compiler: the load comes from benchmarks/pyload.py, which is itself the bottleneck", file=sys.stderr
        )
        return [sys.executable, str(HERE / "pyload.py")]
    binary, source = HERE / "zkload", HERE / "zkload.c"
    if not binary.exists() or binary.stat().st_mtime < source.stat().st_mtime:
        subprocess.run([compiler, "-O2", "-o", str(binary), str(source)], check=True)
    return [str(binary)]


def run(load: list[str], server: Server, row: Row, total: int | None = None) -> dict[str, Any]:
    """Put the load of a row on a server, and return the generator's report.

    Raises:
        RuntimeError: The generator failed.
    """
    count = row.total if total is None else total
    arguments = ["-n", str(count), "-k", "100"]
    arguments += (
        ["-w", str(row.connections)] if row.op == "fanout" else ["-c", str(row.connections), "-d", str(row.depth)]
    )
    done = subprocess.run([*load, str(server.port), row.op, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{row.name}: {done.stderr or done.stdout}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def compare(load: list[str], rows: list[Row], rounds: int) -> list[Result]:
    """Measure all rows on both servers in turns, after a warm-up of both."""
    results = [Result(row) for row in rows]
    other = apache()
    with zoolet() as ours:
        theirs = other.__enter__() if other is not None else None
        try:
            for server in filter(None, (ours, theirs)):
                for row in ROWS[:10]:
                    run(load, server, row, 20_000)
            for result in results:
                for _ in range(rounds):
                    result.zoolet.append(run(load, ours, result.row)["ops_per_s"])
                    if theirs is not None:
                        result.apache.append(run(load, theirs, result.row)["ops_per_s"])
                print(format_result(result), flush=True)
        finally:
            if other is not None:
                other.__exit__()
    return results


def format_result(result: Result) -> str:
    """Return one row of the table."""
    row, ours = result.row, result.zoolet
    text = f"{row.name:30} {statistics.median(ours):10,.0f}/s"
    ratio = result.ratio()
    if ratio is not None:
        low = min(ours) / max(result.apache)
        high = max(ours) / min(result.apache)
        text += f" {statistics.median(result.apache):10,.0f}/s   x {ratio:5.2f}  ({low:.1f} to {high:.1f})"
        text += f"   goal {row.goal:g}"
        text += "" if ratio >= row.goal else "   MISSED"
    return text


def big_tree(load: list[str], nodes: int) -> dict[str, float]:
    """Create *nodes* nodes of 100 bytes on a new server. Return the memory use and the slowest request."""
    with zoolet() as server:
        report = run(load, server, Row("create", "create", 4, 16, nodes, 0))
        return {
            "nodes": nodes,
            "resident_mb": round(server.resident_bytes() / 1e6, 1),
            "worst_request_ms": report["max_us"] / 1000,
            "p99_ms": report["p99_us"] / 1000,
            "ops_per_s": report["ops_per_s"],
        }


def measure_start_up(times: int = 5) -> float:
    """Return the median time from the start of the daemon to its first answer, in seconds.

    The modules are compiled before, as in an installation.
    """
    for folder in ("protocol", "server", "cli"):  # a daemon imports no other folders
        compileall.compile_dir(HERE.parent / folder, quiet=1)
    seconds = []
    for _ in range(times):
        with zoolet() as server:
            seconds.append(server.seconds_to_start)
    return statistics.median(seconds)


# --- reports ---


def machine() -> str:
    """Return a description of this machine and its Python."""
    model = ""
    if Path("/proc/cpuinfo").exists():
        names = [text for text in Path("/proc/cpuinfo").read_text().splitlines() if text.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else ""
    options = sysconfig.get_config_var("CONFIG_ARGS") or ""
    # The prefix shows the distribution, whose builds may be profile-guided although these options do not say so.
    build = "with" if "--enable-optimizations" in options else "without"
    source = f" of {sys.base_prefix}" if sys.base_prefix in ("/usr", "/usr/local") else ""
    python = f"Python {platform.python_version()}{source}, configured {build} --enable-optimizations"
    return f"{os.cpu_count()} cores {model or platform.machine()}, {python}"


def chart(results: list[Result]) -> str:
    """Draw the ratios as an SVG bar chart."""
    rows = [(result.row.name, ratio) for result in results if (ratio := result.ratio()) is not None]
    widest = max(ratio for _, ratio in rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{40 + 24 * len(rows)}"',
        ' font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="10" y="20">requests a second, zoolet as a multiple of Apache ZooKeeper 3.8</text>',
    ]
    for at, (name, ratio) in enumerate(rows):
        y = 34 + 24 * at
        parts.append(f'<text x="230" y="{y + 14}" text-anchor="end">{name}</text>')
        parts.append(f'<rect x="240" y="{y}" width="{400 * ratio / widest:.0f}" height="18" fill="#3b7dd8"/>')
        parts.append(f'<text x="{248 + 400 * ratio / widest:.0f}" y="{y + 14}">{ratio:.1f}</text>')
    one = 240 + 400 / widest
    parts.append(f'<line x1="{one:.0f}" x2="{one:.0f}" y1="30" y2="{34 + 24 * len(rows)}" stroke="#c33"/>')
    return "\n".join([*parts, "</svg>", ""])


def table(report: dict[str, Any], names: frozenset[str] | None = None) -> str:
    """Format the report as a table in Markdown.

    Args:
        report: Results that :func:`main` has written.
        names: Names of the rows to include, or None for all rows.
    """
    runs = len(report["rows"][0]["zoolet"])
    load = "8 connections with 64 requests in flight each, unless stated"
    lines = [f"Measured {report['date'][:10]} on {report['machine']}. Medians of {runs} alternating runs.", ""]
    lines += [
        f"| requests per second, {load} | zoolet | Apache 3.8 | ratio |",
        "|---|---:|---:|---:|",
    ]
    for row in report["rows"]:
        if names is not None and row["row"]["name"] not in names:
            continue
        ours, theirs = statistics.median(row["zoolet"]), statistics.median(row["apache"] or [0])
        ratio = f"{row['ratio']:.1f}" if row["ratio"] else ""
        lines.append(f"| {row['row']['name']} | {ours:,.0f} | {theirs:,.0f} | {ratio} |")
    lines += ["", f"The daemon answers {report['start_to_first_answer_ms']:.0f} ms after its start."]
    if "big_tree" in report:
        big = "{nodes:,} nodes of 100 bytes: {resident_mb:.0f} MB resident, worst request while they were created"
        lines[-1] += " " + (big + " {worst_request_ms:.0f} ms.").format(**report["big_tree"])
    return "\n".join(lines)


def replace_table(page: Path, text: str, marker: str = "bench") -> None:
    """Replace the text between the two comments of a page that contain *marker*."""
    start, end = f"<!-- {marker} -->", f"<!-- /{marker} -->"
    before, _, rest = page.read_text().partition(start)
    page.write_text(f"{before}{start}\n{text}\n{end}{rest.partition(end)[2]}")


def publish(report: dict[str, Any]) -> None:
    """Write the rows of ``README_ROWS`` to README.md, and the whole table and the chart to docs/."""
    root = HERE.parent
    replace_table(root / "README.md", table(report, README_ROWS))
    replace_table(root / "docs" / "speed.md", table(report))
    shutil.copy(OUT / "load.svg", root / "docs" / "load.svg")


def main() -> None:
    """Measure the servers, print the table, and write or publish the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="turns for each row (default 3)")
    parser.add_argument("--only", default="", help="rows whose operation is one of these, comma between")
    parser.add_argument("--nodes", type=int, default=1_000_000, help="size of the big tree; 0 leaves it out")
    parser.add_argument(
        "--publish", action="store_true", help="put the last results into README.md and docs/, measure nothing"
    )
    options = parser.parse_args()
    if options.publish:
        publish(json.loads((OUT / "load.json").read_text()))
        return
    wanted = set(filter(None, options.only.split(",")))
    load = generator()
    print(machine())
    results = compare(load, [row for row in ROWS if not wanted or row.op in wanted], options.rounds)
    report: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "rows": [{**asdict(result), "ratio": result.ratio()} for result in results],
        "start_to_first_answer_ms": round(measure_start_up() * 1000, 1),
    }
    print(f"start to first answer {report['start_to_first_answer_ms']} ms")
    if options.nodes:
        report["big_tree"] = big_tree(load, options.nodes)
        print(
            "{nodes:,} nodes: {resident_mb} MB resident, worst request {worst_request_ms} ms".format(
                **report["big_tree"]
            )
        )
    OUT.mkdir(exist_ok=True)
    (OUT / "load.json").write_text(json.dumps(report, indent=1))
    if any(result.apache for result in results):
        (OUT / "load.svg").write_text(chart(results))
    print(f"written to {OUT}")


if __name__ == "__main__":
    main()
