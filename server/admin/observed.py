"""The common view of a server for commands, metrics and health reports."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ..core.engine import Engine
from ..core.metrics import Summary

if TYPE_CHECKING:
    from .lock_counts import LockCounts

_BUILT: Final = "11/22/2026 00:00 UTC"
"""The date of the release, in the format of ZooKeeper up to 3.6, because go-zookeeper only reads this format."""
PYTHON_VERSION: Final = ".".join(map(str, sys.version_info[:3]))


class ObserverFacts(NamedTuple):
    """The additional facts about a server that is an observer of an ensemble.

    An observer serves only reads, and is ready while it follows a leader.

    Args:
        problem: A function that returns the reason why no leader is followed, in one line; empty while the observer
            follows a leader.
        metrics: A function that returns the metrics that only an observer has.
    """

    problem: Callable[[], str]
    metrics: Callable[[], Mapping[str, float]]


class MonitoredServer:
    """The view of a server for monitoring.

    Args:
        engine: The engine.
        configuration: A function that returns the ports, limits and directories for ``conf``, by ZooKeeper's keys.
        zoo_cfg_text: Text of the server's zoo.cfg; None if the server was started without one.
        last_snapshot: A function that returns the zxid of the last snapshot and the time when it was written, in
            seconds since the epoch; or None if there is no snapshot.
        count_waiting: A function that returns the number of connections whose requests wait for a turn.
        data_dir: The data directory; None for a server in memory.

    Attributes:
        certificate_ends: Expiry time of the TLS port's certificate in seconds since the epoch; 0 if there is none.
        samples: The times of some requests in milliseconds, by the name and the value of a label.
        role: A function that returns ``standalone``, or the server's role in an ensemble.
        quorum: A function that returns the metrics of ``mntr`` that exist only for a member of an ensemble.
        locks: The counts of locks; None until they are read for the first time.
        observing: The additional facts about an observer; None for other servers.
    """

    def __init__(
        self,
        engine: Engine,
        configuration: Callable[[], Mapping[str, object]] = dict,
        zoo_cfg_text: str | None = None,
        last_snapshot: Callable[[], tuple[int, int] | None] = lambda: None,
        count_waiting: Callable[[], int] = int,
        data_dir: str | None = None,
    ) -> None:
        self.engine = engine
        self.configuration = configuration
        self.zoo_cfg_text = zoo_cfg_text
        self.last_snapshot = last_snapshot
        self.count_waiting = count_waiting
        self.data_dir = data_dir
        self.certificate_ends = 0.0
        self.samples: dict[str, dict[str, Summary]] = {}
        self.role: Callable[[], str] = lambda: "standalone"
        self.quorum: Callable[[], Mapping[str, str | int]] = dict
        self.locks: LockCounts | None = None
        self.observing: ObserverFacts | None = None

    def version(self) -> str:
        """Return the text of the version line, in the form that tools parse."""
        return f"{self.engine.settings.compat.release}-zoolet, built on {_BUILT}"

    def uptime_ms(self) -> int:
        """Return the time since the start of the server, in milliseconds."""
        return self.engine.monotonic_ms - self.engine.started

    def node_count(self) -> int:
        """Return the number of nodes, counted as in ZooKeeper."""
        return self.engine.tree.reported_size

    def mode(self) -> str:
        """Return the server's role, or ``read-only`` while clients cannot write. An observer is always ``observer``."""
        if self.observing is not None:
            return "observer"
        return "read-only" if self.refusal() else self.role()

    def refusal(self) -> str:
        """Return the reason why clients cannot write, in one line; empty if they can."""
        if self.engine.refusal:
            return self.engine.refusal
        return "the server is in read-only mode" if self.engine.read_only else ""

    async def disk(self) -> tuple[int, int] | None:
        """Return the free and the total bytes of the data directory's disk; None for a server in memory.

        Raises:
            OSError: The directory cannot be read.
        """
        if self.data_dir is None:
            return None
        space = await asyncio.to_thread(os.statvfs, self.data_dir)  # a network disk may not answer
        return space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize


def ready(observed: MonitoredServer) -> str:
    """Return the reason why the server is not ready, in one line, or an empty text if it is ready.

    A server is ready while clients can read and write. An observer is ready while it follows a leader, although its
    clients can only read.
    """
    if observed.observing is not None:
        return observed.observing.problem()
    return f"writes are refused: {refusal}" if (refusal := observed.refusal()) else ""
