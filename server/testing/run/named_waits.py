"""Waits for what a test knows by name: a node, a number of sessions, of contenders for a lock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from zoolet.server.testing.run import arguments
from zoolet.server.testing.state import views, waiting


class NamedWaits(ABC):
    """The named waits of a server whose tree and sessions can be seen."""

    @abstractmethod
    def tree(self, path: str = "/") -> Mapping[str, views.NodeView]:
        """Return a node and all nodes below it, by path."""

    @abstractmethod
    def _node_at(self, path: str) -> views.NodeView | None:
        """Return a node; None if there is none."""

    @abstractmethod
    def _sessions_of_clients(self) -> Mapping[int, views.SessionView]:
        """Return the sessions that are alive, without those that the test toolkit has."""

    @abstractmethod
    def _wait(
        self, predicate: Callable[[], Any], timeout: float, what: Callable[[], str], twin: str = "until_...()"
    ) -> Any:
        """Wait; of an ``Endpoint``."""

    @abstractmethod
    def _until(self, predicate: Callable[[], Any], timeout: float, what: Callable[[], str]) -> Awaitable[Any]:
        """Wait without blocking; of an ``Endpoint``."""

    def wait_for_node(self, path: str, data: bytes | str | None = None, *, timeout: float = 5.0) -> views.NodeView:
        """Wait until there is a node, and return it. It blocks, as all of these do; ``until_...`` are to be awaited.

        Args:
            path: The node.
            data: The data that it must have; None for any.
            timeout: Seconds of real time.

        Raises:
            TimeoutError: There was none in time, or it had other data; the message says which.
        """
        __tracebackhide__ = True
        waited: views.NodeView = self._wait(*self._node(path, data, timeout))
        return waited

    async def until_node(self, path: str, data: bytes | str | None = None, *, timeout: float = 5.0) -> views.NodeView:
        """Wait without blocking the event loop, in its time; as for :meth:`wait_for_node`."""
        __tracebackhide__ = True
        waited: views.NodeView = await self._until(*self._node(path, data, timeout))
        return waited

    def wait_for_sessions(self, n: int, timeout: float = 5.0) -> None:
        """Wait until exactly *n* sessions are alive; that of ``create()`` does not count.

        Raises:
            TimeoutError: There were more or fewer; the message lists them.
        """
        __tracebackhide__ = True
        self._wait(*self._session_count(n, timeout))

    async def until_sessions(self, n: int, timeout: float = 5.0) -> None:
        """Wait without blocking the event loop, in its time; as for :meth:`wait_for_sessions`."""
        __tracebackhide__ = True
        await self._until(*self._session_count(n, timeout))

    def wait_for_contenders(self, path: str, n: int, timeout: float = 5.0) -> None:
        """Wait until exactly *n* hold or wait for a lock, election, semaphore or party at a path; the holder counts.

        Raises:
            TimeoutError: There were more or fewer; the message lists their nodes.
        """
        __tracebackhide__ = True
        self._wait(*self._contender_count(path, n, timeout))

    async def until_contenders(self, path: str, n: int, timeout: float = 5.0) -> None:
        """Wait without blocking the event loop, in its time; as for :meth:`wait_for_contenders`."""
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
            alive = [f"0x{id:x} from {view.client or 'nowhere'}" for id, view in self._sessions_of_clients().items()]
            return f"there were not {n} sessions, but {len(alive)} ({', '.join(alive) or 'none'})"

        arguments.check_counts(n=n)
        return lambda: len(self._sessions_of_clients()) == n, timeout, what

    def _contender_count(self, path: str, n: int, timeout: float) -> waiting.Condition:
        def what() -> str:
            nodes = waiting.contenders(self.tree(path), path)
            return f"there were not {n} contenders for {path}, but {len(nodes)} ({', '.join(nodes) or 'none'})"

        arguments.check_counts(n=n)
        views.check_path(path)
        return lambda: len(waiting.contenders(self.tree(path), path)) == n, timeout, what
