"""Tests with ``@pytest.mark.zoolet(recording=...)``: the first run that passes is saved, and later runs replay it.

A test's outcome is known only after the fixture ``zoolet`` ends. So the fixture leaves a :class:`PendingRecording`,
which receives the reports of the test, and saves the recording when the last report arrives.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from ...protocol.messages import file_error_reason
from ..recording.canned import CannedServer
from ..recording.recording import Recording
from ..state.report import file_name

if TYPE_CHECKING:
    from ..server import Server

_PENDING_RECORDINGS: Final = pytest.StashKey[list["PendingRecording"]]()
"""The recordings of this run that are not saved yet."""


class PendingRecording:
    """The recording of a running test, which is saved if the test passes.

    Args:
        path: The file to write.
        recording: The recording.
    """

    def __init__(self, path: Path, recording: Recording) -> None:
        self._recording_path = path
        self._recording = recording
        self._outcomes: set[str] = set()  # outcomes of the call phase and its subtests

    def receive(self, report: pytest.TestReport) -> bool:
        """Receive the report of a phase of the test, and return whether it was the last report.

        The last report saves the recording of a test that has passed. If saving fails, the report
        becomes a failure.
        """
        if report.when == "call":
            self._outcomes.add(report.outcome)
        elif report.when == "teardown" and report.passed and self._outcomes == {"passed"}:
            try:
                self._save()
            except OSError as error:
                report.outcome, report.longrepr = (
                    "failed",
                    f"cannot write {self._recording_path}: {file_error_reason(error)}",
                )
        return report.when == "teardown"

    def _save(self) -> None:
        """Write the file in one step, because another process may read it."""
        self._recording_path.parent.mkdir(parents=True, exist_ok=True)
        part = self._recording_path.with_name(f".{os.getpid()}.zoolet-part")
        try:
            self._recording.redacted().save(part)
            part.replace(self._recording_path)
        finally:
            part.unlink(missing_ok=True)


def receive(config: pytest.Config, report: pytest.TestReport) -> None:
    """Pass the report of a phase of a test to the recordings of this run."""
    tapes = config.stash.get(_PENDING_RECORDINGS, [])
    tapes[:] = [tape for tape in tapes if not tape.receive(report)]


@contextmanager
def record_or_replay(
    request: pytest.FixtureRequest, file: object, serve: Callable[[], AbstractContextManager[Server]]
) -> Iterator[Server]:
    """Record the requests to a server, or replay the file of an earlier run.

    Args:
        request: The request for the fixture.
        file: Name of the file, or True for a name that is derived from the test's name.
        serve: Function that returns the server to record, as a context manager.

    Raises:
        pytest.UsageError: A different test has recorded the file, or several tests share the server.
    """
    if request.scope != "function":
        raise pytest.UsageError(
            f"{request.node.nodeid} has recording={file!r}, but with zoolet_scope = {request.scope} its server is "
            "shared, and any selection of tests would be a different recording; record with the scope function"
        )
    path = _recording_path(request.node, file)
    test = _test_id(request.node, path)
    if path.exists():
        recording = Recording.load(path)
        if recording.test not in ("", test):
            raise pytest.UsageError(
                f"{path.name} is the recording of {recording.test}, not of {test}; use a different file, or delete "
                "this one"
            )
        with CannedServer(recording.entries, "127.0.0.1", 0, strict=True, answers=True) as canned:
            yield cast("Server", canned)  # its AttributeError explains which methods are missing
        return
    with serve() as server, server.recording() as recording:
        recording.test = test
        request.config.stash.setdefault(_PENDING_RECORDINGS, []).append(PendingRecording(path, recording))
        yield server


def _recording_path(node: Any, file: object) -> Path:
    if file is True:
        return Path(node.path.with_name(file_name(_test_id(node, node.path), ".zoolet")))
    if not isinstance(file, str | os.PathLike):
        raise pytest.UsageError(f"@pytest.mark.zoolet has recording={file!r}; expected the name of a file, or True")
    return Path(node.path.parent, file).resolve()


def _test_id(node: Any, path: Path) -> str:
    """Return the id of a test, with its file relative to the folder of the recording instead of the root folder."""
    return f"{Path(os.path.relpath(node.path, path.parent)).as_posix()}::{node.nodeid.partition('::')[2]}"
