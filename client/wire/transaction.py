"""Transactions: operations that are applied together or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from zoolet.client.wire.arguments import checked_acl, checked_version
from zoolet.client.wire.operations import create_mode, create_request
from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, AclList
from zoolet.protocol.codec import Record
from zoolet.protocol.errors import ErrorCode, NoNodeError, RuntimeInconsistencyError, ZooKeeperError, error_for
from zoolet.protocol.operations import OpCode


class Transaction:
    """Collects operations; commits them at the end of its ``async with`` block, unless that raised.

    Made by ``Client.transaction()``. Its guards are nodes that have to exist: they are checked first, and do not count.

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
        self.results: list[Any] = []
        self._guards = len(guards)
        self._guard_failed = guard_failed
        for path in guards:
            self.check(path)

    def __len__(self) -> int:
        return len(self._operations) - self._guards

    def _add(self, op: OpCode, request: Record, path: str) -> None:
        self._operations.append((op, request))
        self._paths.append(path)

    def check(self, path: str, version: int = -1) -> None:
        """Go on only if the node exists and has the version; -1 for any."""
        request = r.CheckVersionRequest(self._add_chroot(path, False), checked_version(version))
        self._add(OpCode.CHECK, request, path)

    def create(
        self,
        path: str,
        value: Any = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
        acl: Iterable[ACL] | None = None,
    ) -> None:
        """Create a node; arguments as for ``Client.create``."""
        mode = create_mode(ephemeral, sequential, container, ttl)
        below_chroot = self._add_chroot(path, sequential)
        entries = self._acl if acl is None else checked_acl(acl)
        self._add(*create_request(below_chroot, self._encode(value), entries, mode, ttl), path)

    def set(self, path: str, value: Any, version: int = -1) -> None:
        """Replace a node's data if it has the version; -1 for any."""
        request = r.SetDataRequest(self._add_chroot(path, False), self._encode(value), checked_version(version))
        self._add(OpCode.SET_DATA, request, path)

    def delete(self, path: str, version: int = -1) -> None:
        """Remove a node if it has the version; -1 for any."""
        request = r.DeleteRequest(self._add_chroot(path, False), checked_version(version))
        self._add(OpCode.DELETE, request, path)

    async def commit(self) -> list[Any]:
        """Apply all of it or nothing; the ``async with`` block does this at its end.

        Returns:
            The results.

        Raises:
            ZooKeeperError: The error of the operation that did not hold; its number stands in a note.
        """
        return await self.wait_results(self.send()) if self._operations else []

    def send(self) -> Coroutine[Any, Any, list[tuple[int, Record]]]:
        """Send it at once; for :meth:`wait_results`."""
        return self._commit(wire.encode_operations(self._operations), len(self._operations))

    async def wait_results(self, sent: Awaitable[list[tuple[int, Record]]]) -> list[Any]:
        """Wait for the results of what was sent; raises as :meth:`commit` does."""
        records = await sent
        results = [self._result(path, record) for path, (_, record) in zip(self._paths, records, strict=True)]
        self.results = results[self._guards :]
        for number, result in enumerate(results):
            if isinstance(result, ZooKeeperError) and not isinstance(result, RuntimeInconsistencyError):
                if number < self._guards and self._guard_failed is not None and isinstance(result, NoNodeError):
                    raise self._guard_failed() from None
                place = f"operation {number + 1 - self._guards} of {len(self)}"
                result.add_note(f"{place} of a transaction; none was done")
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
