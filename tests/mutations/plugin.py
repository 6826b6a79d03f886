"""A pytest plugin that records which tests execute which lines of the sources, or runs a list of tests.

``TRACE_INTO`` names a folder: each process that runs tests writes a `Trace` there. ``ONLY`` names a file with the ids
of the tests to run.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from mutations.mutants import SOURCES

TRACE_INTO: Final = "ZOOLET_MUTATIONS_TRACE_INTO"
ONLY: Final = "ZOOLET_MUTATIONS_ONLY"


class Trace(NamedTuple):
    """The recorded lines, durations and processes of tests.

    Args:
        seconds: Duration of each test.
        processes: Tests that started another process; the lines of that process are not known.
        lines: For each module and line, the tests that executed it, as positions in ``seconds``; none for imports.
    """

    seconds: dict[str, float]
    processes: list[str]
    lines: dict[str, dict[str, list[int]]]

    def without(self, files: Collection[str]) -> Trace:
        """Return a copy without the tests of some files."""
        kept = [test for test in self.seconds if test.partition("::")[0] not in files]
        place = {test: number for number, test in enumerate(kept)}
        moved = [place.get(test) for test in self.seconds]
        return Trace(
            {test: self.seconds[test] for test in kept},
            [test for test in self.processes if test in place],
            {
                module: {
                    line: [number for test in tests if (number := moved[test]) is not None]
                    for line, tests in tests_of.items()
                }
                for module, tests_of in self.lines.items()
            },
        )


def read_traces(folder: Path) -> Trace:
    """Return the merged traces of all processes, read from a folder."""
    return merge_traces([Trace(*json.loads(file.read_text())) for file in folder.iterdir()])


def merge_traces(traces: Iterable[Trace]) -> Trace:
    """Merge several traces into one."""
    seconds: dict[str, float] = {}
    processes: set[str] = set()
    lines: dict[str, dict[str, list[int]]] = {}
    for one in traces:
        seconds |= one.seconds
        processes |= set(one.processes)
        place = {test: number for number, test in enumerate(seconds)}
        moved = [place[test] for test in one.seconds]
        for module, tests_of in one.lines.items():
            known = lines.setdefault(module, {})
            for line, tests in tests_of.items():
                known.setdefault(line, []).extend(moved[test] for test in tests)
    return Trace(seconds, sorted(processes), lines)


class LineRecorder:
    """A plugin that records executed lines, durations and started processes.

    Args:
        root: The folder of the project.
        into: The folder for traces.
    """

    def __init__(self, root: Path, into: Path) -> None:
        import coverage  # only `make mutations` installs it

        self._root, self._into = root, into
        self._seconds: dict[str, float] = {}
        self._processes: set[str] = set()
        self._test = ""
        include = [str(root / pattern) for patterns in SOURCES.values() for pattern in patterns]
        self._coverage = coverage.Coverage(data_file=None, config_file=False, include=include)
        self._coverage.start()
        sys.addaudithook(self._note_process)

    def _note_process(self, event: str, _: tuple[object, ...]) -> None:
        if event in ("subprocess.Popen", "os.posix_spawn", "os.fork") and self._test:
            self._processes.add(self._test)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Attribute the following lines to this test."""
        self._test = item.nodeid
        self._coverage.switch_context(str(len(self._seconds)))
        self._seconds[item.nodeid] = 0.0
        try:
            return (yield)
        finally:
            self._test = ""
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the duration of a test's step to the test's total."""
        if report.nodeid in self._seconds:  # absent if the test ran in another process
            self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the trace."""
        self._coverage.stop()
        data = self._coverage.get_data()
        lines = {
            Path(file).relative_to(self._root).as_posix(): {
                str(line): [int(test) for test in tests if test]
                for line, tests in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        trace = Trace(self._seconds, sorted(self._processes), lines)
        (self._into / f"{os.getpid()}.json").write_text(json.dumps(trace))


class SelectedTests:
    """A plugin that runs only listed tests.

    Args:
        tests: Their ids.
    """

    def __init__(self, tests: frozenset[str]) -> None:
        self._tests = tests

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Deselect all other tests."""
        items[:] = [item for item in items if item.nodeid in self._tests]


# Start when this module is imported, because lines executed by imports belong to no test.
_TRACING: Final = LineRecorder(Path.cwd(), Path(os.environ[TRACE_INTO])) if TRACE_INTO in os.environ else None


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugins that the environment selects."""
    if _TRACING is not None:
        config.pluginmanager.register(_TRACING)
    if only := os.environ.get(ONLY):
        config.pluginmanager.register(SelectedTests(frozenset(Path(only).read_text().splitlines())))
