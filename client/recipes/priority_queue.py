"""A queue whose entries have priorities."""

from __future__ import annotations

from typing import Any

from zoolet.client.recipes.queue import Queue


class PriorityQueue(Queue):
    """The lowest priority first, and of the same priority the first that was put.

    Znodes: ``PATH/entry-<prio>-<seq>``, persistent and sequential, as kazoo's Queue with a priority.

    Guarantees and limits: those of Queue.
    """

    async def put(self, value: Any, priority: int = 100, *, key: str | None = None) -> str:
        """Put a value; return the entry's name.

        Args:
            priority: 0 to 999; the lowest goes first.
            key: As for :meth:`Queue.put`.

        Raises:
            ValueError: The priority is out of range, or the key is not a node's name.
            ConnectionLossError: It may have been put.
            SessionExpiredError: It may have been put.
        """
        if not isinstance(priority, int) or not 0 <= priority <= 999:
            raise ValueError(f"priority is {priority!r}; it must be from 0 to 999")
        return await self._put(value, priority, key)
