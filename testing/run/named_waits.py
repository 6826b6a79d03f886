"""Waits for named conditions: a node, a number of sessions, or a number of contenders for a lock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ...protocol.hexadecimal import hexadecimal
from ..state import views, waiting
from . import arguments


class NamedWaits(ABC):
    """The waits for named conditions, for a server whose tree and sessions a test can read."""

    @abstractmethod
    def tree(self, path: str = "/") -> Mapping[str, views.NodeView]:
        """Return a node and all nodes below it, by path."""

    @abstractmethod
    def _node_at(self, path: str) -> views.NodeView | None:
        """Return a node, or None if it does not exist."""

    @abstractmethod
    def _sessions_of_clients(self) -> Mapping[int, views.SessionView]:
        """Return the sessions that are alive, without the test toolkit's own sessions."""

    @abstractmethod
    def _wait(
        self,
        predicate: Callable[[], Any],
        timeout: float,
        describe: Callable[[], str],
        coroutine_name: str = "until_...()",
    ) -> Any:
        """Wait until *predicate* is true, and return its result. ``Endpoint`` implements this."""

    @abstractmethod
    def _until(self, predicate: Callable[[], Any], timeout: float, describe: Callable[[], str]) -> Awaitable[Any]:
        """Wait like :meth:`_wait`, without blocking the event loop. ``Endpoint`` implements this."""

    def wait_for_node(self, path: str, data: bytes | str | None = None, *, timeout: float = 5.0) -> views.NodeView:
        """Wait until a node exists, and return it. This blocks: in asyncio code use :meth:`until_node`.

        Args:
            path: The node.
            data: Expected data of the node, or None for any.
            timeout: Seconds of real time.

        Raises:
            TimeoutError: The node was missing, or had different data, until the timeout. The message names the reason.
            ValueError: The path or the timeout is invalid.
        """
        __tracebackhide__ = True
        waited: views.NodeView = self._wait(*self._node_condition(path, data, timeout))
        return waited

    async def until_node(self, path: str, data: bytes | str | None = None, *, timeout: float = 5.0) -> views.NodeView:
        """Wait like :meth:`wait_for_node`, but without blocking the event loop, and in the time of that loop."""
        __tracebackhide__ = True
        waited: views.NodeView = await self._until(*self._node_condition(path, data, timeout))
        return waited

    def wait_for_sessions(self, n: int, timeout: float = 5.0) -> None:
        """Wait until exactly *n* sessions are alive. The session of ``create(ephemeral=True)`` does not count.

        Raises:
            TimeoutError: More or fewer sessions were alive. The message lists the sessions.
            ValueError: *n* or the timeout is invalid.
        """
        __tracebackhide__ = True
        self._wait(*self._session_condition(n, timeout))

    async def until_sessions(self, n: int, timeout: float = 5.0) -> None:
        """Wait like :meth:`wait_for_sessions`, but without blocking the event loop, and in the time of that loop."""
        __tracebackhide__ = True
        await self._until(*self._session_condition(n, timeout))

    def wait_for_contenders(self, path: str, n: int, timeout: float = 5.0) -> None:
        """Wait until exactly *n* clients hold or wait for a lock, election, semaphore or party at a path.

        Raises:
            TimeoutError: More or fewer clients held the lock or waited. The message lists their nodes.
            ValueError: The path, *n* or the timeout is invalid.
        """
        __tracebackhide__ = True
        self._wait(*self._contender_condition(path, n, timeout))

    async def until_contenders(self, path: str, n: int, timeout: float = 5.0) -> None:
        """Wait like :meth:`wait_for_contenders`, but without blocking the event loop, and in the time of that loop."""
        __tracebackhide__ = True
        await self._until(*self._contender_condition(path, n, timeout))

    def _node_condition(self, path: str, data: bytes | str | None, timeout: float) -> waiting.Condition:
        expected = data.encode() if isinstance(data, str) else data
        views.check_path(path)

        def find() -> views.NodeView | None:
            node = self._node_at(path)
            return node if node is not None and expected in (None, node.data) else None

        def describe() -> str:
            return waiting.describe_node(self.tree(path).get(path), path, expected)

        return find, timeout, describe

    def _session_condition(self, n: int, timeout: float) -> waiting.Condition:
        def describe() -> str:
            sessions = self._sessions_of_clients().items()
            alive = [f"{hexadecimal(session_id)} from {view.client or 'nowhere'}" for session_id, view in sessions]
            return f"expected {n} session{'s' * (n != 1)}, found {len(alive)} ({', '.join(alive) or 'none'})"

        arguments.check_counts(n=n)
        return lambda: len(self._sessions_of_clients()) == n, timeout, describe

    def _contender_condition(self, path: str, n: int, timeout: float) -> waiting.Condition:
        def describe() -> str:
            nodes = waiting.contenders(self.tree(path), path)
            counted = f"{n} contender{'s' * (n != 1)}"
            return f"expected {counted} for {path}, found {len(nodes)} ({', '.join(nodes) or 'none'})"

        arguments.check_counts(n=n)
        views.check_path(path)
        return lambda: len(waiting.contenders(self.tree(path), path)) == n, timeout, describe
