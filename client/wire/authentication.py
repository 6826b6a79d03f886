"""Client authentication without I/O: credentials, and the client side of SASL DIGEST-MD5."""

from __future__ import annotations

from collections import deque
from random import Random

from ...protocol import records as r
from ...protocol import sasl
from ...protocol.enums import Xid
from ...protocol.errors import AuthFailedError
from ...protocol.operations import OpCode
from .requests import PendingCall, connection_loss, fail, request_frame


class Credential:
    """A credential, which is sent first on every connection, and the call that waits for the first reply to it."""

    __slots__ = ("auth", "call", "scheme")

    def __init__(self, scheme: str, auth: bytes, call: PendingCall | None = None) -> None:
        self.scheme = scheme
        self.auth = auth
        self.call = call


class Credentials:
    """The credentials of a client. All are sent on every connection, and the server replies in that order."""

    def __init__(self) -> None:
        self._all: list[Credential] = []
        self._sent: deque[Credential] = deque()  # credentials that were sent but not answered

    def add(self, scheme: str, auth: bytes, call: PendingCall | None) -> Credential:
        """Add a credential. The first reply to it completes the call."""
        self._all.append(Credential(scheme, auth, call))
        return self._all[-1]

    def start(self) -> None:
        """Forget which credentials were sent, because the connection is new or was lost."""
        self._sent.clear()

    def send(self, *credentials: Credential) -> list[bytes]:
        """Record credentials as sent, and return the frames that send them. Without arguments, send all credentials."""
        self._sent.extend(credentials or self._all)
        bodies = [r.AuthPacket(0, item.scheme, item.auth).encode() for item in credentials or self._all]
        return [request_frame(Xid.AUTH, OpCode.AUTH, body) for body in bodies]

    @property
    def unanswered(self) -> bool:
        """Whether a reply is still expected."""
        return bool(self._sent)

    def pop_answered(self) -> tuple[Credential, PendingCall | None]:
        """Return the credential that the next reply belongs to, and the call that waits for its first reply."""
        credential = self._sent.popleft()
        call, credential.call = credential.call, None
        return credential, call

    def forget(self, refused: Credential) -> None:
        """Remove a credential, because the server refused it, or it was not sent in time."""
        self._all = [credential for credential in self._all if credential is not refused]

    def calls(self) -> list[PendingCall]:
        """Return the calls that wait for a reply."""
        return [credential.call for credential in self._all if credential.call is not None]

    def fail_overdue(self, now: float) -> None:
        """Remove unsent credentials whose call was cancelled or is past its deadline, and fail the call."""
        for credential in self._all:
            call = credential.call
            if call is not None and credential not in self._sent and (call.done() or now >= call.deadline):
                self.forget(credential)
                if not call.done():
                    fail(call, connection_loss(None, "no connection in time to send the credential", maybe=False))

    def deadlines(self) -> list[float]:
        """Return the deadlines of unsent credentials, for :meth:`fail_overdue`."""
        return [item.call.deadline for item in self._all if item.call is not None and item not in self._sent]


class SaslLogin:
    """A SASL login, which is repeated on every connection.

    The client answers a challenge. The server then proves that it also knows the password.

    Args:
        user: Name of the user.
        password: Password of the user.
        rng: Random generator for nonces.
    """

    def __init__(self, user: str, password: str, rng: Random) -> None:
        self._user = user
        self._password = password
        self._rng = rng
        self._expected: str | None = None  # the server's proof; None until the challenge

    def start(self) -> None:
        """Start the login again, on a new connection."""
        self._expected = None

    def respond(self, token: bytes) -> bytes | None:
        """Return the response to a challenge. Return None after the server has proved that it knows the password.

        Raises:
            AuthFailedError: The server does not know the password.
            SaslFailure: The challenge is malformed or not supported.
        """
        if self._expected is None:
            cnonce = f"{self._rng.getrandbits(128):032x}"
            response, self._expected = sasl.answer(token, self._user, self._password, cnonce)
            return response
        try:
            proved = sasl.parse_directives(token).get("rspauth") == self._expected
        except sasl.SaslFailure:
            proved = False
        if not proved:
            raise AuthFailedError(detail=f"the server does not know the password of {self._user!r}")
        return None

    def rejection_error(self) -> AuthFailedError:
        """Return the error for a login that the server rejected."""
        return AuthFailedError(detail=f"the server rejected the login of {self._user!r}")
