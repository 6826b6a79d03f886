"""Executes the frames of a test server: by the core's connection."""

from __future__ import annotations

from zoolet.protocol.records import RequestHeader
from zoolet.server.core.server_connection import ServerConnection
from zoolet.server.testing.frames.actions import Effect
from zoolet.server.testing.frames.frame_queue import FrameQueue, Passed
from zoolet.server.testing.frames.interceptor import Reply


class CoreExecutor:
    """The core's connection, as an :class:`~zoolet.server.testing.frames.frame_queue.Executor`; it answers at once.

    Args:
        queue: The queue that the frames come from.
        inner: The core's connection.
    """

    is_raw = False

    def __init__(self, queue: FrameQueue, inner: ServerConnection) -> None:
        self._queue = queue
        self._inner = inner
        self.begins_raw = inner.is_command
        self.unasked_output = inner.data_to_send
        self.connection_lost = inner.connection_lost

    def execute_raw(self, data: bytes) -> None:
        """Execute a four-letter command."""
        self._inner.receive_data(data)
        self._queue.output.add(self._inner.data_to_send())

    def execute(self, head: bytes, passed: Passed) -> int:
        """Execute a frame, and answer it."""
        inner, queue, request = self._inner, self._queue, passed.request
        queue.send_unasked(request.session)
        if passed.has(Effect.DROP):
            self.close()
            queue.record(passed, None, inner.engine.zxid)
            return 0
        if passed.effect is not None and passed.has(Effect.FAIL):
            inner.answer_with_error(RequestHeader.decode(head, 4).xid, request.opcode, passed.effect.code)
            reply = Reply(inner.data_to_send(), passed.effect.code)
        else:
            while inner.receive_data(head):
                head = b""
            reply = Reply.parse(inner.data_to_send(), request.opcode)
        return queue.answer(passed, reply, inner.engine.zxid)

    def unanswered(self) -> tuple[Passed, ...]:
        """Return nothing: the core answers at once."""
        return ()

    def close(self) -> None:
        """Close the connection, unless the request has done so."""
        if not self._inner.closing:
            self._inner.close()
