"""The journal: what took a zxid is in it, also where nothing was changed."""

from __future__ import annotations

from support.engine import make_engine

from zoolet.protocol.errors import ErrorCode
from zoolet.server.core.journal import ERROR, Journal


def test_a_zxid_that_was_taken_for_nothing_is_logged() -> None:
    engine = make_engine(zxid=5)
    journal = Journal(engine.zxid)
    engine.use_journal(journal)

    engine.take_zxid(7, 3, ErrorCode.NO_NODE)

    assert [(entry[0], entry[1], entry[2], entry[4]) for entry in journal.pop_all()] == [(7, 3, 6, ERROR)]
    assert journal.zxid == 6
