"""Attacks on a daemon by a misbehaving client, and their effect on a well-behaved client.

Each attack gets its own daemon.

    make attacks                              everything; about nine minutes while attacks succeed
    python benchmarks/attacks.py --only 7     the attacks whose name is, or starts with, 7
    python benchmarks/attacks.py --apache     the same on Debian's ZooKeeper 3.8.0, where they make sense

A neighbour sends exists("/") every 5 ms over its own connection, from its own process. Each row shows:

- the neighbour's worst latency during the attack, or "lost" if it got no answer for 30 s or was disconnected,
- its worst latency before the attack, which the machine itself adds (distrust a row where it is high),
- the maximum CPU time that the server used during one of the neighbour's requests,
- the daemon's resident memory before the attack, and its peak,
- the result of the attacker.

The exit code is 1 if a limit is exceeded. The attacks are in ``adversary/cases``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from adversary import cases as every_case
from adversary.case import CASES, JAAS, Case, Report
from adversary.target import ApacheTarget, AttackMeasurements, Target

assert every_case  # the import itself matters: it fills CASES

HEADER = f"{'attack':23} {'worst':>9} {'(idle)':>8} {'CPU ms':>6} {'RSS MB':>12}  result  what the attacker got"


def run(case: Case, jaas: str, *, apache: bool) -> dict[str, Any]:
    """Run one attack on a new server, and return a row of the report."""
    properties = {name: value.replace("{jaas}", jaas) for name, value in case.properties.items()}
    options = [*case.options, "--secure-port", "0"] if "--tls-cert" in case.options else case.options
    target = ApacheTarget(properties) if apache else Target(properties, options, case.descriptors)
    report, started = Report(), time.monotonic()
    log = ""
    with target:
        try:
            case.run(target, report)
        except (OSError, RuntimeError, AssertionError, ValueError) as error:
            report.failures.append(f"the attack broke off: {error!r}")
        report.require(target.alive() or case.number == 17, "the server ended")  # attack 17 stops the server
        log = target.log()
    measured = target.measured or AttackMeasurements()
    judge(case, measured, report)
    if target.stopped:
        report.failures.append(target.stopped)
    if "Traceback" in log:
        report.failures.append("the server logged a traceback")
    return {
        "attack": case.name,
        **{name: value if math.isfinite(value) else None for name, value in asdict(measured).items()},
        "bar_ms": case.latency_ms,
        "bar_cpu_ms": case.cpu_ms,
        "bar_mb": case.rss_mb,
        "got": report.got,
        "failures": report.failures,
        "tracebacks": log.count("Traceback"),
        "total_seconds": round(time.monotonic() - started, 1),
    }


def judge(case: Case, measured: AttackMeasurements, report: Report) -> None:
    """Compare the measurements with the limits of the attack, and add failures to the report."""
    if case.latency_ms is not None and measured.worst_ms > case.latency_ms:
        report.failures.append(f"over {case.latency_ms:g} ms")
    if case.cpu_ms is not None and measured.worst_cpu_ms > case.cpu_ms:
        report.failures.append(f"over {case.cpu_ms:g} ms of CPU")
    if case.rss_mb is not None and measured.peak_mb > case.rss_mb:
        report.failures.append(f"over {case.rss_mb:g} MB")


def format_row(row: dict[str, Any]) -> str:
    """Format a row of the report as a line of the table."""
    worst = "lost" if row["worst_ms"] is None else f"{row['worst_ms']:,.0f} ms" if row["worst_ms"] else "-"
    idle = f"{row['idle_ms']:.0f} ms" if row["idle_ms"] else "-"
    memory = f"{row['base_mb']:,.0f} > {row['peak_mb']:,.0f}" if row["base_mb"] else "-"
    verdict = "FAIL" if row["failures"] else "pass"
    cpu = f"{row['worst_cpu_ms']:.0f}"
    text = f"{row['attack']:23} {worst:>9} {idle:>8} {cpu:>6} {memory:>12}  {verdict}    {row['got']}"
    text += f"; {row['tracebacks']} tracebacks in the log" if row["tracebacks"] else ""
    return text + (f"  [{'; '.join(row['failures'])}]" if row["failures"] else "")


def main() -> int:
    """Run the selected attacks, and print the table. Return 1 if any attack exceeded a limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="attacks of these numbers or names, comma between")
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    parser.add_argument("--apache", action="store_true", help="attack Debian's ZooKeeper instead; the exit code is 0")
    options = parser.parse_args()
    wanted = set(filter(None, options.only.split(",")))
    cases = [case for case in CASES if not wanted or {case.name, str(case.number)} & wanted]
    cases.sort(key=lambda case: case.number)
    if not cases:
        parser.error(f"there is no attack {options.only}")
    cases = [case for case in cases if case.apache or not options.apache]
    print(HEADER)
    rows = []
    with tempfile.NamedTemporaryFile("w", prefix="zoolet-jaas-") as jaas:
        jaas.write(JAAS)
        jaas.flush()
        for case in cases:
            rows.append(run(case, jaas.name, apache=options.apache))
            print(format_row(rows[-1]), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))
    missed = [row["attack"] for row in rows if row["failures"]]
    print(f"{len(rows) - len(missed)} of {len(rows)} pass")
    return 1 if missed and not options.apache else 0


if __name__ == "__main__":
    sys.exit(main())
