"""Requests and replies of the operations, without I/O: conversion of arguments to bytes, and of bytes to results.

:mod:`zoolet.protocol.operations` defines the operations (their records, and whether they may be sent again). This
module only converts the client's arguments into requests, and replies into the client's results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from ...protocol import multi as wire
from ...protocol import records as r
from ...protocol.acl import OPEN_ACL_UNSAFE, AclList
from ...protocol.codec import Record, ensure_compiled, pack_int
from ...protocol.enums import MAX_TTL, CreateMode, is_ttl
from ...protocol.errors import MarshallingError, error_for
from ...protocol.operations import OPERATIONS, OpCode, codes_by_name
from ..serializers import C, Serializer, raw
from .arguments import checked_version

T = TypeVar("T")
Stat = r.Stat
Decode = Callable[[bytes, int, int], T]
"""Function that decodes the body of a reply from ``buf[offset:end]``."""

NO_WATCH: Final = b"\0"
WATCH: Final = b"\1"
"""Last byte of a read request that sets a watch. With :data:`NO_WATCH`, the request sets none."""


ANY_VERSION: Final = pack_int(-1)
"""The encoded version -1, at the end of a request: any version matches."""


def encode_version(version: int) -> bytes:
    """Check a version, and encode it.

    Raises:
        TypeError: *version* is not an int.
        ValueError: *version* does not fit into 32 bits.
    """
    return ANY_VERSION if version.__class__ is int and version == -1 else pack_int(checked_version(version))


def op_code(operation: str | int) -> int:
    """Return the op code of an operation.

    Raises:
        ValueError: The operation is unknown, or its name stands for several op codes.
    """
    codes = frozenset({operation}) & OPERATIONS.keys() if isinstance(operation, int) else codes_by_name(operation)
    if len(codes) != 1:
        raise ValueError(f"operation {operation!r} is unknown or stands for several op codes")
    return int(next(iter(codes)))


# --- creates ---


# Separate names, because a lookup in an enum costs 80 ns (Python 3.11), and a call of the enum ten times as much.
_CONTAINER: Final = CreateMode.CONTAINER
_CREATE, _CREATE2 = OpCode.CREATE, OpCode.CREATE2


class NewNode(NamedTuple):
    """The kind of a new node.

    Args:
        mode: Mode of the create request, such as CONTAINER.
        ttl: The TTL in milliseconds; None for modes without TTL.
    """

    mode: CreateMode
    ttl: int | None = None

    @staticmethod
    def of(ephemeral: bool, sequential: bool, container: bool, ttl: float | None) -> NewNode:
        """Return the kind of node for the arguments of a create.

        Raises:
            TypeError: *ephemeral*, *sequential* or *container* is not a bool.
            ValueError: The arguments exclude each other, or *ttl* is out of range.
        """
        if ephemeral.__class__ is not bool or sequential.__class__ is not bool or container.__class__ is not bool:
            flags = {"ephemeral": ephemeral, "sequential": sequential, "container": container}
            name, value = next(flag for flag in flags.items() if not isinstance(flag[1], bool))
            raise TypeError(f"{name} must be True or False, not {value!r}")
        if container and (ephemeral or sequential or ttl is not None):
            raise ValueError("a container cannot be ephemeral or sequential or have a ttl")
        if ttl is not None:
            if ephemeral:
                raise ValueError("an ephemeral node cannot have a ttl: it is deleted when its session ends")
            if not is_ttl(ttl):
                raise ValueError(f"ttl must be from 0.001 to {MAX_TTL / 1000:,} seconds, not {ttl!r}")
            mode = CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL if sequential else CreateMode.PERSISTENT_WITH_TTL
            return NewNode(mode, round(ttl * 1000))
        return _NEW_CONTAINER if container else _PLAIN_NODES[ephemeral + 2 * sequential]

    def request(
        self, path: str, data: bytes | None, acl: AclList | None, *, with_stat: bool = False
    ) -> tuple[OpCode, Record]:
        """Return the op code and the request record of a create. Without *acl*, everyone gets all permissions."""
        mode, ttl = self
        acl = OPEN_ACL_UNSAFE if acl is None else acl
        if ttl is not None:
            return OpCode.CREATE_TTL, r.CreateTTLRequest(path, data, acl, mode, ttl)
        if mode is _CONTAINER:
            return OpCode.CREATE_CONTAINER, r.CreateRequest(path, data, acl, mode)
        return (_CREATE2 if with_stat else _CREATE), r.CreateRequest(path, data, acl, mode)


_PLAIN_NODES: Final = tuple(NewNode(CreateMode(flags)) for flags in range(4))
PLAIN_NODE: Final = _PLAIN_NODES[0]
"""A persistent node."""
_NEW_CONTAINER: Final = NewNode(_CONTAINER)


# --- replies ---

_decode_data_response = ensure_compiled(r.GetDataResponse).decode
_decode_stat_response = ensure_compiled(r.StatResponse).decode


def decode_raw(buf: bytes, offset: int, end: int) -> tuple[bytes, Stat]:
    """Decode a node's bytes (``b""`` for null) and its Stat."""
    response = _decode_data_response(buf, offset, end)
    return response.data or b"", response.stat


def decode_data(path: str, serializer: Serializer[C]) -> Decode[tuple[C, Stat]]:
    """Return a decoder for a node's value, which *serializer* decodes, and its Stat."""
    if serializer is raw:
        return decode_raw  # type: ignore[return-value] # C is bytes

    def decode(buf: bytes, offset: int, end: int) -> tuple[C, Stat]:
        response = _decode_data_response(buf, offset, end)
        return serializer.read(path, response.data), response.stat

    return decode


def decode_stat(buf: bytes, offset: int, end: int) -> Stat:
    """Decode the Stat in a reply that contains nothing else."""
    return _decode_stat_response(buf, offset, end).stat


def decode_children(buf: bytes, offset: int, end: int) -> list[str]:
    """Decode the names of a node's children."""
    return r.GetChildrenResponse.decode(buf, offset, end).children


def decode_children_and_stat(buf: bytes, offset: int, end: int) -> tuple[list[str], Stat]:
    """Decode the names of children and their parent's Stat."""
    response = r.GetChildren2Response.decode(buf, offset, end)
    return response.children, response.stat


def decode_children2(buf: bytes, offset: int, end: int) -> r.GetChildren2Response:
    """Decode the record of a getChildren2 reply."""
    return r.GetChildren2Response.decode(buf, offset, end)


def decode_count(buf: bytes, offset: int, end: int) -> int:
    """Decode the number of nodes below a node."""
    return r.GetAllChildrenNumberResponse.decode(buf, offset, end).totalNumber


def decode_acl(buf: bytes, offset: int, end: int) -> tuple[AclList, Stat]:
    """Decode an ACL list and the node's Stat."""
    response = r.GetACLResponse.decode(buf, offset, end)
    return response.acl or (), response.stat


def decode_identities(buf: bytes, offset: int, end: int) -> list[r.ClientInfo]:
    """Decode the identities of the connection."""
    return r.WhoAmIResponse.decode(buf, offset, end).clientInfo


def decode_nothing(buf: bytes, offset: int, end: int) -> None:
    """Return None, and ignore the body of the reply."""


def decode_true(buf: bytes, offset: int, end: int) -> bool:
    """Return True, because the reply has no error."""
    return True


def decode_paths(strip_chroot: Callable[[str], str]) -> Decode[list[str]]:
    """Return a decoder for the paths in a getEphemerals reply, without the chroot."""
    return lambda buf, offset, end: [
        strip_chroot(path) for path in r.GetEphemeralsResponse.decode(buf, offset, end).ephemerals
    ]


def decode_path(strip_chroot: Callable[[str], str]) -> Decode[str]:
    """Return a decoder for the path of a new node, without the chroot."""
    return lambda buf, offset, end: strip_chroot(r.CreateResponse.decode(buf, offset, end).path)


def decode_path_and_stat(strip_chroot: Callable[[str], str]) -> Decode[tuple[str, Stat]]:
    """Return a decoder for the path of a new node, without the chroot, and its Stat."""

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
            raise ValueError(f"kind must be 'get' or 'children', not {kind!r}")
    return wire.encode_operations(operations)


def decode_multi_read(reads: Sequence[tuple[str, str]], serializer: Serializer[Any]) -> Decode[list[Any]]:
    """Return a decoder for the results of a multiRead: for each read a value and Stat, a list of names, or an error."""

    def result(path: str, record: Record) -> Any:
        if isinstance(record, r.ErrorResponse):
            return error_for(record.err, path)
        if isinstance(record, r.GetDataResponse):
            return serializer.read(path, record.data), record.stat
        if not isinstance(record, r.GetChildrenResponse):
            raise MarshallingError(path, f"unexpected result of type {type(record).__name__}")
        return record.children

    def decode(buf: bytes, offset: int, end: int) -> list[Any]:
        results = decode_results(len(reads))(buf, offset, end)
        return [result(path, record) for (_, path), (_, record) in zip(reads, results, strict=True)]

    return decode


def decode_results(count: int) -> Decode[list[tuple[int, Record]]]:
    """Return a decoder for the results of *count* operations. It raises MarshallingError for any other number."""

    def decode(buf: bytes, offset: int, end: int) -> list[tuple[int, Record]]:
        results = wire.decode_results(buf, offset)
        if len(results) != count:
            raise MarshallingError(detail=f"expected {count} results, found {len(results)}")
        return results

    return decode


def watch_request(encoded_path: bytes, number: int) -> bytes:
    """Return the body of addWatch, checkWatches and removeWatches: a path, and a mode or WatcherType."""
    return encoded_path + pack_int(number)
