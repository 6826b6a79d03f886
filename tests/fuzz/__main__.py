"""The program that runs all fuzzers in turn: ``make fuzz``, optionally with FRAMES=, MINUTES= and SEED=."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import subprocess
import sys
from math import inf
from random import SystemRandom
from typing import Final

from fuzz import clientside, inprocess, sockets

TARGETS: Final = ("server", "client", "http", "snapshots", "logs", "recordings", "dumped", "settings", "shell")


def guided(minutes: float) -> int:
    """Run each coverage-guided target in a separate process. Return the number of targets with findings."""
    if importlib.util.find_spec("atheris") is None:
        print("\nno inputs grow by coverage, which is a finding: pip install atheris")
        return 1
    seconds = max(round(minutes * 60 / len(TARGETS)), 1)
    found = 0
    for name in TARGETS:
        command = [sys.executable, "-m", "fuzz.guided", name, f"-max_total_time={seconds}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in done.stderr.splitlines() if line.startswith("Done ")]
        print(f"{name}: {lines[-1] if lines else 'ended early'}", flush=True)
        if done.returncode:
            found += 1
            print((done.stdout + done.stderr)[-3000:])
    return found


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--frames", type=int, default=10_000_000, help="to the server's core, in process")
    parser.add_argument("--minutes", type=float, default=5.0, help="over sockets")
    parser.add_argument("--guided", type=float, default=9.0, help="minutes of inputs that grow by coverage")
    parser.add_argument("--seed", type=int, default=None, help="by default one of the system's")
    arguments = parser.parse_args()
    seed = SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    replies = arguments.frames // 40
    minutes = (
        arguments.frames / inprocess.FORECAST_FRAMES_PER_SECOND / 60
        + replies / clientside.FORECAST_FRAMES_PER_SECOND / 60
    )
    minutes += arguments.minutes + arguments.guided
    print(f"seed {seed}; this takes about {minutes:.0f} minutes\n")
    logging.disable(logging.WARNING)  # refused logins and exceeded quotas are expected by the thousand
    print(f"{arguments.frames:,} frames to the server's core, in process", flush=True)
    found = inprocess.fuzz(seed, arguments.frames, minutes=inf)
    print(f"\n{replies:,} frames to the client's session, in process", flush=True)
    found += clientside.fuzz(seed, replies)
    print(f"\n{arguments.minutes:g} minutes against a daemon, over sockets", flush=True)
    found += sockets.fuzz(seed, arguments.minutes)
    found += guided(arguments.guided)
    print(f"\nseed {seed}: {found} findings")
    return found > 0


if __name__ == "__main__":
    sys.exit(main())
