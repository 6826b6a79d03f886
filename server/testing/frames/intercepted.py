"""A connection of a test server: a frame queue in front of the core's connection."""

from __future__ import annotations

from collections.abc import Callable

from zoolet.protocol.records import RequestHeader
from zoolet.server.core.server_connection import ServerConnection
from zoolet.server.testing.frames.actions import Effect
from zoolet.server.testing.frames.faults import Fault
from zoolet.server.testing.frames.frame_queue import FrameQueue, effect_of, rate_of
from zoolet.server.testing.frames.interceptor import Interceptor, Reply
from zoolet.server.testing.frames.requests import Request


class InterceptedConnection(FrameQueue):
    """A connection whose frames the core executes.

    Args:
        interceptor: The pauses, faults and recorded requests.
        inner: The core's connection.
        resume: Makes the transport call ``receive_data(b"")`` and send the output.
    """

    def __init__(self, interceptor: Interceptor, inner: ServerConnection, resume: Callable[[], object]) -> None:
        self._inner = inner
        settings = inner.engine.settings
        super().__init__(interceptor, inner.client, resume, settings.max_frame, settings.max_output_per_turn)

    def connection_lost(self) -> None:
        """Remove the connection, because the peer is gone."""
        self._inner.connection_lost()
        super().connection_lost()

    def _begins_raw(self, data: bytes) -> bool:
        return self._inner.is_command(data)

    def _more_output(self) -> bytes:
        return self._inner.data_to_send()

    def _execute_raw(self, data: bytes) -> None:
        self._inner.receive_data(data)
        self._output.add(self._inner.data_to_send())

    def _execute(self, head: bytes, request: Request, matched: list[Fault]) -> int:
        inner, effect = self._inner, effect_of(matched)
        if events := inner.data_to_send():
            self._interceptor.record_events(self.number, request.session, events, with_reply=False)
            self._output.add(events)
        reply: Reply | None = None
        if effect is not None and effect.effect is Effect.DROP:
            self._close()
        elif effect is not None and effect.effect is Effect.FAIL:
            inner.answer_with_error(RequestHeader.decode(head, 4).xid, request.opcode, effect.code)
            reply = Reply(inner.data_to_send(), effect.code)
            self._output.add(reply.data, rate_of(matched))
        else:
            while inner.receive_data(head):
                head = b""
            reply = Reply.parse(inner.data_to_send(), request.opcode)
            reply, close = self._send_reply(reply, effect, rate_of(matched))
            if close:
                self._close()
        self._record(request, reply, matched, inner.engine.zxid)
        return len(reply.data) if reply is not None else 0

    def _close(self) -> None:
        if not self._inner.closing:
            self._inner.close()
