"""The connect request and its response, the only frames without a header.

::

    request    int protocolVersion 0, long lastZxidSeen, int timeOut ms, long sessionId, buffer passwd [, bool readOnly]
    response   int protocolVersion 0, int timeOut ms, long sessionId, buffer passwd [, bool readOnly]

Clients before 3.4 send no ``readOnly`` byte and receive none.

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
    """The first frame from a client.

    Args:
        last_zxid_seen: The highest zxid that the client has seen.
        timeout_ms: The session timeout that it asks for.
        session_id: The session to resume; 0 for a new one.
        password: The session's password, which proves that it is the client's.
        read_only: Whether the client accepts a server in read-only mode; None if it is too old to send this.
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
    """The first frame from a server.

    Args:
        timeout_ms: The negotiated session timeout; 0 if the session has expired or is not the client's.
        session_id: The session's id; 0 in the same case.
        password: Its password, 16 bytes; zeroes in the same case.
        read_only: Whether the server is in read-only mode; None for a client that sent no such field.
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
