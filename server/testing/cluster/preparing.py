"""The execution of requests by a leader: each is executed by the engine that prepares, and becomes an entry of the log.

Source: PrepRequestProcessor; SessionTrackerImpl.checkSession.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from zoolet.protocol.errors import ErrorCode, MarshallingError, ZooKeeperError
from zoolet.protocol.operations import OPERATIONS, OpCode
from zoolet.protocol.txns import ErrorTxn
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.engine import Engine
from zoolet.server.core.ops.replay import ERROR, Applied
from zoolet.server.testing.cluster.replica import Answered, Replica

GONE: Final = frozenset({int(ErrorCode.SESSION_MOVED), int(ErrorCode.SESSION_EXPIRED)})
"""Errors of a session that may not change anything here."""


@dataclass(slots=True)
class Forwarded:
    """A request that changes the state, on its way to the leader.

    Args:
        client: Who asks, with its identities at that moment.
        xid: The request's number.
        opcode: Its op code.
        body: Its body.
        answered: Receives the outcome, when the member that has forwarded it has applied it.
        fails_with: The error that a fault puts in place of its execution; 0 for none.
    """

    client: ClientConnection
    xid: int
    opcode: int
    body: bytes
    answered: Answered
    fails_with: int = 0


class Preparing:
    """The engine that prepares, and the sessions that it allows to change something.

    Args:
        engine: The engine.
        log: Receives what it has prepared.

    Attributes:
        owners: The member through which each session was last heard.
    """

    def __init__(self, engine: Engine, log: list[Applied]) -> None:
        self.engine = engine
        self.owners: dict[int, int] = {}
        self._log = log
        engine.record = log.append

    def execute(self, request: Forwarded, origin: Replica, first_zxid: int) -> int:
        """Execute a request; return its error, 0 for none. What takes a zxid is one entry of the log, errors too.

        Args:
            request: The request.
            origin: The member that has forwarded it.
            first_zxid: The zxid with which the epoch began.
        """
        engine, log, session_id = self.engine, self._log, request.client.session_id
        if code := self._refusal(origin, session_id, request.opcode):
            return code
        before = len(log)
        if code := request.fails_with:
            engine.zxid += OPERATIONS[request.opcode].takes_zxid
        elif request.opcode == OpCode.CLOSE_SESSION:
            engine.close_session(engine.sessions.alive[session_id])
        else:
            code = self._prepare(request)
        if code and len(log) == before and engine.zxid > max(log[-1][2] if log else 0, first_zxid):
            log.append((session_id, request.xid, engine.zxid, engine.now, ERROR, ErrorTxn(code)))
        return code

    def _prepare(self, request: Forwarded) -> int:
        engine, body = self.engine, request.body
        decode, handle, _ = engine.dispatch[request.opcode]
        request.client.last_xid = request.xid
        try:
            handle(engine, request.client, decode(body, 0, len(body)))
        except ZooKeeperError as error:
            if request.opcode in engine.zxid_on_decode_error:
                try:
                    decode(body, 0, len(body))
                except MarshallingError:
                    engine.zxid += 1
            return error.code
        return 0

    def _refusal(self, origin: Replica, session_id: int, opcode: int) -> int:
        """Return why a session may not change anything through a member; 0 if it may."""
        if session_id not in self.engine.sessions.alive:
            return 0 if origin.is_local(session_id) else ErrorCode.SESSION_EXPIRED
        if opcode == OpCode.CLOSE_SESSION:
            return 0  # wherever its client is
        if self.owners.setdefault(session_id, origin.number) != origin.number:
            return ErrorCode.SESSION_MOVED
        return 0
