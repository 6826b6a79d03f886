"""The executor of a test server's frames, which uses the core's connection."""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.records import RequestHeader
from ...server.core.server_connection import ServerConnection
from .actions import Effect
from .frame_queue import Executor, FrameQueue, PassedRequest
from .interceptor import Interceptor, Reply


class CoreExecutor:
    """The core's connection as an :class:`~zoolet.testing.frames.frame_queue.Executor`. It answers immediately.

    Args:
        queue: The queue that the frames come from.
        inner: The core's connection.
    """

    is_raw = False

    def __init__(self, queue: FrameQueue, inner: ServerConnection) -> None:
        self._queue = queue
        self._inner = inner
        self.starts_raw = inner.is_command
        self.unsolicited_output = inner.data_to_send
        self.connection_lost = inner.connection_lost

    def execute_raw(self, data: bytes) -> None:
        """Execute a four-letter command."""
        self._inner.receive_data(data)
        self._queue.output.add(self._inner.data_to_send())

    def execute(self, head: bytes, passed: PassedRequest) -> int:
        """Execute a frame with the effect of its faults, and answer it. Return the number of reply bytes."""
        inner, queue, request, action = self._inner, self._queue, passed.request, passed.effect
        if output := inner.data_to_send():
            queue.send_unsolicited(request.session, output)
        if action is not None and action.effect is Effect.DROP:
            self.close()
            queue.record(passed, None, inner.engine.zxid)
            return 0
        if action is not None and action.effect is Effect.FAIL:
            inner.answer_with_error(RequestHeader.decode(head, 4).xid, request.opcode, action.code)
            reply = Reply(inner.data_to_send(), action.code)
        else:
            while inner.receive_data(head):
                head = b""
            reply = Reply.parse(inner.data_to_send(), request.opcode)
        return queue.answer(passed, reply, inner.engine.zxid)

    def unanswered(self) -> tuple[PassedRequest, ...]:
        """Return an empty tuple, because the core answers immediately."""
        return ()

    def close(self) -> None:
        """Close the connection unless it is already closing."""
        if not self._inner.closing:
            self._inner.close()


def make_queue(
    interceptor: Interceptor,
    connection: ServerConnection,
    resume: Callable[[], object],
    executor: Callable[[FrameQueue, ServerConnection], Executor] = CoreExecutor,
) -> FrameQueue:
    """Return the frame queue of a core's connection, with the limits of its engine.

    Args:
        interceptor: The pauses, faults and recorded requests.
        connection: The core's connection.
        resume: As for :class:`FrameQueue`.
        executor: Creates the executor of the queue's frames.
    """
    settings = connection.engine.settings
    return FrameQueue(
        interceptor,
        connection.client,
        resume,
        lambda queue: executor(queue, connection),
        max_frame=settings.max_frame,
        max_output=settings.max_output_per_turn,
    )
