"""What has happened lately: who made each transaction and why, and that what is kept is bounded."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from support.calls import connected, create, create_ttl, creating, deleting, engine_with, multi, setting

from zoolet.protocol.operations import OpCode
from zoolet.server.admin import history as module
from zoolet.server.admin.history import Change, Entry, History
from zoolet.server.core.engine import Engine
from zoolet.server.core.journal import Journal


def heard(limit: int = 1000, **settings: Any) -> tuple[Engine, History]:
    """Return an engine and its history."""
    engine = engine_with(**settings)
    return engine, History(engine, limit)


def of(history: History, path: str) -> list[str]:
    """Return the kinds of the entries of a node, the oldest first."""
    return [entry.kind for entry in history.entries(path)][::-1]


def test_each_change_of_a_node_is_kept_with_its_session_and_size() -> None:
    engine, history = heard()
    peer = connected(engine)
    peer.create("/a", b"12")
    peer.set("/a", b"345")
    peer.delete("/a")

    deleted, changed, created = history.entries("/a")

    assert created.changes == (Change("create", "/a", 2),)
    assert changed.changes == (Change("set", "/a", 3),)
    assert deleted.changes == (Change("delete", "/a", None),)
    assert created.session_id == deleted.session_id == next(iter(engine.sessions.alive))
    assert created.address.startswith("127.0.0.1")
    assert created.zxid < changed.zxid < deleted.zxid == engine.zxid


def test_a_multi_is_one_entry_of_each_of_its_nodes() -> None:
    engine, history = heard()
    peer = connected(engine)
    multi(peer, creating("/a"), creating("/b"), setting("/a"), deleting("/b"))

    (entry,) = history.entries("/b")

    assert entry.kind == "multi"
    assert entry.changes == (
        Change("create", "/a", 0),
        Change("create", "/b", 0),
        Change("set", "/a", 3),
        Change("delete", "/b", None),
    )
    assert not list(history.entries("/c"))


def test_an_end_by_silence_says_when_the_client_was_last_heard() -> None:
    engine, history = heard(exact_deadlines=True)
    peer = connected(engine)
    peer.create("/e", b"", 1)
    (session,) = engine.sessions.alive.values()
    engine.set_time(engine.now + 99_000, engine.monotonic_ms + 99_000)
    engine.tick()

    entry = next(history.entries("/e"))

    assert entry.kind == "expired"
    assert entry.changes == (Change("delete", "/e"),)
    assert entry.why == f"last heard 99.0 s before; its timeout was {session.timeout_ms / 1000:.1f} s"
    assert entry.address.startswith("127.0.0.1")


def test_an_end_by_the_client_is_another_one_also_after_an_expired_one() -> None:
    engine, history = heard(exact_deadlines=True)
    first = connected(engine)
    first.create("/first", b"", 1)
    engine.set_time(engine.now + 99_000, engine.monotonic_ms + 99_000)
    engine.tick()
    second = connected(engine)
    second.create("/second", b"", 1)
    second.close()

    assert of(history, "/first") == ["create", "expired"]
    assert of(history, "/second") == ["create", "closed"]


def test_a_session_has_a_life() -> None:
    engine, history = heard()
    peer = connected(engine)
    peer.create("/a", b"")
    (session,) = engine.sessions.alive
    peer.close()

    assert [entry.kind for entry in history.entries(session_id=session)] == ["closed", "create", "opened"]


def test_what_the_server_deletes_is_its_own_doing() -> None:
    engine, history = heard(extended_types=True)
    create_ttl(connected(engine), "/t", 5)
    engine.set_time(engine.now + 99, engine.monotonic_ms + 99)
    engine.reap()

    entry = next(history.entries("/t"))

    assert (entry.kind, entry.session_id) == ("delete", 0)
    assert entry.why == "a container without children, or a node whose TTL was over"


def test_no_more_entries_are_kept_than_asked_for() -> None:
    engine, history = heard(limit=3)
    peer = connected(engine)
    for number in range(10):
        peer.create(f"/{number}", b"")

    assert [entry.changes[0].path for entry in history.entries()] == ["/9", "/8", "/7"]
    assert len(history) == 3


def test_old_entries_make_room_for_long_paths_and_large_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 50_000)
    engine, history = heard()
    peer = connected(engine)
    for number in range(30):
        peer.create(f"/{number}{'x' * 3000}", b"")
    few = len(history)
    for number in range(200):
        peer.create(f"/{number}{'e' * 1000}", b"", 1)
    peer.close()

    assert 10 < few < 16
    assert [len(entry.changes) for entry in history.entries()] == [200]  # one is kept, however large


def test_each_node_of_a_large_transaction_is_found() -> None:
    engine, history = heard()
    peer = connected(engine)
    for number in range(300):
        peer.create(f"/e{number}", b"", 1)
    peer.close()

    assert of(history, "/e299") == ["create", "closed"]


def test_earlier_entries_are_found_by_number() -> None:
    engine, history = heard()
    peer = connected(engine)
    for number in range(5):
        peer.create(f"/{number}", b"")
    last: Entry = next(history.entries())

    assert next(history.entries(before=last.number)).changes[0].path == "/3"


def test_what_listened_before_still_hears() -> None:
    engine = engine_with()
    heard: list[str] = []
    engine.on_session = lambda what, session, client: heard.append(what)
    history = History(engine, 10)
    connected(engine)

    assert heard == ["opened"]
    assert len(history) == 1


def test_with_a_log_entries_are_kept_once_they_are_written() -> None:
    engine = engine_with()
    journal = Journal(engine.zxid)
    engine.use_journal(journal)
    history = History(engine, 10)
    peer = connected(engine)
    peer.create("/a", b"")
    create(peer, "/a")  # fails, and takes a zxid

    (session,) = engine.sessions.alive.values()
    engine.expire(session)
    history.digest()  # before the log has it

    assert not len(history)
    written = journal.pop_all()
    assert [entry[4] for entry in written] == [OpCode.CREATE_SESSION, OpCode.CREATE, -1, OpCode.CLOSE_SESSION]
    assert not len(history)
    assert journal.heard is not None
    journal.heard(written)
    assert [entry.kind for entry in history.entries()] == ["expired", "create", "opened"]
    assert next(history.entries()).why.startswith("somebody ended it before its time; last heard 0.0 s before")


def test_data_is_released() -> None:
    engine, history = heard()
    peer = connected(engine)
    peer.create("/a", b"some data")
    data = engine.tree.find("/a").data
    before = sys.getrefcount(data)

    history.digest()

    assert sys.getrefcount(data) == before - 1


def test_much_data_is_released_at_once_and_little_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIDIED", 3)
    engine, history = heard()
    peer = connected(engine)
    history.tidy()
    for number in range(10):
        peer.create(f"/{number}", b"")

    history.tidy()
    few = len(history._kept)
    engine.metrics.bytes_received += module.MAX_FRESH
    history.tidy()

    assert (few, len(history._kept)) == (4, 11)


def test_a_multi_that_has_failed_is_not_there() -> None:
    engine, history = heard()
    multi(connected(engine), creating("/a"), deleting("/nowhere"))

    assert [entry.kind for entry in history.entries()] == ["opened"]
