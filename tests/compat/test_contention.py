"""kazoo's Lock excludes other processes even if holders are killed; benchmarks/contention.py runs the processes."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
from support.daemon import DaemonProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def contention(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark as a module."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module("contention")


def test_four_processes_with_lock_lose_no_update(daemon: DaemonProcess, contention: ModuleType) -> None:
    result = contention.contend(daemon.hosts, processes=4, rounds=50)

    assert result.count == 200
    assert result.broken == []


def test_lock_of_killed_holder_passes_to_next_process(daemon: DaemonProcess, contention: ModuleType) -> None:
    result = contention.contend(
        daemon.hosts, processes=4, rounds=60, kill_every=0.1, kills=3, session_timeout=1.5, tick=0.2
    )

    assert result.kills == 3
    assert result.worst_handover_s is not None
    # Allowed, because the time of a handover matters only in the benchmark.
    assert {*result.broken} <= {"a handover took too long"}
