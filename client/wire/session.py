"""A client session without I/O. It produces requests, processes replies, and keeps or fails calls of lost connections.

:mod:`~zoolet.client.wire.phases` describes the phases of a connection, which determine the user's states
(:class:`~zoolet.client.wire.states.State`), and the end of a session. Invariants:

- ``inflight`` is in the order of xids, and replies arrive in that order. A reply out of order breaks the connection.
- A call is in ``waiting`` (until the end of the current iteration of the event loop), in ``parked`` (until there is a
  connection), in ``inflight`` or done, never in two of them. While a connection is ready, no call is parked.
- ``_since`` is the last zxid that was seen while all watches were registered; it is None while they are. Watches are
  registered again with it, to miss no event if the connection breaks during the registration.
- ``last_confirmed`` only grows, and only to the time when an answered request was *sent*. The server cannot have
  received the request earlier, so the session exists for at least its timeout after that time. A server in read-only
  mode confirms nothing: the majority may have expired the session and granted its locks to other clients.

The caller (:mod:`zoolet.client.aio.connection`) passes in received bytes and the time, in seconds of a monotonic clock,
and sends the contents of ``out``.

When the connection is lost, a call that was not sent waits for the next connection. A call that was sent and is
idempotent is sent again. Any other call fails with ConnectionLossError, because it may have been applied. No call waits
for a connection longer than its deadline. It waits for a reply until the server has been silent for too long.

Source: ClientCnxn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final

from ...protocol import records as r
from ...protocol.codec import combined_struct
from ...protocol.enums import EventType, Xid
from ...protocol.errors import (
    AuthFailedError,
    ClosedError,
    ErrorCode,
    MarshallingError,
    SessionExpiredError,
    ZooKeeperError,
)
from ...protocol.framing import Frames, frame
from ...protocol.handshake import NO_PASSWORD, ConnectRequest, ConnectResponse
from ...protocol.operations import OpCode
from ...protocol.sasl import SaslFailure
from . import diagnosis
from .authentication import Credentials, SaslLogin
from .parked import ParkedCalls
from .phases import AbandonedSession, ConnectionBroken, ConnectionPhase
from .requests import (
    PendingCall,
    abort,
    complete,
    connection_loss,
    copy_error,
    drop,
    fail,
    fail_undecodable,
    pack_header,
    request_error,
    request_frame,
)
from .states import Event, State
from .watches import WatchTable

MAX_REPLY_BYTES: Final = 64 << 20
"""Maximum number of bytes in a reply. A longer reply is treated as malformed."""
_unpack_header = combined_struct(r.ReplyHeader).unpack_from
_PING = request_frame(Xid.PING, OpCode.PING)
_MAX_XID: Final = 0x7FFFFFFF
_MAX_FAILURES_PER_TICK: Final = 500
"""Maximum number of calls that fail in one tick. Others follow in the next tick, so other tasks can run."""
_READY: Final = ConnectionPhase.READY  # a separate name, because a lookup in an enum costs 80 ns (Python 3.11)


class ClientSession:
    """The state of a session and of the connection that serves it.

    Args:
        timeout_ms: The session timeout to request, in milliseconds.
        rng: Random generator for the SASL nonce.
        read_only: Whether a server in read-only mode is accepted.
        login: User and password for SASL DIGEST-MD5.
        on_state: Function that is called with each new state and the reason.
        postpone: Function that is called with a call that the server was too busy to try, to send it again later.

    Attributes:
        out: Frames to send, in order. The caller sends and removes them.
        last_zxid: The highest zxid that was seen in this session.
        last_confirmed: Time when the latest answered request was sent.
        answered: Whether the server has answered the handshake of the current or last connection.
        tried: Whether an attempt to connect has failed since the connection was lost.
        last_reason: Reason why the last connection failed or was lost, for error messages.
        terminal_error: The error that all calls raise because the client can no longer be used; None while it can.
    """

    def __init__(
        self,
        timeout_ms: int,
        rng: Random,
        *,
        read_only: bool = False,
        login: tuple[str, str] | None = None,
        on_state: Callable[[State, str], None] = lambda state, why: None,
        postpone: Callable[[PendingCall], None] = lambda call: None,
    ) -> None:
        self.wanted_ms = timeout_ms
        self.timeout_ms = timeout_ms
        self.id = 0
        self.password: bytes | None = NO_PASSWORD
        self.last_zxid = 0
        self.state = State.CONNECTING
        self.phase = ConnectionPhase.OFF
        self.read_only_now = False
        self.last_confirmed = 0.0
        self.received_at = self.sent_at = 0.0
        self.last_reason = ""
        self.out: list[bytes] = []
        self._credentials = Credentials()
        self.watches = WatchTable()
        self.waiting: deque[PendingCall] = deque()
        self.parked = ParkedCalls()
        self.inflight: deque[PendingCall] = deque()
        self.terminal_error: Exception | None = None
        self.fatal_error: ZooKeeperError | None = None
        """The error that closed the session; None if its owner closed it."""
        self._rewatching = 0
        self._pinged_at: deque[float] = deque()
        self._since: int | None = None  # the last zxid seen while all watches were registered; None while they are
        self._since_in_doubt = False  # True in a new session: the server's zxids may have started over
        self.accepts_read_only: Final = read_only
        self._resumable_elsewhere = False  # whether a server with a quorum knows the session
        self._heard_at = 0.0  # time when a server was last heard from; not updated while READY, see received_at
        self._abandoned = AbandonedSession()
        self.tried = self.answered = self._ending = False
        self._login = SaslLogin(*login, rng) if login is not None else None
        self._on_state = on_state
        self._postpone = postpone
        self.last_xid = 0  # also the number of requests sent; it starts over after 2**31 - 1
        self._handshake_began = 0.0
        self._warning = ""  # text for the log if the session was resumed after the deadline of its leases
        self._frames = Frames(MAX_REPLY_BYTES)

    @property
    def has_session(self) -> bool:
        """Whether the next connection has a session to resume, or an abandoned session to close."""
        return self.id != 0 or self._abandoned.tries > 0

    @property
    def has_calls(self) -> bool:
        """Whether a call has no result yet."""
        return bool(self.waiting or self.parked or self.inflight or self._credentials.calls())

    # --- calls ---

    def submit(self, call: PendingCall) -> None:
        """Accept a call. The next :meth:`flush` sends it, or the next connection if none is ready.

        Raises:
            ClosedError: The client is closed.
        """
        if self.terminal_error is not None:
            raise copy_error(self.terminal_error)
        self.waiting.append(call)

    def flush(self, now: float) -> None:
        """Encode the waiting calls into ``out``, which the connection writes, or park them until it is ready."""
        if self.phase is not _READY:
            while self.waiting:
                self.parked.add(self.waiting.popleft())
            return
        out, inflight, waiting, xid = self.out, self.inflight, self.waiting, self.last_xid
        while waiting:
            call = waiting.popleft()
            if call.done():
                drop(call)
                continue
            xid = xid + 1 if xid < _MAX_XID else 1
            call.xid = xid
            call.sent_at = now
            inflight.append(call)
            body = call.body
            out.append(pack_header(8 + len(body), xid, call.op) + body)  # request_frame(), inlined for speed
        if xid != self.last_xid:  # cancelled calls are not sent, so they do not keep the session alive
            self.last_xid = xid
            self.sent_at = now

    def add_credential(self, scheme: str, auth: bytes, call: PendingCall | None) -> None:
        """Authenticate with a credential at this server and at every later one. The first reply completes the call.

        Raises:
            ClosedError: The client is closed.
        """
        if self.terminal_error is not None:
            raise copy_error(self.terminal_error)
        credential = self._credentials.add(scheme, auth, call)
        if self.phase in (ConnectionPhase.AUTH, ConnectionPhase.PROBE, ConnectionPhase.READY):
            self.out += self._credentials.send(credential)

    def rewatch(self, path: str) -> None:
        """Register the watches of a path again, because a 3.8 server keeps only its latest watch. No event is lost."""
        if self.phase is ConnectionPhase.READY:  # otherwise, the next connection registers all watches
            since = self._since = self.last_zxid if self._since is None else self._since
            self._register_watches(since, path)
            self.watches.resync(since, path)

    def _register_watches(self, since: int, path: str | None = None) -> None:
        for op, body in self.watches.batches(since, path):
            self.out.append(request_frame(Xid.SET_WATCHES, op, body))
            self._rewatching += 1
        if not self._rewatching:
            self._since = None

    # --- connecting, and losing the connection ---

    def start(self, now: float) -> None:
        """Start the handshake on a new connection."""
        self.phase = ConnectionPhase.HANDSHAKE
        self._frames = Frames(MAX_REPLY_BYTES)
        self.out.clear()
        self._credentials.start()
        self._pinged_at.clear()
        self._rewatching = 0
        if self._since is None:
            self._since = self.last_zxid
        self.received_at = self.sent_at = self._handshake_began = now
        session_id, password = (self.id, self.password) if self._resumable_elsewhere else (0, NO_PASSWORD)
        self._ending, self.answered = self._abandoned.tries > 0, False
        if self._ending:
            session_id, password = self._abandoned.id, self._abandoned.password
        request = ConnectRequest(self.last_zxid, self.wanted_ms, session_id, password, self.accepts_read_only)
        self.out.append(frame(request.encode()))

    def receive(self, data: bytes, now: float) -> None:
        """Process received bytes.

        Raises:
            ConnectionBroken: The connection must be closed; call :meth:`lost`.
        """
        try:
            payloads = self._frames.feed(data)
            if payloads:  # a partial message does not count, because a server could send single bytes for hours
                self.received_at = now
            for payload in payloads:
                if self.phase is _READY:
                    self._on_reply(payload, now)
                elif self.phase is ConnectionPhase.HANDSHAKE:
                    self._on_connect_response(ConnectResponse.decode(payload), now)
                elif self.phase is ConnectionPhase.ENDING:
                    raise ConnectionBroken("closed the previous session; reconnecting")
                elif self.phase is not ConnectionPhase.OFF:
                    self._on_reply(payload, now)
        except MarshallingError as error:
            is_first = self.phase is ConnectionPhase.HANDSHAKE
            why = diagnosis.foreign_answer_reason(data) if is_first else f"the server sent a malformed message: {error}"
            raise ConnectionBroken(why) from None

    def _on_connect_response(self, answer: ConnectResponse, now: float) -> None:
        self.answered, self._abandoned.tries, self.tried = True, 0, False
        if answer.timeout_ms <= 0 or answer.session_id == 0:
            if not self._ending:
                self.expired("the server reports that the session expired")
            raise ConnectionBroken("the session expired")
        if self._ending and answer.session_id == self._abandoned.id:
            self.phase = ConnectionPhase.ENDING
            self.out.append(request_frame(0, OpCode.CLOSE_SESSION))
            return
        late = now - self.last_confirmed - self.timeout_ms / 1000 if answer.session_id == self.id else 0.0
        self._warning = diagnosis.late_resumption_warning(late) if late > 0 and self.last_confirmed else ""
        self._heard_at = now
        if answer.session_id != self.id:
            self._since_in_doubt = True
            had_session = self.id != 0 and self.state is not State.LOST
            self.id = answer.session_id
            if had_session:  # a read-only server's session cannot move to another server
                self._fail_all(SessionExpiredError(detail="a new session had to be opened"))
        self.password = answer.password
        self.timeout_ms = answer.timeout_ms
        self.read_only_now = bool(answer.read_only)
        self._resumable_elsewhere = self._resumable_elsewhere or not self.read_only_now
        if not self.read_only_now:
            self.last_confirmed = self._handshake_began
        if self._login is not None:
            self.phase = ConnectionPhase.SASL
            self._login.start()
            self._send_sasl(b"")
        else:
            self._send_auth(now)

    def _send_sasl(self, token: bytes) -> None:
        body = r.GetSASLRequest(token).encode()
        self.out.append(request_frame(0, OpCode.SASL, body))

    def _send_auth(self, now: float) -> None:
        self.phase = ConnectionPhase.AUTH
        self.out += self._credentials.send()
        if not self._credentials.unanswered:
            self._probe(now)

    def _probe(self, now: float) -> None:
        """Ping the server if watches depend on whether it knows the client's last zxid. Otherwise become ready."""
        if self._since_in_doubt and self._since and any(True for _ in self.watches):
            self.phase = ConnectionPhase.PROBE
            self._pinged_at.append(now)
            self.out.append(_PING)
        else:
            self._become_ready(now)

    def _become_ready(self, now: float) -> None:
        self.phase = ConnectionPhase.READY
        self._since_in_doubt = False
        since = self._since or 0
        self._register_watches(since)
        self._set_state(State.READ_ONLY if self.read_only_now else State.CONNECTED, self._warning)
        self.watches.resync(since)
        self.waiting.extendleft(reversed(self.parked.take_all()))
        self.flush(now)

    def lost(self, reason: str, now: float, *, by_server: bool = False) -> None:
        """Record a lost connection, closed *by_server* or not. Sent calls fail unless idempotent and not overdue."""
        was, self.phase = self.phase, ConnectionPhase.OFF
        if self._ending and not self.answered:
            self._abandoned.tries = self._abandoned.tries - 1 if by_server else 0  # a server may close while it starts
        if was is ConnectionPhase.READY:
            self._heard_at = now if by_server else self.received_at
            self.tried = False
        self.out.clear()
        self.read_only_now = False
        self._credentials.start()
        suspect = max(self.inflight, key=lambda call: len(call.body), default=None) if by_server else None
        while self.inflight:
            call = self.inflight.popleft()
            if call.idempotent and now < call.deadline:
                self.parked.add(call)
            else:
                abort(call, connection_loss(call.path, reason, maybe=True, refused=call if call is suspect else None))
        if was is ConnectionPhase.READY and self.state in (State.CONNECTED, State.READ_ONLY):
            self._set_state(State.SUSPENDED, reason)

    def give_up(self) -> None:
        """End the session, because no server was heard from within its timeout. The next connection closes it."""
        if self._resumable_elsewhere:
            self._abandoned = AbandonedSession(self.id, self.password, AbandonedSession.MAX_TRIES)
        self.expired("no server was reached within the session timeout")

    def expired(self, reason: str) -> None:
        """Record the end of the session: its calls fail, and later calls belong to the next session."""
        self.id, self.password = 0, NO_PASSWORD
        self.timeout_ms = self.wanted_ms  # the granted timeout applied only to the session that ended
        if self._since is None:
            self._since = self.last_zxid
        self.last_zxid = 0  # the next session may be served by a server with an older state
        self._resumable_elsewhere = False
        self.phase = ConnectionPhase.OFF
        self.out.clear()
        self._fail_all(SessionExpiredError(detail=reason))
        if self.state is not State.CONNECTING:
            self._set_state(State.LOST, reason)

    def close(self, reason: str, error: ZooKeeperError | None = None) -> None:
        """Reject further calls, and fail the pending calls."""
        self.phase = ConnectionPhase.OFF
        self.fatal_error = error
        error = error or ClosedError(detail=reason)
        self.terminal_error = error
        self._fail_all(error)
        self._set_state(State.CLOSED, reason)

    def send_close(self, now: float, call: PendingCall) -> None:
        """Send a request to close the session, and report CLOSED immediately: other clients may acquire this client's
        locks before the reply arrives.
        """
        self.waiting.append(call)
        self.flush(now)
        self.terminal_error = ClosedError(detail="the client is closing")
        self._set_state(State.CLOSED, "the client is closing")

    def _fail_all(self, error: ZooKeeperError) -> None:
        calls = [*self.inflight, *self.parked.take_all(), *self.waiting]
        self.inflight.clear()
        self.waiting.clear()
        if isinstance(error, ClosedError | AuthFailedError):
            calls += self._credentials.calls()
        for call in calls:
            abort(call, type(error)(call.path, error.detail))

    def _set_state(self, state: State, why: str) -> None:
        if state is not self.state:
            self.state = state
            self._on_state(state, why)

    # --- pings and deadlines ---

    def next_due(self) -> float | None:
        """Return the time of the next :meth:`tick`; None if nothing is due."""
        moments = []
        if self.phase is ConnectionPhase.READY:
            third = self.timeout_ms / 3000
            moments = [self.sent_at + third, self.received_at + 2 * third]
        else:
            moments = self._credentials.deadlines()
            if (earliest := self.parked.earliest_deadline()) is not None:
                moments.append(earliest)
            if self.id and self.tried and self.terminal_error is None:
                moments.append(self.give_up_time())
        return min(moments, default=None)

    def give_up_time(self) -> float:
        """Return the time when the client gives up the session, unless a server answers before then."""
        return self._heard_at + (self.timeout_ms / 1000 if self._resumable_elsewhere else 0.0)

    def tick(self, now: float) -> None:
        """Send a ping if it is due. Without a connection, fail overdue calls, and give up an overdue session.

        Raises:
            ConnectionBroken: The server was silent for two thirds of the session timeout, or the session was given up.
        """
        third = self.timeout_ms / 3000
        if self.phase is ConnectionPhase.READY:
            if now >= self.received_at + 2 * third:
                raise ConnectionBroken(f"no complete message from the server for {now - self.received_at:.3f} s")
            if now >= self.sent_at + third:
                self.out.append(_PING)
                self.sent_at = now
                self._pinged_at.append(now)
        else:
            last = f"; {self.last_reason}" if self.last_reason else ""
            why = f"no connection in time; the request was not applied{last}"
            for _ in range(_MAX_FAILURES_PER_TICK):
                if (call := self.parked.pop_overdue(now)) is None:
                    break
                abort(call, connection_loss(call.path, why, maybe=False))
            self._credentials.fail_overdue(now)
            if self.id and self.tried and self.terminal_error is None and now >= self.give_up_time():
                self.give_up()
                raise ConnectionBroken("no server was reached within the session timeout")

    # --- replies ---

    def _on_reply(self, payload: bytes, now: float) -> None:
        size = len(payload)
        if size < 16:
            raise ConnectionBroken(f"expected a reply of at least 16 bytes, found {size}")
        xid, zxid, err = _unpack_header(payload)
        inflight = self.inflight
        if inflight and inflight[0].xid == xid:
            call = inflight.popleft()
            if err and err == ErrorCode.SESSION_EXPIRED:  # `err and` avoids a slow enum lookup for most replies
                inflight.appendleft(call)
                self.expired("the server reports that the session has expired")
                raise ConnectionBroken("the session has expired")
            if zxid > self.last_zxid:
                self.last_zxid = zxid
            call.zxid = zxid
            if call.sent_at > self.last_confirmed and not self.read_only_now:
                self.last_confirmed = call.sent_at
            if err:
                if err == ErrorCode.THROTTLED_OP and call.retries_throttled and not call.done():
                    self._postpone(call)
                else:
                    complete(call, None, request_error(err, call.op, call.path))
                return
            try:
                result = call.decode(payload, 16, size)
            except BaseException as reason:  # the serializer may raise anything, even SystemExit
                fail_undecodable(call, reason)
                if isinstance(reason, KeyboardInterrupt):
                    raise
                return
            if call.then is not None:
                complete(call, result, None)
            elif not call.done():
                call.set_result(result)  # complete(), inlined because nearly every reply takes this path
        else:
            self._on_other_reply(payload, xid, zxid, err, now)

    def _on_other_reply(self, payload: bytes, xid: int, zxid: int, err: int, now: float) -> None:
        """Process an event, or a reply to a request that is not a call."""
        if xid == Xid.NOTIFICATION:
            # An event does not advance last_zxid: other events of its transaction may not have arrived yet.
            self._on_event(r.WatcherEvent.decode(payload, 16), zxid)
        elif xid == Xid.PING and self._pinged_at:
            self._on_ping_reply(zxid, now)
        elif xid == Xid.AUTH and self._credentials.unanswered:
            self._on_auth_reply(err, now)
        elif xid == Xid.SET_WATCHES and self._rewatching:
            if err:  # the client would miss events; _since stays for the next connection
                raise ConnectionBroken(f"the server did not register the watches (error {err})")
            self._rewatching -= 1
            if not self._rewatching:
                self._since = None
        elif self.phase is ConnectionPhase.SASL:
            self._on_sasl_reply(payload, err, now)
        else:
            expected = f"the reply to request {self.inflight[0].xid}" if self.inflight else "no reply"
            raise ConnectionBroken(f"unexpected reply to request {xid}; expected {expected}")

    def _on_ping_reply(self, zxid: int, now: float) -> None:
        pinged_at = self._pinged_at.popleft()
        if self.inflight and self.inflight[0].sent_at < pinged_at:
            raise ConnectionBroken(f"unexpected reply to a ping; expected the reply to request {self.inflight[0].xid}")
        if not self.read_only_now:
            self.last_confirmed = max(self.last_confirmed, pinged_at)
        if self.phase is ConnectionPhase.PROBE:
            if zxid < (self._since or 0):  # the zxids started over, so any change may be new to the client
                self._since = 0
            self._become_ready(now)

    def _on_event(self, event: r.WatcherEvent, zxid: int) -> None:
        try:
            kind = EventType(event.type)
        except ValueError:
            raise ConnectionBroken(f"the server sent an event of unknown type {event.type}") from None
        if not event.path.startswith("/") and kind is not EventType.NONE:
            raise ConnectionBroken(f"the server sent an event for an invalid path: {event.path!r}")
        if kind is not EventType.NONE:
            self.watches.fire(Event(kind, event.path, zxid if zxid > 0 else None))

    def _on_auth_reply(self, err: int, now: float) -> None:
        credential, call = self._credentials.pop_answered()
        if err:
            why = f"the server rejected a credential of scheme {credential.scheme!r}"
            if call is None:  # an earlier connection accepted the credential, so the user relies on its permissions
                self.close(why, AuthFailedError(detail=why))
            else:
                self._credentials.forget(credential)
                if not call.done():
                    fail(call, AuthFailedError(detail=why))
            raise ConnectionBroken(why)
        if call is not None and not call.done():
            call.set_result(None)
        if self.phase is ConnectionPhase.AUTH and not self._credentials.unanswered:
            self._probe(now)

    def _on_sasl_reply(self, payload: bytes, err: int, now: float) -> None:
        assert self._login is not None
        try:
            if err:
                raise self._login.rejection_error()
            response = self._login.respond(r.SetSASLResponse.decode(payload, 16).token or b"")
        except AuthFailedError as error:
            self.close(error.detail, error)
            raise ConnectionBroken(error.detail) from None
        except SaslFailure as failure:
            raise ConnectionBroken(f"the SASL login failed: {failure}") from None
        if response is None:
            self._send_auth(now)
        else:
            self._send_sasl(response)
