"""How a client authenticates: its credentials, and the client's side of SASL DIGEST-MD5, without I/O."""

from __future__ import annotations

from random import Random

from zoolet.client.requests import Request
from zoolet.protocol import sasl
from zoolet.protocol.errors import AuthFailedError


class Credential:
    """A credential, sent to every server first thing; and the call that waits for the first reply to it."""

    __slots__ = ("auth", "call", "scheme")

    def __init__(self, scheme: str, auth: bytes, call: Request | None = None) -> None:
        self.scheme = scheme
        self.auth = auth
        self.call = call


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
