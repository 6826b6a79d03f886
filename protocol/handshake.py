"""The connect request and its response: the only frames without a header.

::

    request    int protocolVersion 0, long lastZxidSeen, int timeOut ms, long sessionId, buffer passwd [, bool readOnly]
    response   int protocolVersion 0, int timeOut ms, long sessionId, buffer passwd [, bool readOnly]

Clients before 3.4 send no ``readOnly`` byte and receive none.

Source: zookeeper.jute (ConnectRequest and ConnectResponse), ProtocolManager.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from .codec import Bool, Int, Long, Record, record

NO_PASSWORD: Final = bytes(16)
_USUAL_REQUEST: Final = struct.Struct(">iqiqi16s?")  # the whole request, with a password of 16 bytes
_USUAL_RESPONSE: Final = struct.Struct(">iiqi16s?")


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
class _ReadOnlyFlag(Record):
    readOnly: Bool


class ConnectRequest(NamedTuple):
    """The first frame from a client.

    Args:
        last_zxid_seen: The highest zxid that the client has seen.
        timeout_ms: Requested session timeout in milliseconds.
        session_id: The session to resume; 0 for a new session.
        password: The session's password, which proves that the session belongs to the client.
        read_only: Whether the client accepts a server in read-only mode; None if the client did not send the field.
    """

    last_zxid_seen: int = 0
    timeout_ms: int = 10_000
    session_id: int = 0
    password: bytes | None = NO_PASSWORD
    read_only: bool | None = False

    @classmethod
    def decode(cls, buf: bytes, offset: int = 0, end: int | None = None) -> ConnectRequest:
        """Decode a connect request, the payload of a client's first frame. Bytes after the request are ignored.

        Raises:
            MarshallingError: The payload is truncated, or the length of the password is invalid.
        """
        end = len(buf) if end is None else end
        if end - offset == _USUAL_REQUEST.size:  # sent by all clients since 3.4; decoded by one call instead of six
            _, zxid, timeout_ms, session_id, size, password, read_only = _USUAL_REQUEST.unpack_from(buf, offset)
            if size == len(password):
                return cls(zxid, timeout_ms, session_id, password, read_only)
        record, offset = _Request.read_from(buf, offset, end)
        read_only = _ReadOnlyFlag.decode(buf, offset, end).readOnly if offset < end else None
        return cls(record.lastZxidSeen, record.timeOut, record.sessionId, record.passwd, read_only)

    def encode(self) -> bytes:
        """Return the payload of the client's first frame."""
        record = _Request(0, self.last_zxid_seen, self.timeout_ms, self.session_id, self.password).encode()
        return record if self.read_only is None else record + _ReadOnlyFlag(self.read_only).encode()


class ConnectResponse(NamedTuple):
    """The first frame from a server.

    Args:
        timeout_ms: Negotiated session timeout in milliseconds; 0 if the session expired or the password was wrong.
        session_id: The session's id; 0 if the timeout is 0.
        password: The session's password, 16 bytes; zeroes if the timeout is 0.
        read_only: Whether the server is in read-only mode; None if the client did not send the field.
    """

    timeout_ms: int = 0
    session_id: int = 0
    password: bytes | None = NO_PASSWORD
    read_only: bool | None = None

    @classmethod
    def decode(cls, buf: bytes, offset: int = 0, end: int | None = None) -> ConnectResponse:
        """Decode a connect response, the payload of the server's first frame.

        Raises:
            MarshallingError: The payload is truncated, or the length of the password is invalid.
        """
        end = len(buf) if end is None else end
        record, offset = _Response.read_from(buf, offset, end)
        read_only = _ReadOnlyFlag.decode(buf, offset, end).readOnly if offset < end else None
        return cls(record.timeOut, record.sessionId, record.passwd, read_only)

    def encode(self) -> bytes:
        """Return the payload of the server's first frame."""
        password = self.password
        if self.read_only is not None and password is not None and len(password) == 16:
            return _USUAL_RESPONSE.pack(0, self.timeout_ms, self.session_id, 16, password, self.read_only)
        record = _Response(0, self.timeout_ms, self.session_id, self.password).encode()
        return record if self.read_only is None else record + _ReadOnlyFlag(self.read_only).encode()
