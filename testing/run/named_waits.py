"""Waits for named conditions: a node, a number of sessions, or a number of contenders for a lock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ...protocol.hexadecimal import hexadecimal
from ..state import views, waiting
from . import arguments


class NamedWaits(ABC):
    """The named waits of a server whose tree and sessions a test can read."""

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
        self, predicate: Callable[[], Any], timeout: float, what: Callable[[], str], twin: str = "until_...()"
    ) -> Any:
        """Wait, as implemented by ``Endpoint``."""

    @abstractmethod
    def _until(self, predicate: Callable[[], Any], timeout: float, what: Callable[[], str]) -> Awaitable[Any]:
        """Wait without blocking, as implemented by ``Endpoint``."""

    def wait_for_node(self, path: str, data: bytes | str | None = None, *, timeout: float = 5.0) -> views.NodeView:
        """Wait until a node exists, and return it. This blocks: in asyncio code use :meth:`until_node`.

        Args:
            path: The node.
            data: Expected data of the node, or None for any.
            timeout: Seconds of real time.

        Raises:
            TimeoutError: The node was missing or had different data. The message names the reason.
            ValueError: The path or the timeout is invalid.
        """
        __tracebackhide__ = True
        waited: views.NodeView = self._wait(*self._node(path, data, timeout))
        return waited

    async def until_node(self, path: str, data: bytes | str | None = None, *, timeout: float = 5.0) -> views.NodeView:
        """Wait like :meth:`wait_for_node`, but without blocking the event loop, and in the time of that loop."""
        __tracebackhide__ = True
        waited: views.NodeView = await self._until(*self._node(path, data, timeout))
        return waited

    def wait_for_sessions(self, n: int, timeout: float = 5.0) -> None:
        """Wait until exactly *n* sessions are alive. The session of ``create(ephemeral=True)`` does not count.

        Raises:
            TimeoutError: More or fewer sessions were alive. The message lists them.
            ValueError: *n* or the timeout is invalid.
        """
        __tracebackhide__ = True
        self._wait(*self._session_count(n, timeout))

    async def until_sessions(self, n: int, timeout: float = 5.0) -> None:
        """Wait like :meth:`wait_for_sessions`, but without blocking the event loop, and in the time of that loop."""
        __tracebackhide__ = True
        await self._until(*self._session_count(n, timeout))

    def wait_for_contenders(self, path: str, n: int, timeout: float = 5.0) -> None:
        """Wait until exactly *n* clients hold or wait for a lock, election, semaphore or party at a path.

        Raises:
            TimeoutError: More or fewer clients held it or waited. The message lists their nodes.
            ValueError: The path, *n* or the timeout is invalid.
        """
        __tracebackhide__ = True
        self._wait(*self._contender_count(path, n, timeout))

    async def until_contenders(self, path: str, n: int, timeout: float = 5.0) -> None:
        """Wait like :meth:`wait_for_contenders`, but without blocking the event loop, and in the time of that loop."""
        __tracebackhide__ = True
        await self._until(*self._contender_count(path, n, timeout))

    def _node(self, path: str, data: bytes | str | None, timeout: float) -> waiting.Condition:
        expected = data.encode() if isinstance(data, str) else data
        views.check_path(path)

        def find() -> views.NodeView | None:
            node = self._node_at(path)
            return node if node is not None and expected in (None, node.data) else None

        def what() -> str:
            return waiting.describe_node(self.tree(path).get(path), path, expected)

        return find, timeout, what

    def _session_count(self, n: int, timeout: float) -> waiting.Condition:
        def what() -> str:
            sessions = self._sessions_of_clients().items()
            alive = [f"{hexadecimal(session_id)} from {view.client or 'nowhere'}" for session_id, view in sessions]
            return f"expected {n} session{'s' * (n != 1)}, found {len(alive)} ({', '.join(alive) or 'none'})"

        arguments.check_counts(n=n)
        return lambda: len(self._sessions_of_clients()) == n, timeout, what

    def _contender_count(self, path: str, n: int, timeout: float) -> waiting.Condition:
        def what() -> str:
            nodes = waiting.contenders(self.tree(path), path)
            counted = f"{n} contender{'s' * (n != 1)}"
            return f"expected {counted} for {path}, found {len(nodes)} ({', '.join(nodes) or 'none'})"

        arguments.check_counts(n=n)
        views.check_path(path)
        return lambda: len(waiting.contenders(self.tree(path), path)) == n, timeout, what
