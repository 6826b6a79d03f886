#!/usr/bin/env python3
"""A run of pytest that repeats failed tests in one process, with nothing else running:

    make test RETRY=.ci/retry.py                    .ci/retry.py .venv/bin/pytest -n 4 ...

The suite runs several tests on each core. A failure that does not repeat on a quiet machine is a defect of the test, or
a race that has to be found, but the change did not cause it. So it must not reject the change: the test is listed
as `flaky: TEST`. The run stays red if a test fails again or is skipped then, and if more than 20 tests failed, because
that many mean a broken change or a broken machine. It also stays red if not every test ran once: if a module
cannot be collected, if a process crashed, or if pytest exits with a different code than 1.

This file is also the pytest plugin that records the outcomes. pytest's own list of failed tests (`--last-failed`) is
not enough, because a test leaves the list when xdist repeats it after a crash.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MAX_FAILED = 20
OUTCOMES_VARIABLE = "ZOOLET_OUTCOMES"


# --- the plugin ---


class OutcomeRecorder:
    """A pytest plugin that writes the failed and passed tests, and the causes of missing results, to a file."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)
        self._found: dict[str, list[str]] = {"failed": [], "passed": [], "broken": []}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._found["failed"].append(report.nodeid)
        elif report.passed and report.when == "call":
            self._found["passed"].append(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._found["broken"].append(report.nodeid)

    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if error:
            self._found["broken"].append(f"{node.gateway.id}: {error}")

    def pytest_sessionfinish(self) -> None:
        self._file.write_text(json.dumps(self._found), encoding="utf-8")


def pytest_configure(config: Any) -> None:
    file = os.environ.pop(OUTCOMES_VARIABLE, None)
    if file is not None:
        # The plugin's folder, which is first, is not for programs that the tests start.
        os.environ["PYTHONPATH"] = os.environ["PYTHONPATH"].partition(os.pathsep)[2]
        config.pluginmanager.register(OutcomeRecorder(file))


# --- the command ---


def run(command: list[str], folder: str) -> tuple[int, dict[str, list[str]]]:
    """Run pytest with the plugin. Return the exit code and the outcomes."""
    file = Path(folder) / "outcomes.json"
    file.unlink(missing_ok=True)
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, OUTCOMES_VARIABLE: str(file)}
    code = subprocess.run([*command, "-p", "retry"], env=environment, check=False).returncode
    return code, json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"broken": ["pytest"]}


def main(command: list[str]) -> int:
    """Run the tests. If only a few fail, run the failed tests again. Return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        code, first = run([*command, "--maxfail=0"], folder)
        if code != 1:
            return code
        failed = dict.fromkeys(first.get("failed", []))
        if first["broken"] or not 0 < len(failed) <= MAX_FAILED:
            print(f".ci/retry: {len(failed)} failed, broken: {first['broken']}; not tried again", flush=True)
            return 1

        print(f".ci/retry: {len(failed)} failed; trying again, one after the other", flush=True)
        listed = Path(folder) / "v" / "cache" / "lastfailed"
        listed.parent.mkdir(parents=True)
        listed.write_text(json.dumps(dict.fromkeys(failed, True)), encoding="utf-8")
        only = ["-o", f"cache_dir={folder}", "--last-failed", "--last-failed-no-failures", "none", "-n", "0"]
        code, second = run([*command, *only, "--maxfail=1"], folder)
        if code != 0:
            return code
        if missing := failed.keys() - second["passed"]:
            print(f".ci/retry: neither failed nor passed: {sorted(missing)}", flush=True)
            return 1
        print("".join(f"flaky: {test}\n" for test in failed), end="", flush=True)
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
