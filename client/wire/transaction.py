"""Transactions: operations that are applied together or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Generic, Literal, Self

from ...protocol import multi as wire
from ...protocol import records as r
from ...protocol.acl import ACL, AclList
from ...protocol.codec import Record
from ...protocol.errors import ErrorCode, NoNodeError, RuntimeInconsistencyError, ZooKeeperError
from ...protocol.operations import OpCode
from ..serializers import V
from .arguments import checked_acl, checked_version
from .operations import NewNode
from .requests import request_error


class Transaction(Generic[V]):
    """A collection of operations, committed at the end of its ``async with`` block unless the block raised.

    ``Client.transaction()`` creates it. Its guards are nodes that must exist. They are checked first, and are not
    counted as operations.

    Attributes:
        results: Result of each operation after the commit: the path for a create, the Stat for a set, and None for a
            delete or check. After a failed commit: None for operations before the one that failed, then its error,
            then a RuntimeInconsistencyError for each operation after it.
    """

    def __init__(
        self,
        commit: Callable[[bytes, int], Coroutine[Any, Any, list[tuple[int, Record]]]],
        add_chroot: Callable[[str, bool], str],
        strip_chroot: Callable[[str], str],
        encode: Callable[[V | Literal[b""], str], bytes],
        acl: AclList | None = None,
        guards: Sequence[str] = (),
        guard_failed: Callable[[], Exception] | None = None,
    ) -> None:
        self._commit = commit
        self._add_chroot = add_chroot
        self._strip_chroot = strip_chroot
        self._encode = encode
        self._acl = acl
        self._operations: list[tuple[OpCode, Record]] = []
        self._paths: list[str] = []
        self._records: list[tuple[int, Record]] = []  # results as the server sent them
        self.results: list[Any] = []
        self._guard_count = len(guards)
        self._guard_failed = guard_failed
        for path in guards:
            self.check(path)

    def __len__(self) -> int:
        return len(self._operations) - self._guard_count

    def _add(self, op: OpCode, request: Record, path: str) -> None:
        self._operations.append((op, request))
        self._paths.append(path)

    def check(self, path: str, version: int = -1) -> None:
        """Require that a node exists and has *version* (-1 for any). Otherwise, the whole transaction fails."""
        request = r.CheckVersionRequest(self._add_chroot(path, False), checked_version(version))
        self._add(OpCode.CHECK, request, path)

    def create(
        self,
        path: str,
        value: V | Literal[b""] = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
        acl: Iterable[ACL] | None = None,
    ) -> None:
        """Create a node, with the arguments of ``Client.create`` except *parents* and *protected*."""
        node = NewNode.of(ephemeral, sequential, container, ttl)
        below_chroot = self._add_chroot(path, sequential)
        entries = self._acl if acl is None else checked_acl(acl)
        self._add(*node.request(below_chroot, self._encode(value, path), entries), path)

    def set(self, path: str, value: V | Literal[b""], version: int = -1) -> None:
        """Replace a node's data if its version matches (-1 for any)."""
        request = r.SetDataRequest(self._add_chroot(path, False), self._encode(value, path), checked_version(version))
        self._add(OpCode.SET_DATA, request, path)

    def delete(self, path: str, version: int = -1) -> None:
        """Delete a node if its version matches (-1 for any)."""
        request = r.DeleteRequest(self._add_chroot(path, False), checked_version(version))
        self._add(OpCode.DELETE, request, path)

    async def commit(self) -> list[Any]:
        """Apply all operations or none. The ``async with`` block does this at its end.

        Returns:
            The result of each operation, as in ``results``.

        Raises:
            ZooKeeperError: An operation failed. A note of the error contains the number of the operation.
        """
        return await self._wait_results(self._send()) if self._operations else []

    def _send(self) -> Coroutine[Any, Any, list[tuple[int, Record]]]:
        """Send the transaction immediately, and return the argument for :meth:`_wait_results`."""
        return self._commit(wire.encode_operations(self._operations), len(self._operations))

    async def _wait_results(self, sent: Awaitable[list[tuple[int, Record]]]) -> list[Any]:
        """Wait for the results of a transaction that was sent, and return them.

        Raises:
            ZooKeeperError: As for :meth:`commit`.
        """
        self._records = records = await sent
        asked = zip(self._operations, self._paths, records, strict=True)
        results = [self._result(op, path, record) for (op, _), path, (_, record) in asked]
        self.results = results[self._guard_count :]
        for number, result in enumerate(results):
            if isinstance(result, ZooKeeperError) and not isinstance(result, RuntimeInconsistencyError):
                if number < self._guard_count and self._guard_failed is not None and isinstance(result, NoNodeError):
                    raise self._guard_failed() from None
                # A new error is raised, because the traceback of the result would hold the frames of all callers.
                raise self._with_note(type(result)(result.path, result.detail), number)
        return self.results

    def _with_note(self, error: ZooKeeperError, number: int) -> ZooKeeperError:
        error.add_note(
            f"operation {number + 1 - self._guard_count} of {len(self)} of the transaction failed; none was applied"
        )
        return error

    def _result(self, op: OpCode, path: str, record: Record) -> Any:
        if isinstance(record, r.ErrorResponse):
            return request_error(record.err, op, path) if record.err != ErrorCode.OK else None
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
