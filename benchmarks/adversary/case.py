"""One attack: its row in the table, its report, and the decorator that adds it to the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from adversary.target import Target

MEGABYTE: Final = 1_000_000
NEIGHBOUR_MS: Final = 100.0
RSS_MB: Final = 300.0
EPHEMERAL: Final = 1
JAAS: Final = 'Server {\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n  user_bob="secret";\n};\n'


@dataclass
class Report:
    """What an attack says of its course."""

    got: str = ""
    failures: list[str] = field(default_factory=list)

    def require(self, true: object, claim: str) -> None:
        """Record a failure unless a claim holds."""
        if not true:
            self.failures.append(claim)


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Args:
        name: Number and name.
        run: The attack.
        latency_ms: The neighbour's worst latency that passes; None where it is not measured or not judged.
        rss_mb: The daemon's peak resident memory that passes; None where it is not judged.
        properties: The server's properties; ``{jaas}`` stands for a JAAS file.
        options: Further options of the daemon.
        descriptors: The daemon's limit on descriptors.
        apache: Whether the attack makes sense on Apache ZooKeeper as it is started here.
    """

    name: str
    run: Callable[[Target, Report], None]
    latency_ms: float | None
    rss_mb: float | None
    properties: dict[str, str]
    options: list[str]
    descriptors: int
    apache: bool

    @property
    def number(self) -> int:
        """The number of the attack, of which this is a variant."""
        return int(self.name.partition("-")[0])


CASES: list[Case] = []
"""All attacks, once :mod:`adversary.cases` is imported."""


def attack(
    name: str,
    *,
    latency_ms: float | None = None,
    rss_mb: float | None = None,
    properties: dict[str, str] | None = None,
    options: list[str] | None = None,
    descriptors: int = 0,
    apache: bool = True,
) -> Callable[[Callable[[Target, Report], None]], Callable[[Target, Report], None]]:
    """Add a function to the table; the arguments are those of :class:`Case`."""

    def add(run: Callable[[Target, Report], None]) -> Callable[[Target, Report], None]:
        CASES.append(Case(name, run, latency_ms, rss_mb, properties or {}, options or [], descriptors, apache))
        return run

    return add
