"""Requests and replies of the operations, pure: arguments to bytes, and bytes to results.

What an operation is (its records, whether it may be sent again) stands in :mod:`zoolet.protocol.operations`; here is
only how the client's arguments become that request, and its reply the client's result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from zoolet.client.serializers import Serializer, raw
from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE, AclList
from zoolet.protocol.codec import Record, compiled, pack_int
from zoolet.protocol.enums import MAX_TTL, CreateMode, is_ttl
from zoolet.protocol.errors import MarshallingError, error_for
from zoolet.protocol.operations import OPERATIONS, OpCode, codes_named

T = TypeVar("T")
Stat = r.Stat
Decode = Callable[[bytes, int, int], T]
"""Reads the body of a reply from ``buf[offset:end]``."""

NO_WATCH: Final = b"\0"
WATCH: Final = b"\1"
"""The last byte of a read's request: whether to set a watch."""


def code_of(operation: str | int) -> int:
    """Return the op code of an operation.

    Raises:
        ValueError: There is no such operation, or the name means several.
    """
    codes = frozenset({operation}) & OPERATIONS.keys() if isinstance(operation, int) else codes_named(operation)
    if len(codes) != 1:
        raise ValueError(f"operation {operation!r} is unknown or means several op codes")
    return int(next(iter(codes)))


# --- creates ---


# Names of their own: a look-up in an enum costs 80 ns (Python 3.11), a call of it ten times as much.
_PLAIN: Final = tuple(CreateMode(flags) for flags in range(4))
_CONTAINER: Final = CreateMode.CONTAINER
_CREATE, _CREATE2 = OpCode.CREATE, OpCode.CREATE2


def create_mode(ephemeral: bool, sequential: bool, container: bool, ttl: float | None) -> CreateMode:
    """Return the kind of node that the arguments of a create mean.

    Raises:
        ValueError: They exclude each other.
    """
    if container and (ephemeral or sequential or ttl is not None):
        raise ValueError("a container is neither ephemeral nor sequential and has no ttl")
    if ttl is not None:
        if ephemeral:
            raise ValueError("an ephemeral node has no ttl: it ends with its session")
        if not is_ttl(ttl):
            raise ValueError(f"ttl is {ttl!r} s; it must be from 0.001 to {MAX_TTL / 1000:,}")
        return CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL if sequential else CreateMode.PERSISTENT_WITH_TTL
    if container:
        return CreateMode.CONTAINER
    return _PLAIN[bool(ephemeral) + 2 * bool(sequential)]


def create_request(
    path: str, data: bytes, acl: AclList | None, mode: CreateMode, ttl: float | None, *, with_stat: bool = False
) -> tuple[OpCode, Record]:
    """Return the op code and the request record of a create."""
    acl = OPEN_ACL_UNSAFE if acl is None else acl
    if ttl is not None:
        return OpCode.CREATE_TTL, r.CreateTTLRequest(path, data, acl, mode, round(ttl * 1000))
    if mode is _CONTAINER:
        return OpCode.CREATE_CONTAINER, r.CreateRequest(path, data, acl, mode)
    return (_CREATE2 if with_stat else _CREATE), r.CreateRequest(path, data, acl, mode)


# --- replies ---

_decode_data_response = compiled(r.GetDataResponse).decode
_decode_stat_response = compiled(r.StatResponse).decode


def decode_raw(buf: bytes, offset: int, end: int) -> tuple[bytes, Stat]:
    """Read a node's bytes, ``b""`` for null, and Stat."""
    response = _decode_data_response(buf, offset, end)
    return response.data or b"", response.stat


def decode_data(path: str, serializer: Serializer) -> Decode[tuple[Any, Stat]]:
    """Return what reads a node's value, with a serializer, and Stat."""
    if serializer is raw:
        return decode_raw

    def decode(buf: bytes, offset: int, end: int) -> tuple[Any, Stat]:
        response = _decode_data_response(buf, offset, end)
        return serializer.read(path, response.data), response.stat

    return decode


def decode_stat(buf: bytes, offset: int, end: int) -> Stat:
    """Read a Stat."""
    return _decode_stat_response(buf, offset, end).stat


def decode_children(buf: bytes, offset: int, end: int) -> list[str]:
    """Read the names of children."""
    return r.GetChildrenResponse.decode(buf, offset, end).children


def decode_children_and_stat(buf: bytes, offset: int, end: int) -> tuple[list[str], Stat]:
    """Read the names of children and their parent's Stat."""
    response = r.GetChildren2Response.decode(buf, offset, end)
    return response.children, response.stat


def decode_children2(buf: bytes, offset: int, end: int) -> r.GetChildren2Response:
    """Read the record of a getChildren2 reply."""
    return r.GetChildren2Response.decode(buf, offset, end)


def decode_count(buf: bytes, offset: int, end: int) -> int:
    """Read how many nodes there are."""
    return r.GetAllChildrenNumberResponse.decode(buf, offset, end).totalNumber


def decode_acl(buf: bytes, offset: int, end: int) -> tuple[AclList, Stat]:
    """Read an ACL list and the node's Stat."""
    response = r.GetACLResponse.decode(buf, offset, end)
    return response.acl or (), response.stat


def decode_identities(buf: bytes, offset: int, end: int) -> list[r.ClientInfo]:
    """Read the identities of the connection."""
    return r.WhoAmIResponse.decode(buf, offset, end).clientInfo


def decode_nothing(buf: bytes, offset: int, end: int) -> None:
    """Ignore the body."""


def decode_true(buf: bytes, offset: int, end: int) -> bool:
    """Return True: there was no error."""
    return True


def decode_paths(strip_chroot: Callable[[str], str]) -> Decode[list[str]]:
    """Return what reads a list of paths."""
    return lambda buf, offset, end: [
        strip_chroot(path) for path in r.GetEphemeralsResponse.decode(buf, offset, end).ephemerals
    ]


def decode_path(strip_chroot: Callable[[str], str]) -> Decode[str]:
    """Return what reads the path of a node that was made."""
    return lambda buf, offset, end: strip_chroot(r.CreateResponse.decode(buf, offset, end).path)


def decode_path_and_stat(strip_chroot: Callable[[str], str]) -> Decode[tuple[str, Stat]]:
    """Return what reads the path and the Stat of a node that was made."""

    def decode(buf: bytes, offset: int, end: int) -> tuple[str, Stat]:
        response = r.Create2Response.decode(buf, offset, end)
        return strip_chroot(response.path), response.stat

    return decode


# --- several operations in one request ---


def multi_read_request(reads: Sequence[tuple[str, str]], add_chroot: Callable[[str], str]) -> bytes:
    """Return the body of a multiRead.

    Raises:
        ValueError: A read is neither ``("get", path)`` nor ``("children", path)``.
    """
    operations: list[tuple[OpCode, Record]] = []
    for kind, path in reads:
        if kind == "get":
            operations.append((OpCode.GET_DATA, r.GetDataRequest(add_chroot(path), False)))
        elif kind == "children":
            operations.append((OpCode.GET_CHILDREN, r.GetChildrenRequest(add_chroot(path), False)))
        else:
            raise ValueError(f"{kind!r} is not a kind of read; 'get' and 'children' are")
    return wire.encode_operations(operations)


def decode_multi_read(reads: Sequence[tuple[str, str]], serializer: Serializer) -> Decode[list[Any]]:
    """Return what reads the results of a multiRead: a value and Stat, a list of names, or an error for each."""

    def result(path: str, record: Record) -> Any:
        if isinstance(record, r.ErrorResponse):
            return error_for(record.err, path)
        if isinstance(record, r.GetDataResponse):
            return serializer.read(path, record.data), record.stat
        if not isinstance(record, r.GetChildrenResponse):
            raise MarshallingError(path, f"a result of another kind: {type(record).__name__}")
        return record.children

    def decode(buf: bytes, offset: int, end: int) -> list[Any]:
        results = decode_results(len(reads))(buf, offset, end)
        return [result(path, record) for (_, path), (_, record) in zip(reads, results, strict=True)]

    return decode


def decode_results(count: int) -> Decode[list[tuple[int, Record]]]:
    """Return what reads the results of so many operations."""

    def decode(buf: bytes, offset: int, end: int) -> list[tuple[int, Record]]:
        results = wire.decode_results(buf, offset)
        if len(results) != count:
            raise MarshallingError(detail=f"{len(results)} results for {count} operations")
        return results

    return decode


def watch_request(encoded_path: bytes, number: int) -> bytes:
    """Return the body of addWatch, checkWatches and removeWatches: a path, and a mode or WatcherType."""
    return encoded_path + pack_int(number)
