"""The table of the four-letter commands. A client sends one instead of a handshake, and the answer is plain text.

Source: org.apache.zookeeper.server.command.FourLetterCommands.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Word(NamedTuple):
    """A four-letter command.

    Args:
        name: The four letters.
        is_urgent: Whether a busy server answers it immediately, because health checks use it.
        needs_leader: Whether a member of an ensemble answers it only while there is a leader.
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
"""Every command by its name."""
URGENT: Final = frozenset(word.name.encode() for word in WORDS.values() if word.is_urgent)
"""The commands that a busy server answers immediately, as sent."""
WITHOUT_LEADER: Final = frozenset(word.name.encode() for word in WORDS.values() if not word.needs_leader)
"""The commands that a member of an ensemble answers without a leader, as sent."""
