"""A queue whose entries have priorities."""

from __future__ import annotations

from ..serializers import V
from .queue import Queue


class PriorityQueue(Queue[V]):
    """A queue that returns the lowest priority first, and equal priorities in the order of their puts.

    Znodes: ``PATH/entry-<prio>-<seq>``, persistent and sequential, as in kazoo's Queue with a priority.

    Guarantees and limits: as for Queue.

    Args:
        client: Client that puts and consumes entries.
        path: Path of the queue.
    """

    async def put(self, value: V, priority: int = 100, *, key: str | None = None) -> str:
        """Put a value, and return the entry's name.

        Args:
            value: Value of the entry.
            priority: Number from 0 to 999. The lowest is consumed first.
            key: As for :meth:`Queue.put`.

        Raises:
            ValueError: The priority is out of range, or the key is not a valid node name.
            ConnectionLossError: The connection was lost, and the value may have been put.
            SessionExpiredError: The session ended, and the value may have been put.
        """
        if not isinstance(priority, int) or not 0 <= priority <= 999:
            raise ValueError(f"priority must be an int from 0 to 999, not {priority!r}")
        return await self._put(value, priority, key)
