"""SASL DIGEST-MD5, the server's side; the wire format is in :mod:`zoolet.protocol.sasl`.

Source: SaslServerCallbackHandler; ZooKeeperSaslServer.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Mapping
from random import Random

from zoolet.protocol.sasl import REALM, URI, SaslFailure, directives, proof

_EXPECTED = {
    "realm": ("", REALM),
    "digest-uri": ("", URI),
    "qop": ("auth", "auth"),
    "charset": ("utf-8", "utf-8"),
}
"""The required values of a response's directives, each behind the default for a missing one.

Source: com.sun.security.sasl.digest.DigestMD5Server, and the observed replies of Apache ZooKeeper.
"""


def brief(name: str) -> str:
    """Return a name for a log line: quoted, escaped, and truncated to 64 characters."""
    return repr(name if len(name) <= 64 else name[:64] + "...")


class DigestMd5:
    """One exchange: the first step returns the challenge, the second verifies the response; then it is over.

    Args:
        users: The password of each user.
        rng: The source of the nonce.

    Attributes:
        user: The client's user name once it is authenticated; None before.
    """

    def __init__(self, users: Mapping[str, str], rng: Random) -> None:
        self._users = users
        self._nonce = base64.b64encode(rng.randbytes(30)).decode()
        self._challenged = False
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        """Receive a token from the client and return the one to answer with.

        Raises:
            SaslFailure: The user is unknown, the response is wrong or invalid, or the exchange is over.
        """
        if not self._challenged:
            self._challenged = True
            return f'realm="{REALM}",nonce="{self._nonce}",charset=utf-8,algorithm=md5-sess'.encode()
        if self.user is not None:
            raise SaslFailure("the exchange is over")
        fields = directives(token)
        user = fields.get("username", "")
        if user not in self._users:
            raise SaslFailure(f"unknown user {brief(user)}")
        if fields.get("nonce") != self._nonce:
            raise SaslFailure(f"user {brief(user)} answered another challenge")
        for name, (default, expected_text) in _EXPECTED.items():
            text = fields.get(name, default)
            if (text.lower() if name == "digest-uri" else text) != expected_text:
                raise SaslFailure(f"user {brief(user)} sent {brief(fields.get(name, ''))} as {name}")
        if "cnonce" not in fields or not re.fullmatch("[+-]?[0-9]{1,10}", fields.get("maxbuf", "0")):
            raise SaslFailure(f"user {brief(user)} sent no cnonce, or a maxbuf that is not a number")
        fields["nc"] = "00000001"  # the server counts for itself; the client's count is ignored
        expected = proof(fields, user, self._users[user], "AUTHENTICATE:")
        if not hmac.compare_digest(expected.encode(), fields.get("response", "").encode()):
            raise SaslFailure(f"wrong password for user {brief(user)}")
        self.user = user
        return f"rspauth={proof(fields, user, self._users[user], ':')}".encode()
