"""One client's session without I/O: what to send, what a reply means, what becomes of calls when a connection is lost.

Phases of a connection, and transitions::

    OFF --begin--> HANDSHAKE --> SASL --> AUTH --> PROBE --> READY
     ^                |            |        |        |         |
     +----------------+--- lost ---+--------+--------+---------+

SASL is skipped without a login, and PROBE unless a new session has watches of a former one: the answer to a ping tells
whether the zxids of the server started over, as after a restart without data.

States that the user sees follow from them (:class:`~zoolet.client.wire.states.State`). What keeps them sound:

- ``inflight`` is in the order of xids, and replies come in that order; whatever breaks it breaks the connection.
- A call is in ``waiting`` or in ``inflight`` or done, never in two of them.
- ``_since`` is the last zxid that was seen while all watches were registered; it is None while they are. Watches are
  registered again with it, so that nothing is missed when a connection breaks in the middle of that.
- ``last_confirmed`` only grows, and only by the moment at which a request was *sent* that was then answered: the server
  cannot have received it earlier, so the session lives at least its timeout longer than that. A server in read-only
  mode confirms nothing: the majority may have ended the session, and granted its locks to others.

The shell around it (:mod:`zoolet.client.aio.connection`) brings bytes and the time, in seconds of a monotonic clock,
and sends what is in ``out``.

When the connection is lost, a call that was not sent waits for the next one. A call that was sent and is idempotent is
sent again. Any other fails with ConnectionLossError, for it may have happened. None waits for a connection longer than
its deadline; for a reply it waits as long as the server is not silent.

A ping is sent after a third of the session timeout without a request, and the connection is given up after two thirds
without a reply: the last third is for finding another server before the session expires.

Source: ClientCnxn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Final

from zoolet.client.wire.authentication import Credentials, SaslLogin
from zoolet.client.wire.requests import HEADER, Request, answer, connection_loss, drop, fail, request_frame
from zoolet.client.wire.states import Event, State
from zoolet.client.wire.watches import WatchTable
from zoolet.protocol import records as r
from zoolet.protocol.codec import struct_of
from zoolet.protocol.enums import EventType, Xid
from zoolet.protocol.errors import (
    AuthFailedError,
    ClosedError,
    ErrorCode,
    MarshallingError,
    SessionExpiredError,
    ZooKeeperError,
)
from zoolet.protocol.framing import Frames, frame
from zoolet.protocol.handshake import NO_PASSWORD, ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.protocol.sasl import SaslFailure

MAX_REPLY: Final = 64 << 20
"""Bytes of the longest reply that is taken; what claims to be longer is no reply."""
_HEAD = struct_of(r.ReplyHeader).unpack_from
_PING = request_frame(Xid.PING, OpCode.PING)
_LAST_XID: Final = 0x7FFFFFFF


class ConnectionBroken(Exception):
    """The server broke the protocol, or is silent: the connection is of no use. The message is the reason."""


class Phase(Enum):
    """How far a connection has come."""

    OFF = 0
    HANDSHAKE = 1
    SASL = 2
    AUTH = 3
    PROBE = 4
    READY = 5


_READY: Final = Phase.READY  # a name of its own: a look-up in an enum costs 80 ns (Python 3.11)


class Session:
    """The state of a session and of the connection that serves it.

    Args:
        timeout_ms: The session timeout to ask for.
        rng: Where the SASL nonce comes from.
        read_only: Whether a server in read-only mode will do.
        login: User and password for SASL DIGEST-MD5.
        on_state: Called with each new state, and why.
        postpone: Called with a call that the server was too busy to try, and that is to be sent again.

    Attributes:
        out: What to send, in order; the shell takes it.
        last_zxid: The highest zxid that was seen in this session.
        last_confirmed: The moment at which the newest request that was answered had been sent.
        last_reason: Why the last connection failed or ended; for errors.
        terminal_error: Why no call is taken any more.
    """

    def __init__(
        self,
        timeout_ms: int,
        rng: Random,
        *,
        read_only: bool = False,
        login: tuple[str, str] | None = None,
        on_state: Callable[[State, str], None] = lambda state, why: None,
        postpone: Callable[[Request], None] = lambda call: None,
    ) -> None:
        self.wanted_ms = timeout_ms
        self.timeout_ms = timeout_ms
        self.id = 0
        self.password: bytes | None = NO_PASSWORD
        self.last_zxid = 0
        self.state = State.CONNECTING
        self.phase = Phase.OFF
        self.read_only_now = False
        self.last_confirmed = 0.0
        self.received_at = self.sent_at = 0.0
        self.last_reason = ""
        self.out: list[bytes] = []
        self._credentials = Credentials()
        self.watches = WatchTable()
        self.waiting: deque[Request] = deque()
        self.inflight: deque[Request] = deque()
        self.terminal_error: Exception | None = None
        self.fatal_error: ZooKeeperError | None = None
        """The error that closed it, if that was not its owner."""
        self._rewatching = 0
        self._pinged_at: deque[float] = deque()
        self._since: int | None = None  # the last zxid that was seen when all watches were there; None while they are
        self._since_in_doubt = False  # the session is new: the server's zxids may have started over
        self._accepts_read_only = read_only
        self._resumable_elsewhere = False  # a server with a quorum knows the session
        self._login = SaslLogin(*login, rng) if login is not None else None
        self._on_state = on_state
        self._postpone = postpone
        self.last_xid = 0
        self._began = 0.0
        self._frames = Frames(MAX_REPLY)

    @property
    def requests_sent(self) -> int:
        """How many requests were sent, until xids begin again after 2**31 - 1."""
        return self.last_xid

    # --- calls ---

    def submit(self, call: Request) -> None:
        """Take a call; it is sent by the next :meth:`flush`, or when there is a connection again.

        Raises:
            ClosedError: The client is closed.
        """
        if self.terminal_error is not None:
            raise self.terminal_error.with_traceback(None)  # it is raised again and again
        self.waiting.append(call)

    def flush(self, now: float) -> None:
        """Encode what waits into ``out``, once there is a session; the connection writes it."""
        if self.phase is not _READY:
            return
        out, inflight, waiting, xid = self.out, self.inflight, self.waiting, self.last_xid
        while waiting:
            call = waiting.popleft()
            if call.done():
                drop(call)
                continue
            xid = xid + 1 if xid < _LAST_XID else 1
            call.xid = xid
            call.sent_at = now
            inflight.append(call)
            body = call.body
            out.append(HEADER(8 + len(body), xid, call.op) + body)  # no call of a function for each
        if xid != self.last_xid:  # calls that were cancelled are not sent, and keep no session alive
            self.last_xid = xid
            self.sent_at = now

    def add_credential(self, scheme: str, auth: bytes, call: Request | None) -> None:
        """Authenticate with a credential at this server and at every later one; the call is completed by the first."""
        if self.terminal_error is not None:
            raise self.terminal_error.with_traceback(None)  # it is raised again and again
        credential = self._credentials.add(scheme, auth, call)
        if self.phase in (Phase.AUTH, Phase.PROBE, Phase.READY):
            self.out += self._credentials.send(credential)

    def rewatch(self, path: str) -> None:
        """Register the watches of a path again, of which the server may have kept only the last; nothing is missed."""
        if self.phase is Phase.READY:  # else all are registered once it is
            since = self._since = self.last_zxid if self._since is None else self._since
            self._register_watches(since, path)
            self.watches.resync(since, path)

    def _register_watches(self, since: int, path: str | None = None) -> None:
        for op, body in self.watches.batches(since, path):
            self.out.append(request_frame(Xid.SET_WATCHES, op, body))
            self._rewatching += 1
        if not self._rewatching:
            self._since = None

    # --- a connection's life ---

    def begin(self, now: float) -> None:
        """Shake hands on a new connection."""
        self.phase = Phase.HANDSHAKE
        self._frames = Frames(MAX_REPLY)
        self.out.clear()
        self._credentials.begin()
        self._pinged_at.clear()
        self._rewatching = 0
        if self._since is None:
            self._since = self.last_zxid
        self.received_at = self.sent_at = self._began = now
        session_id = self.id if self._resumable_elsewhere else 0
        request = ConnectRequest(
            self.last_zxid,
            self.wanted_ms,
            session_id,
            self.password if session_id else NO_PASSWORD,
            self._accepts_read_only,
        )
        self.out.append(frame(request.encode()))

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes off the wire.

        Raises:
            ConnectionBroken: The connection is of no use; call :meth:`lost`.
        """
        self.received_at = now
        try:
            payloads = self._frames.feed(data)
            for payload in payloads:
                if self.phase is _READY:
                    self._reply(payload, now)
                elif self.phase is Phase.HANDSHAKE:
                    self._on_connect_response(ConnectResponse.decode(payload), now)
                elif self.phase is not Phase.OFF:
                    self._reply(payload, now)
        except MarshallingError as error:
            raise ConnectionBroken(f"the server sent a malformed message: {error}") from None

    def _on_connect_response(self, answer: ConnectResponse, now: float) -> None:
        if answer.timeout_ms <= 0 or answer.session_id == 0:
            self.expired("the server says that the session is over")
            raise ConnectionBroken("the session has expired")
        if answer.session_id != self.id:
            self._since_in_doubt = True
            had_session = self.id != 0
            self.id = answer.session_id
            if had_session and self.state is not State.LOST:  # a read-only server's session cannot be taken elsewhere
                self._fail_all(SessionExpiredError(detail="a new session had to be opened"))
        self.password = answer.password
        self.timeout_ms = answer.timeout_ms
        self.read_only_now = bool(answer.read_only)
        self._resumable_elsewhere = self._resumable_elsewhere or not self.read_only_now
        if not self.read_only_now:
            self.last_confirmed = self._began
        if self._login is not None:
            self.phase = Phase.SASL
            self._login.begin()
            self._sasl(b"")
        else:
            self._send_auth(now)

    def _sasl(self, token: bytes) -> None:
        body = r.GetSASLRequest(token).encode()
        self.out.append(request_frame(0, OpCode.SASL, body))

    def _send_auth(self, now: float) -> None:
        self.phase = Phase.AUTH
        self.out += self._credentials.send()
        if not self._credentials.unanswered:
            self._probe(now)

    def _probe(self, now: float) -> None:
        """Find out whether the server knows less than what was seen before, if that matters to a watch."""
        if self._since_in_doubt and self._since and any(True for _ in self.watches):
            self.phase = Phase.PROBE
            self._pinged_at.append(now)
            self.out.append(_PING)
        else:
            self._ready(now)

    def _ready(self, now: float) -> None:
        self.phase = Phase.READY
        self._since_in_doubt = False
        since = self._since or 0
        self._register_watches(since)
        self._set_state(State.READ_ONLY if self.read_only_now else State.CONNECTED, "")
        self.watches.resync(since)
        self.flush(now)

    def lost(self, reason: str, now: float) -> None:
        """Record that the connection is gone: idempotent calls wait for the next one, others that were sent fail."""
        was, self.phase = self.phase, Phase.OFF
        self.out.clear()
        self.read_only_now = False
        self._credentials.begin()
        unanswered = []
        while self.inflight:
            call = self.inflight.popleft()
            if call.done():
                drop(call)
                continue
            if call.idempotent and now < call.deadline:
                unanswered.append(call)
            else:
                fail(call, connection_loss(call.path, reason, maybe=True))
        self.waiting.extendleft(reversed(unanswered))
        if was is Phase.READY and self.state in (State.CONNECTED, State.READ_ONLY):
            self._set_state(State.SUSPENDED, reason)

    def expired(self, reason: str) -> None:
        """Record that the session is over: its calls fail, and later ones belong to the next session."""
        self.id, self.password = 0, NO_PASSWORD
        self.timeout_ms = self.wanted_ms  # what was granted was granted to the session that is over
        if self._since is None:
            self._since = self.last_zxid
        self.last_zxid = 0  # the next session is a new beginning, at a server that may know less
        self._resumable_elsewhere = False
        self.phase = Phase.OFF
        self.out.clear()
        self._fail_all(SessionExpiredError(detail=reason))
        if self.state is not State.CONNECTING:
            self._set_state(State.LOST, reason)

    def close(self, reason: str, error: ZooKeeperError | None = None) -> None:
        """Refuse further calls, and fail the pending ones."""
        self.phase = Phase.OFF
        self.fatal_error = error
        error = error or ClosedError(detail=reason)
        self.terminal_error = error
        self._fail_all(error)
        self._set_state(State.CLOSED, reason)

    def send_close(self, now: float, call: Request) -> None:
        """Ask the server to end the session. From here on nothing is held any more: it may be another's before the
        answer is here.
        """
        self.waiting.append(call)
        self.flush(now)
        self.terminal_error = ClosedError(detail="the client is closing")
        self._set_state(State.CLOSED, "the client is closing")

    def _fail_all(self, error: ZooKeeperError) -> None:
        calls = [*self.inflight, *self.waiting]
        self.inflight.clear()
        self.waiting.clear()
        if isinstance(error, ClosedError | AuthFailedError):
            calls += self._credentials.calls()
        for call in calls:
            if call.done():
                drop(call)
            else:
                fail(call, type(error)(call.path, error.detail))

    def _set_state(self, state: State, why: str) -> None:
        if state is not self.state:
            self.state = state
            self._on_state(state, why)

    # --- time ---

    def next_due(self) -> float | None:
        """Return the moment at which :meth:`tick` has something to do."""
        moments = []
        if self.phase is Phase.READY:
            third = self.timeout_ms / 3000
            moments = [self.sent_at + third, self.received_at + 2 * third]
        else:
            moments = [*(call.deadline for call in self.waiting), *self._credentials.deadlines()]
        return min(moments, default=None)

    def tick(self, now: float) -> None:
        """Do what is due: a ping, or failing calls that have waited long enough.

        Raises:
            ConnectionBroken: Nothing was received for two thirds of the session timeout.
        """
        third = self.timeout_ms / 3000
        if self.phase is Phase.READY:
            if now >= self.received_at + 2 * third:
                raise ConnectionBroken(f"nothing was received from the server for {now - self.received_at:.3f} s")
            if now >= self.sent_at + third:
                self.out.append(_PING)
                self.sent_at = now
                self._pinged_at.append(now)
        else:
            for call in [call for call in self.waiting if call.done() or now >= call.deadline]:
                self.waiting.remove(call)
                if call.done():
                    drop(call)
                else:
                    last = f"; {self.last_reason}" if self.last_reason else ""
                    why = f"there was no connection in time; it was not applied{last}"
                    fail(call, connection_loss(call.path, why, maybe=False))
            self._credentials.fail_overdue(now)

    def overdue(self, now: float) -> bool:
        """Return whether the server may have expired the session by now, for all that is known here."""
        return self.id != 0 and now >= self.last_confirmed + self.timeout_ms / 1000

    # --- replies ---

    def _reply(self, payload: bytes, now: float) -> None:
        if len(payload) < 16:
            raise ConnectionBroken(f"the server sent a reply of {len(payload)} bytes")
        xid, zxid, err = _HEAD(payload)
        inflight = self.inflight
        if inflight and inflight[0].xid == xid:
            call = inflight.popleft()
            if err and err == ErrorCode.SESSION_EXPIRED:  # most have none, and need no look at the names
                inflight.appendleft(call)
                self.expired("the server says that the session is over")
                raise ConnectionBroken("the session has expired")
            if zxid > self.last_zxid:
                self.last_zxid = zxid
            call.zxid = zxid
            if call.sent_at > self.last_confirmed and not self.read_only_now:
                self.last_confirmed = call.sent_at
            if err and err == ErrorCode.THROTTLED_OP and call.retries_throttled and not call.done():
                self._postpone(call)
            else:
                answer(call, payload, err)
        elif xid == Xid.NOTIFICATION:
            # An event does not move last_zxid: the other events of its transaction may not have come yet.
            self._event(r.WatcherEvent.decode(payload, 16), zxid)
        elif xid == Xid.PING and self._pinged_at:
            self._on_ping_reply(zxid, now)
        elif xid == Xid.AUTH and self._credentials.unanswered:
            self._on_auth_reply(err, now)
        elif xid == Xid.SET_WATCHES and self._rewatching:
            if err:  # without the watches nothing that is waited for would come; _since stays for the next connection
                raise ConnectionBroken(f"the server did not register the watches: error {err}")
            self._rewatching -= 1
            if not self._rewatching:
                self._since = None
        elif self.phase is Phase.SASL:
            self._on_sasl_reply(payload, err, now)
        else:
            expected = inflight[0].xid if inflight else "none"
            raise ConnectionBroken(f"the server answered request {xid}, and {expected} was next")

    def _on_ping_reply(self, zxid: int, now: float) -> None:
        pinged_at = self._pinged_at.popleft()
        if self.inflight and self.inflight[0].sent_at < pinged_at:
            raise ConnectionBroken(f"the server answered a ping, and not request {self.inflight[0].xid} before it")
        if not self.read_only_now:
            self.last_confirmed = max(self.last_confirmed, pinged_at)
        if self.phase is Phase.PROBE:
            if zxid < (self._since or 0):  # every change that this server knows may be news
                self._since = 0
            self._ready(now)

    def _event(self, event: r.WatcherEvent, zxid: int) -> None:
        try:
            kind = EventType(event.type)
        except ValueError:
            raise ConnectionBroken(f"the server sent an event of unknown type {event.type}") from None
        if not event.path.startswith("/") and kind is not EventType.NONE:
            raise ConnectionBroken(f"the server sent an event for {event.path!r}, which is not a path")
        if kind is not EventType.NONE:
            self.watches.fire(Event(kind, event.path, zxid if zxid > 0 else None))

    def _on_auth_reply(self, err: int, now: float) -> None:
        credential, call = self._credentials.pop_answered()
        if err:
            why = f"the server refused a credential of scheme {credential.scheme!r}"
            if call is None:  # it was accepted before: without it the client lacks rights that its user expects
                self.close(why, AuthFailedError(detail=why))
            else:
                self._credentials.forget(credential)
                if not call.done():
                    fail(call, AuthFailedError(detail=why))
            raise ConnectionBroken(why)
        if call is not None and not call.done():
            call.set_result(None)
        if self.phase is Phase.AUTH and not self._credentials.unanswered:
            self._probe(now)

    def _on_sasl_reply(self, payload: bytes, err: int, now: float) -> None:
        assert self._login is not None
        try:
            if err:
                raise self._login.refused()
            response = self._login.respond(r.SetSASLResponse.decode(payload, 16).token or b"")
        except AuthFailedError as error:
            self.close(error.detail, error)
            raise ConnectionBroken(error.detail) from None
        except SaslFailure as failure:
            raise ConnectionBroken(f"SASL: {failure}") from None
        if response is None:
            self._send_auth(now)
        else:
            self._sasl(response)
