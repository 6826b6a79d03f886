"""The removal of credentials from recordings, which are committed next to the tests that made them.

ACLs of digest users stay. The hashes in these ACLs allow weak passwords to be guessed.
"""

from __future__ import annotations

from ...protocol.errors import MarshallingError
from ...protocol.handshake import NO_PASSWORD, ConnectRequest, ConnectResponse
from ...protocol.operations import OpCode
from ...protocol.records import AuthPacket, GetSASLRequest, ReplyHeader, SetSASLResponse
from ..frames.requests import CONNECT, Entry, RecordedEvent


def redact_body(opcode: int, body: bytes) -> bytes:
    """Return the body of a request without its password or token. A body that cannot be decoded becomes empty."""
    try:
        if opcode == CONNECT:
            return ConnectRequest.decode(body)._replace(password=NO_PASSWORD).encode()
        if opcode == OpCode.AUTH:
            packet = AuthPacket.decode(body)
            return AuthPacket(packet.type, packet.scheme, b"").encode()
    except MarshallingError:
        return b""
    return GetSASLRequest(b"").encode() if opcode == OpCode.SASL else body


def _redact_reply(opcode: int, reply: bytes) -> bytes:
    """Return a reply without the session's password or SASL token. A reply that cannot be decoded becomes empty."""
    if not reply:
        return reply
    try:
        if opcode == CONNECT:
            return ConnectResponse.decode(reply)._replace(password=NO_PASSWORD).encode()
        if opcode == OpCode.SASL:
            header = ReplyHeader.decode(reply)
            return header.encode() + (SetSASLResponse(b"").encode() if header.err == 0 else b"")
    except MarshallingError:
        return b""
    return reply


def redact(entry: Entry) -> Entry:
    """Return a request or event without credentials. Events contain no credentials."""
    if isinstance(entry, RecordedEvent):
        return entry
    body = redact_body(entry.opcode, entry.body)
    return entry._replace(body=body, reply=_redact_reply(entry.opcode, entry.reply))
