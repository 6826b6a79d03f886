"""The table of the four-letter commands."""

from __future__ import annotations

from zoolet.protocol.four_letter_words import URGENT, WITHOUT_LEADER, WORDS


def test_table_lists_commands_of_zookeeper() -> None:
    words = "conf cons crst dirs dump envi gtmk hash isro mntr ruok srst srvr stat stmk wchc wchp wchs"

    assert " ".join(WORDS) == words


def test_health_checks_are_urgent() -> None:
    assert set(URGENT) == {b"conf", b"isro", b"ruok", b"srvr"}


def test_table_lists_commands_without_leader() -> None:
    assert set(WITHOUT_LEADER) == {b"conf", b"envi", b"ruok"}
