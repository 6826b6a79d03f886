"""The execution of requests at the leader, by the preparing engine. Each request becomes an entry of the log.

Source: PrepRequestProcessor; SessionTrackerImpl.checkSession.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...protocol.errors import ErrorCode, ZooKeeperError
from ...protocol.operations import OPERATIONS, OpCode
from ...protocol.txns import ErrorTxn
from ...server.core.client_connection import ClientConnection
from ...server.core.engine import Engine
from ...server.core.ops.replay import ERROR, Applied
from .replica import Answered, Replica

SESSION_ERRORS: Final = frozenset({int(ErrorCode.SESSION_MOVED), int(ErrorCode.SESSION_EXPIRED)})
"""Errors for a session that has expired, or that now belongs to a different member."""


@dataclass(slots=True)
class ForwardedRequest:
    """A request that changes the state, on its way to the leader.

    Args:
        client: The client, with its identities at the time of the request.
        session_id: The id of the client's session.
        xid: The request's number.
        opcode: The request's op code.
        body: The request's body.
        answered: Receives the outcome when the member that forwarded the request has applied it.
        fails_with: The error to answer with instead of executing the request, or 0.
    """

    client: ClientConnection
    session_id: int
    xid: int
    opcode: int
    body: bytes
    answered: Answered
    fails_with: int = 0


class RequestPreparer:
    """The leader's executor of requests, which rejects sessions that have moved or expired.

    Args:
        engine: The preparing engine.
        log: The list that receives the prepared transactions.

    Attributes:
        owners: The number of the member that each session belongs to.
    """

    def __init__(self, engine: Engine, log: list[Applied]) -> None:
        self.engine = engine
        self.owners: dict[int, int] = {}
        self._log = log
        engine.record = log.append

    def execute(self, request: ForwardedRequest, origin: Replica, first_zxid: int) -> int:
        """Execute a request, and return its error code, or 0 for success.

        Each request that uses a zxid becomes one entry of the log, even if it fails.

        Args:
            request: The request.
            origin: The member that forwarded the request.
            first_zxid: The first zxid of the epoch.
        """
        engine, log, session_id = self.engine, self._log, request.session_id
        before, code = len(log), self._session_error(origin, session_id, request.opcode)
        if code == ErrorCode.SESSION_MOVED:
            engine.zxid += OPERATIONS[request.opcode].takes_zxid
        elif code:
            return code
        elif code := request.fails_with:
            engine.zxid += OPERATIONS[request.opcode].takes_zxid
        elif request.opcode == OpCode.CLOSE_SESSION:
            engine.close_session(engine.sessions.alive[session_id])
        else:
            try:
                engine.execute(request.client, request.xid, request.opcode, request.body)
            except ZooKeeperError as error:
                code = error.code
        if code and len(log) == before and engine.zxid > max(log[-1][2] if log else 0, first_zxid):
            log.append((session_id, request.xid, engine.zxid, engine.now, ERROR, ErrorTxn(code)))
        return code

    def _session_error(self, origin: Replica, session_id: int, opcode: int) -> int:
        """Return the error for a session that must not change the state through a member, or 0."""
        if session_id not in self.engine.sessions.alive:
            return 0 if origin.is_local(session_id) else ErrorCode.SESSION_EXPIRED
        if opcode == OpCode.CLOSE_SESSION:
            return 0  # a session may be closed through any member
        if self.owners.setdefault(session_id, origin.number) != origin.number:
            return ErrorCode.SESSION_MOVED
        return 0
