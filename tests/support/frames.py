"""Framed requests as bytes, for tests that use sockets or split bytes where no client would."""

from __future__ import annotations

from typing import Final

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import Record
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest
from zoolet.protocol.operations import OpCode

HELLO: Final = frame(ConnectRequest(timeout_ms=30_000).encode())
"""The handshake of a client that wants a new session of 30 seconds."""
unhex: Final = bytes.fromhex
NULL_VALUE: Final = bytes.fromhex("ffffffff")
"""The encoding of a null string, buffer or list."""


def request(xid: int, op: int, body: Record | bytes = b"") -> bytes:
    """Encode a request."""
    return frame(r.RequestHeader(xid, op).encode() + (body if isinstance(body, bytes) else body.encode()))


def string(text: str) -> bytes:
    """Encode a string."""
    return len(text.encode()).to_bytes(4, "big") + text.encode()


def long(number: int) -> bytes:
    """Encode a number of eight bytes."""
    return number.to_bytes(8, "big", signed=True)


def ping(xid: int = -2) -> bytes:
    """Encode a ping."""
    return request(xid, OpCode.PING)


def exists(xid: int, path: str = "/", watch: bool = False) -> bytes:
    """Encode an exists."""
    return request(xid, OpCode.EXISTS, r.ExistsRequest(path, watch))


def get(xid: int, path: str) -> bytes:
    """Encode a getData without a watch."""
    return request(xid, OpCode.GET_DATA, r.GetDataRequest(path, False))


def create(xid: int, path: str, data: bytes = b"") -> bytes:
    """Encode a create of a persistent node with an open ACL."""
    return request(xid, OpCode.CREATE, r.CreateRequest(path, data, OPEN_ACL_UNSAFE, 0))


def set_data(xid: int, path: str, data: bytes = b"") -> bytes:
    """Encode a setData for any version."""
    return request(xid, OpCode.SET_DATA, r.SetDataRequest(path, data, -1))


def add_watch(xid: int, path: str, mode: int) -> bytes:
    """Encode an addWatch."""
    return request(xid, OpCode.ADD_WATCH, r.AddWatchRequest(path, mode))
