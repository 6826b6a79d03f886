"""The table of the four-letter commands. A client sends a command instead of a handshake, and receives plain text.

Source: org.apache.zookeeper.server.command.FourLetterCommands.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Word(NamedTuple):
    """A four-letter command.

    Args:
        name: The four letters.
        is_urgent: Whether even a busy server answers the command immediately, because health checks use it.
        needs_leader: Whether a member of an ensemble answers the command only while the ensemble has a leader.
    """

    name: str
    is_urgent: bool = False
    needs_leader: bool = True


WORDS: Final = {
    word.name: word
    for word in (
        Word("conf", is_urgent=True, needs_leader=False),
        Word("cons"),
        Word("crst"),
        Word("dirs"),
        Word("dump"),
        Word("envi", needs_leader=False),
        Word("gtmk"),
        Word("hash"),
        Word("isro", is_urgent=True),
        Word("mntr"),
        Word("ruok", is_urgent=True, needs_leader=False),
        Word("srst"),
        Word("srvr", is_urgent=True),
        Word("stat"),
        Word("stmk"),
        Word("wchc"),
        Word("wchp"),
        Word("wchs"),
    )
}
"""The commands by name."""
URGENT_COMMANDS: Final = frozenset(word.name.encode() for word in WORDS.values() if word.is_urgent)
"""The commands, as bytes, that even a busy server answers immediately."""
LEADERLESS_COMMANDS: Final = frozenset(word.name.encode() for word in WORDS.values() if not word.needs_leader)
"""The commands, as bytes, that a member of an ensemble answers even without a leader."""
