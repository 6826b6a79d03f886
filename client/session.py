"""One client's session without I/O: what to send, what an answer means, what becomes of calls when a link breaks.

::

    OFF --begin--> HANDSHAKE --> SASL --> AUTH --> READY
     ^                |            |        |        |
     +----------------+--- lost ---+--------+--------+

The shell around it (:mod:`zoolet.client.connection`) brings bytes and the time, in seconds of a steady clock, and takes
away what is in ``out``. Replies come in the order of the requests; whatever breaks that order breaks the connection.

What becomes of a call when the connection is lost: if it was not sent, it waits for the next one. If it was sent and
only reads, it is sent again. If it was sent and writes, it fails with ConnectionLossError, for it may have happened.
None waits longer than its deadline.

Source: ClientCnxn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Any, Final, Protocol

from zoolet.client.states import Event, State
from zoolet.client.watches import WatchTable
from zoolet.protocol import records as r
from zoolet.protocol import sasl
from zoolet.protocol.codec import Int, struct_of
from zoolet.protocol.enums import EventType, Xid
from zoolet.protocol.errors import (
    AuthFailedError,
    ClosedError,
    ConnectionLossError,
    ErrorCode,
    MarshallingError,
    SessionExpiredError,
    ZooKeeperError,
    error_for,
)
from zoolet.protocol.framing import Frames, frame
from zoolet.protocol.handshake import NO_PASSWORD, ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode

MAX_REPLY: Final = 64 << 20
"""Bytes of the longest reply that is taken; what claims to be longer is no reply."""
_HEAD = struct_of(r.ReplyHeader).unpack_from
_REQUEST = struct_of(Int, r.RequestHeader).pack
_PING = _REQUEST(8, Xid.PING, OpCode.PING)
_LAST_XID: Final = 0x7FFFFFFF


class ConnectionBroken(Exception):
    """The server said what no server says, or nothing: the connection is of no use. The message is the reason."""


class Phase(Enum):
    """How far a connection has come."""

    OFF = 0
    HANDSHAKE = 1
    SASL = 2
    AUTH = 3
    READY = 4


class Request(Protocol):
    """A call as the session sees it; also the future that its caller awaits."""

    op: int
    body: bytes
    path: str | None
    decode: Callable[[bytes, int, int], Any]
    deadline: float
    idempotent: bool
    xid: int
    sent_at: float
    then: Callable[[Any, ZooKeeperError | None], None] | None

    def done(self) -> bool:
        """Whether it has its result, or was cancelled."""
        ...

    def set_result(self, result: Any, /) -> None:
        """It succeeded."""
        ...

    def refuse(self, error: ZooKeeperError) -> None:
        """The server answered with an error."""
        ...

    def set_exception(self, exception: BaseException, /) -> None:
        """It failed."""
        ...


class Credential:
    """What proves who the client is, to every server anew; and who waits to hear that it did, the first time."""

    __slots__ = ("auth", "call", "scheme")

    def __init__(self, scheme: str, auth: bytes, call: Request | None = None) -> None:
        self.scheme = scheme
        self.auth = auth
        self.call = call


class Session:
    """The state of a session and of the connection that serves it.

    Args:
        timeout_ms: The session timeout to ask for.
        random: Where the SASL nonce comes from.
        read_only: Whether a server in read-only mode will do.
        login: User and password for SASL DIGEST-MD5.
        told: Called with each new state, and why.

    Attributes:
        out: What to send, in order; the shell takes it.
        last_zxid: The highest zxid that was seen in this session.
        last_confirmed: The moment at which the server is known to have heard of this session last: when the newest
            request that was answered was sent.
        refusal: Why no call is taken any more.
    """

    def __init__(
        self,
        timeout_ms: int,
        rng: Random,
        *,
        read_only: bool = False,
        login: tuple[str, str] | None = None,
        on_state: Callable[[State, str], None] = lambda state, why: None,
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
        self.heard = self.sent = 0.0
        self.out: list[bytes] = []
        self.credentials: list[Credential] = []
        self.watches = WatchTable()
        self.waiting: deque[Request] = deque()
        self.inflight: deque[Request] = deque()
        self.terminal_error: Exception | None = None
        self.fatal_error: ZooKeeperError | None = None
        """What closed it, if that was not its owner."""
        self._auths: deque[Credential] = deque()  # sent and not answered yet
        self._rewatching = 0
        self._pinged_at: deque[float] = deque()
        self._since: int | None = None  # the last zxid that was seen when all watches were there; None while they are
        self._accepts_read_only = read_only
        self._resumable_elsewhere = False  # a server with a quorum knows the session
        self._login = login
        self._rng = rng
        self._on_state = on_state
        self._xid = 0
        self._began = 0.0
        self._frames = Frames(MAX_REPLY)
        self._challenged = False
        self._rspauth = ""

    # --- calls ---

    def submit(self, call: Request) -> None:
        """Take a call; it is sent by the next :meth:`flush`, or when there is a connection again.

        Raises:
            ClosedError: The client is closed.
        """
        if self.terminal_error is not None:
            raise self.terminal_error
        self.waiting.append(call)

    def flush(self, now: float) -> None:
        """Send what waits, if there is somebody to send it to."""
        if self.phase is not Phase.READY:
            return
        out, inflight, waiting, xid = self.out, self.inflight, self.waiting, self._xid
        while waiting:
            call = waiting.popleft()
            if call.done():
                _drop(call)
                continue
            xid = xid + 1 if xid < _LAST_XID else 1
            call.xid = xid
            call.sent_at = now
            inflight.append(call)
            body = call.body
            out.append(_REQUEST(8 + len(body), xid, call.op) + body)
        self._xid = xid
        self.sent = now

    def add_credential(self, scheme: str, auth: bytes, call: Request | None) -> None:
        """Prove something to this server now and to every later one first thing; the call is told when it is done."""
        if self.terminal_error is not None:
            raise self.terminal_error
        self.credentials.append(Credential(scheme, auth, call))
        if self.phase is Phase.READY:
            self._send_credential(self.credentials[-1])

    def _send_credential(self, credential: Credential) -> None:
        body = r.AuthPacket(0, credential.scheme, credential.auth).encode()
        self.out.append(_REQUEST(8 + len(body), Xid.AUTH, OpCode.AUTH) + body)
        self._auths.append(credential)

    # --- a connection's life ---

    def begin(self, now: float) -> None:
        """Shake hands on a new connection."""
        self.phase = Phase.HANDSHAKE
        self._frames = Frames(MAX_REPLY)
        self.out.clear()
        self._auths.clear()
        self._pinged_at.clear()
        self._rewatching = 0
        self._challenged = False
        if self._since is None:
            self._since = self.last_zxid
        self.heard = self.sent = self._began = now
        known = self.id if self._resumable_elsewhere else 0
        request = ConnectRequest(
            self.last_zxid,
            self.wanted_ms,
            known,
            self.password if known else NO_PASSWORD,
            self._accepts_read_only,
        )
        self.out.append(frame(request.encode()))

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes off the wire.

        Raises:
            ConnectionBroken: The connection is of no use; call :meth:`lost`.
        """
        self.heard = now
        try:
            payloads = self._frames.feed(data)
            for payload in payloads:
                if self.phase is Phase.HANDSHAKE:
                    self._on_connect_response(ConnectResponse.decode(payload), now)
                elif self.phase is not Phase.OFF:
                    self._reply(payload, now)
        except MarshallingError as error:
            raise ConnectionBroken(f"the server sent what makes no sense: {error}") from None

    def _on_connect_response(self, answer: ConnectResponse, now: float) -> None:
        if answer.timeout_ms <= 0 or answer.session_id == 0:
            self.expired("the server says that the session is over")
            raise ConnectionBroken("the session has expired")
        if answer.session_id != self.id:
            fresh = self.id != 0
            self.id = answer.session_id
            if fresh and self.state is not State.LOST:  # a read-only server's session cannot be taken elsewhere
                self._fail_all(SessionExpiredError(detail="a new session had to be opened"))
        self.password = answer.password
        self.timeout_ms = answer.timeout_ms
        self.read_only_now = bool(answer.read_only)
        self._resumable_elsewhere = self._resumable_elsewhere or not self.read_only_now
        self.last_confirmed = self._began
        if self._login is not None:
            self.phase = Phase.SASL
            self._sasl(b"")
        else:
            self._send_auth(now)

    def _sasl(self, token: bytes) -> None:
        body = r.GetSASLRequest(token).encode()
        self.out.append(_REQUEST(8 + len(body), 0, OpCode.SASL) + body)

    def _send_auth(self, now: float) -> None:
        self.phase = Phase.AUTH
        for credential in self.credentials:
            self._send_credential(credential)
        if not self._auths:
            self._ready(now)

    def _ready(self, now: float) -> None:
        self.phase = Phase.READY
        since = self._since or 0
        for op, body in self.watches.batches(since):
            self.out.append(_REQUEST(8 + len(body), Xid.SET_WATCHES, op) + body)
            self._rewatching += 1
        if not self._rewatching:
            self._since = None
        self._tell(State.READ_ONLY if self.read_only_now else State.CONNECTED, "")
        self.watches.recount(since)
        self.flush(now)

    def lost(self, reason: str, now: float) -> None:
        """The connection is gone."""
        was, self.phase = self.phase, Phase.OFF
        self.out.clear()
        self.read_only_now = False
        self._auths.clear()
        again = []
        while self.inflight:
            call = self.inflight.popleft()
            if call.done():
                _drop(call)
                continue
            if call.idempotent and now < call.deadline:
                again.append(call)
            else:
                _fail(call, _loss(call.path, reason, maybe=True))
        self.waiting.extendleft(reversed(again))
        if was is Phase.READY and self.state in (State.CONNECTED, State.READ_ONLY):
            self._tell(State.SUSPENDED, reason)

    def expired(self, reason: str) -> None:
        """The session is over: everything asked in it fails, what comes from now on is the next one's."""
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
            self._tell(State.LOST, reason)

    def close(self, reason: str, error: ZooKeeperError | None = None) -> None:
        """Take no more calls, and fail those there are."""
        self.phase = Phase.OFF
        self.fatal_error = error
        error = error or ClosedError(detail=reason)
        self.terminal_error = error
        self._fail_all(error)
        self._tell(State.CLOSED, reason)

    def send_close(self, now: float, call: Request) -> None:
        """Ask the server to end the session. From here on nothing is held any more: it may be another's before the
        answer is here.
        """
        self.waiting.append(call)
        self.flush(now)
        self.terminal_error = ClosedError(detail="the client is closing")
        self._tell(State.CLOSED, "the client is closing")

    def _fail_all(self, error: ZooKeeperError) -> None:
        calls = [*self.inflight, *self.waiting]
        self.inflight.clear()
        self.waiting.clear()
        if isinstance(error, ClosedError | AuthFailedError):
            calls += [one.call for one in self.credentials if one.call is not None]
        for call in calls:
            if call.done():
                _drop(call)
            else:
                _fail(call, type(error)(call.path, error.detail))

    def _tell(self, state: State, why: str) -> None:
        if state is not self.state:
            self.state = state
            self._on_state(state, why)

    # --- time ---

    def next_due(self) -> float | None:
        """Return the moment at which :meth:`tick` has something to do."""
        moments = []
        if self.phase is Phase.READY:
            third = self.timeout_ms / 3000
            moments = [self.sent + third, self.heard + 2 * third]
        else:
            moments = [call.deadline for call in (*self.waiting, *self._unproved())]
        return min(moments, default=None)

    def tick(self, now: float) -> None:
        """Do what is due: a ping, or failing calls that have waited long enough.

        Raises:
            ConnectionBroken: Nothing was heard of the server for two thirds of the session timeout.
        """
        third = self.timeout_ms / 3000
        if self.phase is Phase.READY:
            if now >= self.heard + 2 * third:
                raise ConnectionBroken(f"nothing was heard of the server for {now - self.heard:.3f} s")
            if now >= self.sent + third:
                self.out.append(_PING)
                self.sent = now
                self._pinged_at.append(now)
        else:
            for call in [call for call in self.waiting if call.done() or now >= call.deadline]:
                self.waiting.remove(call)
                if call.done():
                    _drop(call)
                else:
                    _fail(call, _loss(call.path, "there was no connection in time; it was not sent", maybe=False))
            for call in [call for call in self._unproved() if call.done() or now >= call.deadline]:
                self.credentials = [one for one in self.credentials if one.call is not call]
                if not call.done():
                    _fail(call, _loss(None, "there was no connection in time to prove it", maybe=False))

    def _unproved(self) -> list[Request]:
        """Return the calls that wait for a credential to be proved for the first time."""
        return [one.call for one in self.credentials if one.call is not None and one not in self._auths]

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
            if err == ErrorCode.SESSION_EXPIRED:
                inflight.appendleft(call)
                self.expired("the server says that the session is over")
                raise ConnectionBroken("the session has expired")
            if zxid > self.last_zxid:
                self.last_zxid = zxid
            self.last_confirmed = max(self.last_confirmed, call.sent_at)
            _answer(call, payload, err)
        elif xid == Xid.NOTIFICATION:
            # An event does not move last_zxid: the other events of its transaction may not have come yet.
            self._event(r.WatcherEvent.decode(payload, 16), zxid)
        elif xid == Xid.PING and self._pinged_at:
            pinged_at = self._pinged_at.popleft()
            if inflight and inflight[0].sent_at < pinged_at:
                raise ConnectionBroken(f"the server answered a ping, and not request {inflight[0].xid} before it")
            self.last_confirmed = max(self.last_confirmed, pinged_at)
        elif xid == Xid.AUTH and self._auths:
            self._on_auth_reply(err, now)
        elif xid == Xid.SET_WATCHES and self._rewatching:
            self._rewatching -= 1
            if not self._rewatching:
                self._since = None
        elif self.phase is Phase.SASL:
            self._challenge(payload, err, now)
        else:
            wanted = inflight[0].xid if inflight else "none"
            raise ConnectionBroken(f"the server answered request {xid}, and {wanted} was next")

    def _event(self, event: r.WatcherEvent, zxid: int) -> None:
        try:
            kind = EventType(event.type)
        except ValueError:
            raise ConnectionBroken(f"the server sent an event of unknown type {event.type}") from None
        if not event.path.startswith("/") and kind is not EventType.NONE:
            raise ConnectionBroken(f"the server sent an event for {event.path!r}, which is no path")
        if kind is not EventType.NONE:
            self.watches.fire(Event(kind, event.path, zxid if zxid > 0 else None))

    def _on_auth_reply(self, err: int, now: float) -> None:
        credential = self._auths.popleft()
        call, credential.call = credential.call, None
        if err:
            why = f"the server refused a credential of scheme {credential.scheme!r}"
            if call is None:  # one that was good before: without it the client is not who its user thinks
                self.close(why, AuthFailedError(detail=why))
            else:
                self.credentials = [one for one in self.credentials if one is not credential]
                if not call.done():
                    _fail(call, AuthFailedError(detail=why))
            raise ConnectionBroken(why)
        if call is not None and not call.done():
            call.set_result(None)
        if self.phase is Phase.AUTH and not self._auths:
            self._ready(now)

    def _challenge(self, payload: bytes, err: int, now: float) -> None:
        assert self._login is not None
        user, password = self._login
        if err:
            why = f"the server refused the login of {user!r}"
            self.close(why, AuthFailedError(detail=why))
            raise ConnectionBroken(why)
        token = r.SetSASLResponse.decode(payload, 16).token or b""
        if self._challenged:
            if not self._server_authenticated(token):
                why = f"the server does not know the password of {user!r}"
                self.close(why, AuthFailedError(detail=why))
                raise ConnectionBroken(why)
            self._send_auth(now)
            return
        self._challenged = True
        try:
            said, self._rspauth = sasl.answer(token, user, password, f"{self._rng.getrandbits(128):032x}")
        except sasl.SaslFailure as fatal_error:
            raise ConnectionBroken(f"SASL: {fatal_error}") from None
        self._sasl(said)

    def _server_authenticated(self, token: bytes) -> bool:
        """Return whether the server has proved that it knows the password, too."""
        try:
            return sasl.directives(token).get("rspauth") == self._rspauth
        except sasl.SaslFailure:
            return False


def _answer(call: Request, payload: bytes, err: int) -> None:
    error: ZooKeeperError | None = None
    result = None
    if err:
        error = error_for(err, call.path)
    else:
        try:
            result = call.decode(payload, 16, len(payload))
        except MarshallingError:
            if not call.done():
                _fail(call, _loss(call.path, "the server's answer makes no sense", maybe=True))
            raise
        except Exception as reason:  # a codec's verdict on the data: the caller's to hear, not the connection's
            if call.then is not None:
                call.then(None, None)
            if not call.done():
                call.set_exception(reason)
            return
    if call.then is not None:
        call.then(result, error)
    if call.done():
        return
    if error is not None:
        call.refuse(error)
    else:
        call.set_result(result)


def _loss(path: str | None, reason: str, *, maybe: bool) -> ConnectionLossError:
    error = ConnectionLossError(path, f"the connection was lost: {reason}" if maybe else reason)
    error.maybe_applied = maybe
    return error


def _drop(call: Request) -> None:
    """Let go of a call that was cancelled and will not be answered."""
    if call.then is not None:
        call.then(None, _loss(call.path, "it was cancelled", maybe=True))


def _fail(call: Request, error: ZooKeeperError) -> None:
    if call.then is not None:
        call.then(None, error)
    call.set_exception(error)
