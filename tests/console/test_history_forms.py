"""The history is the same, whether it is read from received requests or from encoded journals."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from support.calls import connect_peer, engine_with_settings, resume_session

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.framing import frame
from zoolet.protocol.operations import OpCode
from zoolet.server.admin.history import CONSOLE_XID, TransactionHistory
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.engine import Engine
from zoolet.server.core.journal import Journal
from zoolet.server.storage import txnlog

RANDOM_PATHS = ("/a", "/b", "/b/c", "/missing/d", "/é", "bad", None)


def request(op: int, body: bytes) -> bytes:
    return frame(r.RequestHeader(7, op).encode() + body)


def random_write(rng: Random) -> tuple[OpCode, Any]:
    """Return a write that is allowed in a multi. It often fails."""
    path, data = rng.choice(RANDOM_PATHS), rng.choice((None, b"", b"12345"))
    op = rng.choice((OpCode.CREATE, OpCode.CREATE2, OpCode.SET_DATA, OpCode.DELETE, OpCode.CHECK))
    if op in (OpCode.CREATE, OpCode.CREATE2):
        return op, r.CreateRequest(path, data, OPEN_ACL_UNSAFE, rng.choice((0, 0, 1, 2, 3, 4)))
    if op == OpCode.SET_DATA:
        return op, r.SetDataRequest(path, data, rng.choice((-1, 0)))
    return op, (r.DeleteRequest if op == OpCode.DELETE else r.CheckVersionRequest)(path, -1)


def random_request(rng: Random) -> bytes:
    """Return the frame of a write, a multi, a read, a rare or a malformed request."""
    kind = rng.randrange(20)
    if kind < 3:
        writes = [random_write(rng) for _ in range(rng.randrange(4))]
        return request(OpCode.MULTI, wire.encode_operations([each for each in writes if each[1].path is not None]))
    if kind == 3:
        return request(OpCode.SET_ACL, r.SetACLRequest("/a", OPEN_ACL_UNSAFE, -1).encode())
    if kind == 4:
        return request(OpCode.RECONFIG, r.ReconfigRequest(None, None, "server.1=a:1:2;3", -1).encode())
    if kind == 5:
        return request(rng.choice((OpCode.CREATE, OpCode.SET_DATA, OpCode.MULTI, OpCode.DELETE_CONTAINER)), b"\0")
    if kind < 9:
        return request(OpCode.GET_DATA, r.GetDataRequest("/a", True).encode())
    if kind == 9:
        return request(OpCode.PING, b"")
    if kind == 10 and not rng.randrange(4):
        return request(OpCode.CLOSE_SESSION, b"")
    op, record = random_write(rng)
    return request(op, record.encode())


def cause_random_event(rng: Random, engine: Engine) -> None:
    """Cause one random event that no client requests: an expiry, a create by the console, a gap, or time."""
    what = rng.randrange(4)
    if what == 0 and (session := next(iter(engine.sessions.alive.values()), None)) is not None:
        engine.expire(session)
    elif what == 1:
        body = r.CreateRequest("/by-console-", b"1", OPEN_ACL_UNSAFE, 2).encode()
        engine.execute(ClientConnection("console"), CONSOLE_XID, OpCode.CREATE, body)
    elif what == 2:
        engine.take_zxid()
    else:
        engine.set_time(engine.now + 5, engine.monotonic_ms + 5)


def random_history(seed: int, *, is_logged: bool) -> list[tuple[Any, ...]]:
    """Return the entries after random batches of requests, with other random events in between."""
    rng, engine = Random(seed), engine_with_settings(reconfig_enabled=True, exact_deadlines=True, skip_acl=True)
    journal = Journal(engine.zxid, txnlog.decode)
    if is_logged:
        engine.use_journal(journal)
    history = TransactionHistory(engine, 1000)
    peers = [connect_peer(engine), connect_peer(engine)]
    for _ in range(60):
        number = rng.randrange(2)
        peers[number].feed(b"".join([random_request(rng) for _ in range(rng.randrange(1, 8))]))
        cause_random_event(rng, engine)
        for place, peer in enumerate(peers):
            if journal.on_logged is not None:
                journal.on_logged(txnlog.encode(journal.pop_all()))
            if peer.closed:
                peers[place] = connect_peer(engine)
            elif not rng.randrange(8):
                peers[place] = resume_session(peer)
        if not rng.randrange(5):
            history.limit_memory()
    if journal.on_logged is not None:
        journal.on_logged(txnlog.encode(journal.pop_all()))
    return [tuple(entry) for entry in history.entries()]


@pytest.mark.parametrize("seed", range(20))
def test_requests_and_journal_give_same_history(seed: int) -> None:
    assert random_history(seed, is_logged=False) == random_history(seed, is_logged=True)


def test_random_requests_produce_every_kind_of_history_entry() -> None:
    lives = [entry for seed in range(20) for entry in random_history(seed, is_logged=False)]
    whys = {why for *_, why, _ in lives if "last heard" not in why}
    sizes = {size for entry in lives for _, path, size in entry[5] if path == "/zookeeper/config"}

    assert {entry[4] for entry in lives} >= {
        *("create", "set", "delete", "set ACL", "multi", "opened", "resumed", "closed", "expired")
    }
    assert whys == {"", "in the console"}
    assert any(path.startswith("/by-console-0") for entry in lives for _, path, _ in entry[5])
    assert sizes
    assert None not in sizes
