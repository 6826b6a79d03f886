"""Tests with ``@pytest.mark.zoolet(recording=...)``: the first run that passes is saved, and later runs replay it.

The outcome of a test is known only after the end of the fixture ``zoolet``. So the fixture leaves a :class:`Tape`. It
receives the reports of the tests, and saves itself with the last one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from ..recording.canned import CannedServer
from ..recording.recording import Recording
from ..state.report import file_name

if TYPE_CHECKING:
    from ..server import Server

_TAPES: Final = pytest.StashKey[list["Tape"]]()
"""The recordings of this run that are not saved yet."""
_OWNERS: Final = pytest.StashKey[dict[Path, str]]()
"""The test that uses each file, for the tests of this run."""


class Tape:
    """The recording of a test, or of all tests that share the fixture ``zoolet``.

    Args:
        path: The file.
        recording: The recording.
    """

    def __init__(self, path: Path, recording: Recording) -> None:
        self._path = path
        self._recording = recording
        self._is_whole = self._is_broken = False
        self.has_ended = False  # whether this is after the end of the fixture

    def is_done(self, report: pytest.TestReport) -> bool:
        """Receive the report of a phase of a test. Return True after the last one, when the recording is saved.

        A recording with a test that failed, was skipped half-way or was interrupted is not saved.
        """
        if report.when == "call" or report.failed:
            self._is_whole = report.passed
            self._is_broken |= not report.passed
        elif report.when == "setup" and report.passed:
            self._is_whole = False  # until the test has passed
        if report.when != "teardown" or not self.has_ended:
            return False
        if self._is_whole and not self._is_broken:
            self._recording.redacted().save(self._path)
        return True


def receive(config: pytest.Config, report: pytest.TestReport) -> None:
    """Pass the report of a phase of a test to the recordings of this run."""
    tapes = config.stash.get(_TAPES, [])
    tapes[:] = [tape for tape in tapes if not tape.is_done(report)]


@contextmanager
def recorded(
    request: pytest.FixtureRequest, file: object, serve: Callable[[], AbstractContextManager[Server]]
) -> Iterator[Server]:
    """Record the requests to a server, or replay the file of an earlier run.

    Args:
        request: The request for the fixture.
        file: Name of the file, or True for a name that is derived from the test's name.
        serve: Function that returns the server to record.

    Raises:
        pytest.UsageError: A different test has recorded the file, or uses it in this run.
    """
    node, stash = request.node, request.config.stash
    test = "::".join([node.path.name, *filter(None, [node.nodeid.partition("::")[2]])])  # in any root folder
    path = _path(node, file, test)
    owner = stash.setdefault(_OWNERS, {}).setdefault(path, test)
    if path.exists():
        recording = Recording.load(path)
        if owner == test:
            owner = recording.test or test
        if owner == test:
            with CannedServer(recording.entries, "127.0.0.1", 0, strict=True, answers=True) as canned:
                yield cast("Server", canned)  # methods that it does not have raise an AttributeError that explains this
            return
    if owner != test:
        raise pytest.UsageError(
            f"{path.name} is the recording of {owner}, not of {test}; use a different file, or delete this one"
        )
    with serve() as server, server.recording() as recording:
        stash.setdefault(_TAPES, []).append(tape := Tape(path, recording))
        recording.test = test
        yield server
    tape.has_ended = True


def _path(node: Any, file: object, test: str) -> Path:
    folder = node.path if node.path.is_dir() else node.path.parent
    if file is True:
        return Path(folder, file_name(test, ".zoolet"))
    if not isinstance(file, str | os.PathLike):
        raise pytest.UsageError(f"@pytest.mark.zoolet has recording={file!r}; expected the name of a file, or True")
    return Path(folder, file)
