"""The check of a recording by all rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from zoolet.protocol.errors import MarshallingError
from zoolet.server.testing.checking import clients, families, nodes, watches
from zoolet.server.testing.checking.facts import Facts, Zxids
from zoolet.server.testing.checking.violation import Violation
from zoolet.server.testing.frames.requests import Entry
from zoolet.server.testing.recording.recording import Recording

RULES: Final[tuple[Callable[[Facts], Iterator[Violation]], ...]] = (
    clients.states_go_back,
    clients.reads_go_back,
    clients.writes_out_of_order,
    clients.shared_zxids,
    clients.shared_sessions,
    clients.answers_to_closed_sessions,
    clients.ephemerals_of_closed_sessions,
    families.sequences_repeat,
    nodes.answers_are_impossible,
    nodes.failures_have_changed,
    nodes.nodes_contradict,
    nodes.versions_are_lost,
    families.lists_contradict,
    families.locks_are_shared,
    watches.watches_fail,
)
"""The rules; of two that are violated by as few requests the first is shown."""


class UnreadableError(ValueError):
    """A recording has a handshake or an event that does not decode."""


def check(history: Recording | Sequence[Entry]) -> Violation | None:
    """Check whether what clients were answered is what one ZooKeeper answers.

    Nobody is blamed for what is not recorded: writes that were not answered, other clients, sessions that expired. A
    history must not span ``restore()``, ``reset()`` or ``restart(keep=False)``, which go back on purpose.

    Args:
        history: What was recorded of any servers of one ensemble, by ``recording()`` or ``zoolet proxy --record``.

    Returns:
        A violation, of the first of each rule the one that takes the fewest requests to show, of which none can be left
        out; None if there is none. Its ``story`` shows it.

    Raises:
        UnreadableError: There is a handshake or an event that does not decode.
    """
    try:
        return _check(history.entries if isinstance(history, Recording) else list(history))
    except MarshallingError as error:
        raise UnreadableError(f"the recording has a handshake or an event that does not decode: {error}") from None


def _check(entries: list[Entry]) -> Violation | None:
    facts = Facts.read(entries)
    place = {id(entry): number for number, entry in enumerate(entries)}
    found = [violation for rule in RULES if (violation := next(rule(facts), None)) is not None]
    if not found:
        return None
    shortest = min(found, key=lambda violation: (len(violation.entries), place[id(violation.entries[-1])]))
    return _reduced(shortest, facts.zxids)


def _reduced(violation: Violation, zxids: Zxids) -> Violation:
    """Leave out the requests of a violation that it does not need."""
    for left_out in violation.entries:
        entries = [entry for entry in violation.entries if entry is not left_out]
        facts = Facts.read(entries, zxids)
        for rule in RULES:
            shorter = next((found for found in rule(facts) if found.rule == violation.rule), None)
            if shorter is not None:
                return _reduced(shorter, zxids)
    return violation


def joined(recordings: Sequence[Recording]) -> list[Entry]:
    """Return the entries of several recordings of one ensemble, one for each of its servers, as those of one."""
    entries: list[Entry] = []
    highest = 0
    for recording in recordings:
        shifted = [entry._replace(connection=entry.connection + highest) for entry in recording.entries]
        highest = max((entry.connection for entry in shifted), default=highest)
        entries += shifted
    return entries
