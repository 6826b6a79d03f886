"""The entry point of the consistency checker, which applies all rules to a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ...protocol.errors import MarshallingError
from ..frames.requests import Entry
from ..recording.recording import Recording
from . import clients, families, nodes, stats, watches
from .facts import Facts, Zxids
from .violation import Violation

RULES: Final[tuple[Callable[[Facts], Iterator[Violation]], ...]] = (
    clients.find_backward_states,
    clients.find_backward_reads,
    clients.find_reordered_writes,
    clients.find_shared_zxids,
    clients.find_shared_sessions,
    clients.find_answers_to_closed_sessions,
    clients.find_ephemerals_of_closed_sessions,
    families.find_repeated_sequences,
    nodes.find_impossible_answers,
    nodes.find_effects_of_failed_writes,
    nodes.find_contradictory_nodes,
    nodes.find_lost_versions,
    families.find_contradictory_lists,
    families.find_shared_locks,
    stats.find_contradictory_stats,
    watches.find_wrong_events,
)
"""All rules. If violations are equally short, :func:`check` returns the violation that ends first."""


class UnreadableError(ValueError):
    """A recording contains a handshake or an event that cannot be decoded."""


def check(history: Recording | Sequence[Entry]) -> Violation | None:
    """Check whether the recorded answers are consistent with a single ZooKeeper.

    Unrecorded changes, by unanswered writes, other clients or expired sessions, are not reported as violations. A
    history must not span ``restore()``, ``reset()`` or ``restart(keep=False)``, which go back on purpose.

    Args:
        history: A recording of servers of one ensemble, from ``recording()`` or ``zoolet proxy --record``.

    Returns:
        The shortest violation among the first violations of each rule, reduced to the necessary requests; None if the
        history is consistent. The violation's ``story`` describes it.

    Raises:
        TypeError: *history* is neither a Recording nor a sequence of entries. For example, it is a file name.
        UnreadableError: A handshake or an event cannot be decoded.
    """
    if isinstance(history, str) or not isinstance(history, Recording | Sequence):
        raise TypeError(
            f"history must be a Recording or a list of its entries, not {history!r}; "
            "use Recording.load() to read a file"
        )
    try:
        return _shortest_violation(history.entries if isinstance(history, Recording) else list(history))
    except MarshallingError as error:
        raise UnreadableError(f"the recording contains an invalid handshake or event: {error}") from None


def _shortest_violation(entries: list[Entry]) -> Violation | None:
    facts = Facts.read(entries)
    place = {id(entry): number for number, entry in enumerate(entries)}
    found = [violation for rule in RULES if (violation := next(rule(facts), None)) is not None]
    if not found:
        return None
    shortest = min(found, key=lambda violation: (len(violation.entries), place[id(violation.entries[-1])]))
    return _minimize(shortest, facts.zxids)


def _minimize(violation: Violation, zxids: Zxids) -> Violation:
    """Return the violation without the entries that are not needed to show it."""
    for left_out in violation.entries:
        entries = [entry for entry in violation.entries if entry is not left_out]
        facts = Facts.read(entries, zxids)
        for rule in RULES:
            shorter = next((found for found in rule(facts) if found.rule == violation.rule), None)
            if shorter is not None:
                return _minimize(shorter, zxids)
    return violation


def join_recordings(recordings: Sequence[Recording]) -> list[Entry]:
    """Return the entries of an ensemble's recordings, one per server, with connection numbers that do not overlap."""
    entries: list[Entry] = []
    highest = 0
    for recording in recordings:
        shifted = [entry._replace(connection=entry.connection + highest) for entry in recording.entries]
        highest = max((entry.connection for entry in shifted), default=highest)
        entries += shifted
    return entries
