"""The table of the four-letter commands."""

from __future__ import annotations

from zoolet.protocol.four_letter_words import LEADERLESS_COMMANDS, URGENT_COMMANDS, WORDS


def test_four_letter_word_table_matches_zookeeper() -> None:
    words = "conf cons crst dirs dump envi gtmk hash isro mntr ruok srst srvr stat stmk wchc wchp wchs"

    assert " ".join(WORDS) == words


def test_health_check_commands_are_urgent() -> None:
    assert set(URGENT_COMMANDS) == {b"conf", b"isro", b"ruok", b"srvr"}


def test_words_answered_without_leader_are_listed() -> None:
    assert set(LEADERLESS_COMMANDS) == {b"conf", b"envi", b"ruok"}
