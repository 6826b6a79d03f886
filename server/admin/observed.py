"""The view of a server that commands, metrics and health reports share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from zoolet.server.core.engine import Engine
from zoolet.server.core.metrics import Summary

_BUILT: Final = "11/22/2026 00:00 UTC"
"""The date of the release, in the form of ZooKeeper up to 3.6: go-zookeeper reads no other one, and others read any."""
PYTHON: Final = ".".join(map(str, sys.version_info[:3]))


def _nothing() -> dict[str, object]:
    return {}


def _none() -> None:
    return None


@dataclass(slots=True)
class Observed:
    """A server, as monitoring sees it.

    Args:
        engine: Its engine.
        configuration: Returns the ports, limits and directories that ``conf`` shows, by ZooKeeper's keys.
        file: The text of its zoo.cfg; None without one.
        last_snapshot: Returns the zxid of the last snapshot, and when it was written, in seconds since the epoch; None
            for none.
        waiting: Returns how many connections have requests that wait for a turn.
        certificate_ends: When the certificate of the TLS port ends, in seconds since the epoch; 0 without one.
        data_dir: The data directory; None for a server in memory.
        samples: The times of some requests in milliseconds, by the name of a label and its value.
        role: Returns ``standalone``, or what the server is in an ensemble.
        quorum: Returns the figures of ``mntr`` that only a member of an ensemble has.
    """

    engine: Engine
    configuration: Callable[[], Mapping[str, object]] = _nothing
    file: str | None = None
    last_snapshot: Callable[[], tuple[int, int] | None] = _none
    waiting: Callable[[], int] = int
    certificate_ends: float = 0.0
    data_dir: str | None = None
    samples: dict[str, dict[str, Summary]] = field(default_factory=dict)
    role: Callable[[], str] = lambda: "standalone"
    quorum: Callable[[], Mapping[str, str | int]] = dict

    def version(self) -> str:
        """Return the text of the version line, in the form that tools parse."""
        return f"{self.engine.settings.compat.release}-zoolet, built on {_BUILT}"

    def running_ms(self) -> int:
        """Return for how long it has run, in milliseconds."""
        return self.engine.monotonic_ms - self.engine.started

    def node_count(self) -> int:
        """Return the number of nodes; the root is counted twice, as in ZooKeeper."""
        return self.engine.tree.size + 1

    def mode(self) -> str:
        """Return the server's role, or ``read-only`` where clients cannot write."""
        return "read-only" if self.refusal() else self.role()

    def refusal(self) -> str:
        """Return why clients cannot write, in one line; empty if they can."""
        if self.engine.refusal:
            return self.engine.refusal
        return "the server is in read-only mode" if self.engine.read_only else ""
