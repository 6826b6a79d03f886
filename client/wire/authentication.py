"""How a client authenticates: its credentials, and the client's side of SASL DIGEST-MD5, without I/O."""

from __future__ import annotations

from collections import deque
from random import Random

from zoolet.client.wire.requests import Request, connection_loss, fail, request_frame
from zoolet.protocol import records as r
from zoolet.protocol import sasl
from zoolet.protocol.enums import Xid
from zoolet.protocol.errors import AuthFailedError
from zoolet.protocol.operations import OpCode


class Credential:
    """A credential, sent to every server first thing; and the call that waits for the first reply to it."""

    __slots__ = ("auth", "call", "scheme")

    def __init__(self, scheme: str, auth: bytes, call: Request | None = None) -> None:
        self.scheme = scheme
        self.auth = auth
        self.call = call


class Credentials:
    """The credentials of a client. All are sent on every connection, and the server answers in that order."""

    def __init__(self) -> None:
        self._all: list[Credential] = []
        self._sent: deque[Credential] = deque()  # and not answered

    def add(self, scheme: str, auth: bytes, call: Request | None) -> Credential:
        """Add a credential; the call is completed by the first answer to it."""
        self._all.append(Credential(scheme, auth, call))
        return self._all[-1]

    def begin(self) -> None:
        """Begin on a new connection, on which nothing was sent, or end on one that is gone."""
        self._sent.clear()

    def send(self, *credentials: Credential) -> list[bytes]:
        """Return the frames that authenticate with these, or with all."""
        self._sent.extend(credentials or self._all)
        bodies = [r.AuthPacket(0, item.scheme, item.auth).encode() for item in credentials or self._all]
        return [request_frame(Xid.AUTH, OpCode.AUTH, body) for body in bodies]

    @property
    def unanswered(self) -> bool:
        """Whether an answer is to come."""
        return bool(self._sent)

    def pop_answered(self) -> tuple[Credential, Request | None]:
        """Return the credential that the next answer is for, and the call that waits for its first one."""
        credential = self._sent.popleft()
        call, credential.call = credential.call, None
        return credential, call

    def forget(self, refused: Credential) -> None:
        """Send a credential no more."""
        self._all = [credential for credential in self._all if credential is not refused]

    def calls(self) -> list[Request]:
        """Return the calls that wait for an answer."""
        return [credential.call for credential in self._all if credential.call is not None]

    def fail_overdue(self, now: float) -> None:
        """Fail and forget what was not sent in time, and forget what was cancelled before it was sent."""
        for credential in self._all:
            call = credential.call
            if call is not None and credential not in self._sent and (call.done() or now >= call.deadline):
                self.forget(credential)
                if not call.done():
                    fail(call, connection_loss(None, "there was no connection in time to prove it", maybe=False))

    def deadlines(self) -> list[float]:
        """Return when :meth:`fail_overdue` has something to do."""
        return [item.call.deadline for item in self._all if item.call is not None and item not in self._sent]


class SaslLogin:
    """A login, repeated on every connection: a challenge is answered, then the server proves that it knows the
    password, too.

    Args:
        user: The user.
        password: The password.
        rng: Where nonces come from.
    """

    def __init__(self, user: str, password: str, rng: Random) -> None:
        self._user = user
        self._password = password
        self._rng = rng
        self._expected: str | None = None  # the server's proof; None before the challenge

    def begin(self) -> None:
        """Begin on a new connection."""
        self._expected = None

    def respond(self, token: bytes) -> bytes | None:
        """Return the response to a challenge; None once the server has proved that it knows the password.

        Raises:
            AuthFailedError: The server does not know it.
            SaslFailure: The challenge cannot be answered.
        """
        if self._expected is None:
            cnonce = f"{self._rng.getrandbits(128):032x}"
            response, self._expected = sasl.answer(token, self._user, self._password, cnonce)
            return response
        try:
            proved = sasl.directives(token).get("rspauth") == self._expected
        except sasl.SaslFailure:
            proved = False
        if not proved:
            raise AuthFailedError(detail=f"the server does not know the password of {self._user!r}")
        return None

    def refused(self) -> AuthFailedError:
        """Return the error that the server's refusal means."""
        return AuthFailedError(detail=f"the server refused the login of {self._user!r}")
