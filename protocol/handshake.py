"""The connect request and its answer, the only frames without a header.

::

    request    int protocolVersion 0, long lastZxidSeen, int timeOut ms, long sessionId, buffer passwd [, bool readOnly]
    response   int protocolVersion 0, int timeOut ms, long sessionId, buffer passwd [, bool readOnly]

Clients before 3.4 send no last byte, and get none.

Source: zookeeper.jute, ConnectRequest and ConnectResponse; ProtocolManager.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from zoolet.protocol.codec import Bool, Int, Long, Record, record

NO_PASSWORD: Final = bytes(16)


@record
class _Request(Record):
    protocolVersion: Int
    lastZxidSeen: Long
    timeOut: Int
    sessionId: Long
    passwd: bytes | None


@record
class _Response(Record):
    protocolVersion: Int
    timeOut: Int
    sessionId: Long
    passwd: bytes | None


@record
class _Flag(Record):
    readOnly: Bool


@dataclass(slots=True)
class ConnectRequest:
    """What a client says first.

    Args:
        last_zxid_seen: The highest zxid the client has seen.
        timeout_ms: The session timeout it would like.
        session_id: The session to go on with; 0 for a new one.
        password: What proves that the session is the client's.
        read_only: Whether a server in read-only mode will do; None from a client too old to say.
    """

    last_zxid_seen: int = 0
    timeout_ms: int = 10_000
    session_id: int = 0
    password: bytes | None = NO_PASSWORD
    read_only: bool | None = False

    @classmethod
    def decode(cls, buf: bytes, offset: int = 0, end: int | None = None) -> ConnectRequest:
        """Read the payload of the first frame.

        Raises:
            MarshallingError: It is too short.
        """
        end = len(buf) if end is None else end
        record, offset = _Request.read_from(buf, offset, end)
        read_only = _Flag.decode(buf, offset, end).readOnly if offset < end else None
        return cls(record.lastZxidSeen, record.timeOut, record.sessionId, record.passwd, read_only)

    def encode(self) -> bytes:
        """Write the payload of the first frame."""
        record = _Request(0, self.last_zxid_seen, self.timeout_ms, self.session_id, self.password).encode()
        return record if self.read_only is None else record + _Flag(self.read_only).encode()


@dataclass(slots=True)
class ConnectResponse:
    """What a server answers first.

    Args:
        timeout_ms: The negotiated session timeout; 0 when the session is over or was never the client's.
        session_id: The session's id; 0 likewise.
        password: Its password, 16 bytes; zeroes likewise.
        read_only: Whether the server is in read-only mode; None to a client that did not ask.
    """

    timeout_ms: int = 0
    session_id: int = 0
    password: bytes | None = NO_PASSWORD
    read_only: bool | None = None

    @classmethod
    def decode(cls, buf: bytes, offset: int = 0, end: int | None = None) -> ConnectResponse:
        """Read the payload of the server's first frame.

        Raises:
            MarshallingError: It is too short.
        """
        end = len(buf) if end is None else end
        record, offset = _Response.read_from(buf, offset, end)
        read_only = _Flag.decode(buf, offset, end).readOnly if offset < end else None
        return cls(record.timeOut, record.sessionId, record.passwd, read_only)

    def encode(self) -> bytes:
        """Write the payload of the server's first frame."""
        record = _Response(0, self.timeout_ms, self.session_id, self.password).encode()
        return record if self.read_only is None else record + _Flag(self.read_only).encode()
