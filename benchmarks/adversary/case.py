"""An attack: its row in the table, its report, and the decorator that adds the row to the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from adversary.target import Target

MEGABYTE: Final = 1_000_000
MAX_NEIGHBOUR_MS: Final = 100.0
MAX_RSS_MB: Final = 300.0
EPHEMERAL_FLAG: Final = 1
JAAS: Final = 'Server {\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n  user_bob="secret";\n};\n'


@dataclass
class Report:
    """The report of an attack: the result of the attacker, and the failures of the server."""

    got: str = ""
    failures: list[str] = field(default_factory=list)

    def require(self, condition: object, failure: str) -> None:
        """Record a failure unless a condition is true."""
        if not condition:
            self.failures.append(failure)


@dataclass(frozen=True)
class Case:
    """One row of the table: an attack and its limits.

    Args:
        name: Number and name, separated by a hyphen.
        run: Function that attacks.
        latency_ms: Limit for the neighbour's worst latency, or None if the latency is not measured or not limited.
        cpu_ms: Limit for the CPU time of the server during one request of the neighbour, or None for no limit.
        rss_mb: Limit for the daemon's peak resident memory, or None for no limit.
        properties: Properties of the server. ``{jaas}`` stands for a JAAS file.
        options: Further options of the daemon.
        descriptors: Maximum number of descriptors of the daemon.
        apache: Whether the attack can also run on Apache ZooKeeper with the configuration of :class:`ApacheTarget`.
    """

    name: str
    run: Callable[[Target, Report], None]
    latency_ms: float | None
    cpu_ms: float | None
    rss_mb: float | None
    properties: dict[str, str]
    options: list[str]
    descriptors: int
    apache: bool

    @property
    def number(self) -> int:
        """The number of the attack. Variants of an attack have the same number."""
        return int(self.name.partition("-")[0])


CASES: list[Case] = []
"""All attacks. The list is filled by the import of :mod:`adversary.cases`."""


def attack(
    name: str,
    *,
    latency_ms: float | None = None,
    cpu_ms: float | None = None,
    rss_mb: float | None = None,
    properties: dict[str, str] | None = None,
    options: list[str] | None = None,
    descriptors: int = 0,
    apache: bool = True,
) -> Callable[[Callable[[Target, Report], None]], Callable[[Target, Report], None]]:
    """Return a decorator that adds a function to the table. For the arguments see :class:`Case`."""

    def add(run: Callable[[Target, Report], None]) -> Callable[[Target, Report], None]:
        CASES.append(Case(name, run, latency_ms, cpu_ms, rss_mb, properties or {}, options or [], descriptors, apache))
        return run

    return add
