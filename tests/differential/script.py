"""Short functions for the requests of scripts. All of them accept null paths and null elements."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from differential.pair import Request

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE, AclList
from zoolet.protocol.codec import NULL, put_str
from zoolet.protocol.operations import OpCode

Operation = tuple[OpCode, bytes]


def create(
    path: str | None,
    data: bytes | None = b"",
    flags: int = 0,
    *,
    acl: AclList | None = OPEN_ACL_UNSAFE,
    op: OpCode = OpCode.CREATE,
) -> Operation:
    return op, r.CreateRequest(path, data, acl, flags).encode()


def create_ttl(path: str, flags: int, ttl: int, *, acl: AclList | None = OPEN_ACL_UNSAFE) -> Operation:
    return OpCode.CREATE_TTL, r.CreateTTLRequest(path, b"", acl, flags, ttl).encode()


def write(path: str | None, data: bytes | None, version: int = -1) -> Operation:
    return OpCode.SET_DATA, r.SetDataRequest(path, data, version).encode()


def delete(path: str | None, version: int = -1) -> Operation:
    return OpCode.DELETE, r.DeleteRequest(path, version).encode()


def read(path: str | None, watch: bool = False) -> Operation:
    return OpCode.GET_DATA, put_str(path) + bytes([watch])


def exists(path: str | None, watch: bool = False) -> Operation:
    return OpCode.EXISTS, put_str(path) + bytes([watch])


def children(path: str | None, watch: bool = False) -> Operation:
    return OpCode.GET_CHILDREN, put_str(path) + bytes([watch])


def add_watch(path: str | None, mode: int) -> Operation:
    return OpCode.ADD_WATCH, put_str(path) + struct.pack(">i", mode)


def check_watches(path: str | None, kind: int) -> Operation:
    return OpCode.CHECK_WATCHES, put_str(path) + struct.pack(">i", kind)


def remove_watches(path: str | None, kind: int) -> Operation:
    return OpCode.REMOVE_WATCHES, put_str(path) + struct.pack(">i", kind)


def strings(paths: Sequence[str | None] | None) -> bytes:
    """Encode a vector of strings, including null strings."""
    if paths is None:
        return NULL
    return struct.pack(">i", len(paths)) + b"".join(map(put_str, paths))


def set_watches(since: int, *lists: Sequence[str | None] | None) -> Operation:
    """Return a setWatches for three lists of paths, or a setWatches2 for five lists."""
    op = {3: OpCode.SET_WATCHES, 5: OpCode.SET_WATCHES2}[len(lists)]
    return op, struct.pack(">q", since) + b"".join(map(strings, lists))


def multi_of(*operations: Operation, op: OpCode = OpCode.MULTI) -> Operation:
    return op, b"".join(r.MultiHeader(kind, False, -1).encode() + body for kind, body in operations) + wire.END


def multi_read_of(*operations: Operation) -> Operation:
    return multi_of(*operations, op=OpCode.MULTI_READ)


def request_on(who: int, operation: Operation) -> Request:
    """Return the request that sends an operation on connection *who*."""
    return Request(who, *operation)


def script(*operations: Operation) -> list[Request]:
    """Return the requests that send operations on the first connection."""
    return [request_on(0, operation) for operation in operations]
