"""Transactions: operations that happen together or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, OPEN_ACL_UNSAFE, AclList
from zoolet.protocol.codec import Record
from zoolet.protocol.enums import CreateMode
from zoolet.protocol.errors import ErrorCode, RuntimeInconsistencyError, ZooKeeperError, error_for
from zoolet.protocol.operations import OpCode


def mode_of(ephemeral: bool, sequential: bool, container: bool, ttl: float | None) -> CreateMode:
    """Return the kind of node that the arguments of a create mean.

    Raises:
        ValueError: They exclude each other.
    """
    if container and (ephemeral or sequential or ttl is not None):
        raise ValueError("a container is neither ephemeral nor sequential and has no ttl")
    if ttl is not None:
        if ephemeral:
            raise ValueError("an ephemeral node has no ttl: it ends with its session")
        if not 0.001 <= ttl <= ((1 << 40) - 1) / 1000:
            raise ValueError(f"ttl is {ttl!r} s; it must be from 0.001 to 1,099,511,627.775")
        return CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL if sequential else CreateMode.PERSISTENT_WITH_TTL
    if container:
        return CreateMode.CONTAINER
    return CreateMode(int(ephemeral) + 2 * int(sequential))


def create_request(path: str, data: bytes, acl: AclList | None, mode: CreateMode, ttl: float | None) -> Record:
    """Return the request record of a create."""
    acl = OPEN_ACL_UNSAFE if acl is None else checked_acl(acl)
    if ttl is not None:
        return r.CreateTTLRequest(path, data, acl, mode, round(ttl * 1000))
    return r.CreateRequest(path, data, acl, mode)


class Transaction:
    """Collects operations; commits them at the end of its ``async with`` block, unless that raised.

    Made by ``Client.transaction()``.

    Attributes:
        results: After the commit, for each operation: the path of a create, the Stat of a set, None of a delete or
            check; after a commit that failed, the error of each, RuntimeInconsistencyError for those behind the one
            that did not hold.
    """

    def __init__(
        self,
        commit: Callable[[bytes, int], Coroutine[Any, Any, list[tuple[int, Record]]]],
        add_chroot: Callable[[str, bool], str],
        strip_chroot: Callable[[str], str],
        encode: Callable[[Any], bytes],
    ) -> None:
        self._commit = commit
        self._add_chroot = add_chroot
        self._strip_chroot = strip_chroot
        self._encode = encode
        self._operations: list[tuple[OpCode, Record]] = []
        self._paths: list[str] = []
        self.results: list[Any] = []

    def __len__(self) -> int:
        return len(self._operations)

    def _add(self, op: OpCode, path: str, request: Record) -> None:
        self._operations.append((op, request))
        self._paths.append(path)

    def check(self, path: str, version: int = -1) -> None:
        """Go on only if the node exists and has the version; -1 for any."""
        self._add(OpCode.CHECK, path, r.CheckVersionRequest(self._add_chroot(path, False), checked_version(version)))

    def create(
        self,
        path: str,
        value: Any = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
        acl: AclList | None = None,
    ) -> None:
        """Make a node; arguments as for ``Client.create``."""
        mode = mode_of(ephemeral, sequential, container, ttl)
        op = OpCode.CREATE_CONTAINER if container else OpCode.CREATE if ttl is None else OpCode.CREATE_TTL
        self._add(op, path, create_request(self._add_chroot(path, sequential), self._encode(value), acl, mode, ttl))

    def set(self, path: str, value: Any, version: int = -1) -> None:
        """Replace a node's data if it has the version; -1 for any."""
        request = r.SetDataRequest(self._add_chroot(path, False), self._encode(value), checked_version(version))
        self._add(OpCode.SET_DATA, path, request)

    def delete(self, path: str, version: int = -1) -> None:
        """Remove a node if it has the version; -1 for any."""
        self._add(OpCode.DELETE, path, r.DeleteRequest(self._add_chroot(path, False), checked_version(version)))

    async def commit(self) -> list[Any]:
        """Do all of it or nothing; the ``async with`` block does this at its end.

        Returns:
            The results.

        Raises:
            ZooKeeperError: The error of the operation that did not hold; its number stands in a note.
        """
        return await self.take(self.send()) if self._operations else []

    def send(self) -> Coroutine[Any, Any, list[tuple[int, Record]]]:
        """Send it at once; for :meth:`take`."""
        return self._commit(wire.encode_operations(self._operations), len(self._operations))

    async def take(self, sent: Awaitable[list[tuple[int, Record]]]) -> list[Any]:
        """Wait for the results of what was sent; raises as :meth:`commit` does."""
        found = await sent
        self.results = [self._result(path, record) for path, (_, record) in zip(self._paths, found, strict=True)]
        for number, result in enumerate(self.results, 1):
            if isinstance(result, ZooKeeperError) and not isinstance(result, RuntimeInconsistencyError):
                result.add_note(f"operation {number} of {len(self._operations)} of a transaction; none was done")
                raise result
        return self.results

    def _result(self, path: str, record: Record) -> Any:
        if isinstance(record, r.ErrorResponse):
            return error_for(record.err, path) if record.err != ErrorCode.OK else None
        if isinstance(record, r.CreateResponse | r.Create2Response):
            return self._strip_chroot(record.path)
        return record.stat if isinstance(record, r.StatResponse) else None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.commit()


def checked_acl(acl: AclList) -> AclList:
    """Return the ACL list back, as a tuple, if it is one.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(acl, tuple | list) or not all(isinstance(entry, ACL) for entry in acl):
        raise TypeError(f"acl must be a tuple of ACL, such as OPEN_ACL_UNSAFE, not {acl!r}")
    return tuple(acl)


def checked_version(version: int) -> int:
    """Return the version back if it is one.

    Raises:
        TypeError: It is no int.
        ValueError: It is out of range.
    """
    if not isinstance(version, int) or isinstance(version, bool):
        raise TypeError(f"version must be an int, not {version!r}; -1 is for any")
    if not -0x80000000 <= version <= 0x7FFFFFFF:
        raise ValueError(f"version {version} does not fit into 32 bits")
    return version
