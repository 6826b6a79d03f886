"""Writes that are executed without a connection have the same outcome as requests over a connection."""

from __future__ import annotations

import pytest
from support.calls import NOW, connect_peer
from support.engine import attach_journal, make_engine
from support.peer import Peer
from support.rows import for_each

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.errors import ZooKeeperError
from zoolet.protocol.operations import OpCode
from zoolet.server.core.compat import V3_8, V3_9
from zoolet.server.core.settings import EngineSettings

CREATE = r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0)
WRITES = {
    "create": (OpCode.CREATE2, CREATE.encode()),
    "no node": (OpCode.SET_DATA, r.SetDataRequest("/missing", b"", -1).encode()),
    "bad path": (OpCode.DELETE, r.DeleteRequest("bad", -1).encode()),
    "undecodable": (OpCode.SET_DATA, b"\xff"),
    "undecodable ACL": (OpCode.SET_ACL, b""),
    "reconfig": (OpCode.RECONFIG, b"\xff"),
    "multi": (OpCode.MULTI, wire.encode_operations([(OpCode.CREATE, CREATE)])),
    "failed multi": (OpCode.MULTI, wire.encode_operations([(OpCode.DELETE, r.DeleteRequest("/missing", -1))])),
    "undecodable multi": (OpCode.MULTI, b"\xff" * 5),
}


def _pair(compat):
    """Return two clients of equal servers."""
    return [connect_peer(make_engine(EngineSettings(compat=compat), now=NOW)) for _ in range(2)]


def _executed(peer: Peer, op: int, body: bytes) -> tuple[int, bytes]:
    """Execute a request for a client without its connection. Return the error and the body of the reply."""
    try:
        return 0, peer.engine.execute(peer.client, 1, op, body)
    except ZooKeeperError as error:
        return error.code, b""


@pytest.mark.parametrize("compat", [V3_8, V3_9], ids=lambda each: each.release)
@for_each("write", WRITES.values())
def test_execute_answers_and_logs_like_connection(compat, write):
    sender, executor = _pair(compat)
    logs = [attach_journal(each.engine) for each in (sender, executor)]

    (reply,) = sender.send(*write, xid=1)
    executed = _executed(executor, *write)

    assert executed == (reply.err, reply.body)
    assert executor.engine.zxid == reply.zxid
    assert logs[0].pop_all() == logs[1].pop_all()
