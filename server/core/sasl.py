"""SASL DIGEST-MD5, the server's side; :mod:`zoolet.protocol.sasl` has what goes over the wire.

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
"""What the directives of a response must say; before it, what a missing one counts as.

Source: com.sun.security.sasl.digest.DigestMD5Server, and what a real server answers.
"""


def brief(name: str) -> str:
    """Return a name for a log line: in quotes, escaped, and at most 64 characters of it."""
    return repr(name if len(name) <= 64 else name[:64] + "...")


class DigestMd5:
    """One exchange.

    Args:
        users: The password of each user.
        random: Where the nonce comes from.

    Attributes:
        user: Who the client is, once it has proved it.
    """

    def __init__(self, users: Mapping[str, str], rng: Random) -> None:
        self._users = users
        self._nonce = base64.b64encode(rng.randbytes(30)).decode()
        self._challenged = False
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        """Take what the client says and give what to answer.

        Raises:
            SaslFailure: The user is unknown, the response is wrong or makes no sense, or the exchange is over.
        """
        if not self._challenged:
            self._challenged = True
            return f'realm="{REALM}",nonce="{self._nonce}",charset=utf-8,algorithm=md5-sess'.encode()
        if self.user is not None:
            raise SaslFailure("the exchange is over")
        said = directives(token)
        user = said.get("username", "")
        if user not in self._users:
            raise SaslFailure(f"unknown user {brief(user)}")
        if said.get("nonce") != self._nonce:
            raise SaslFailure(f"user {brief(user)} answered another challenge")
        for name, (default, expected_text) in _EXPECTED.items():
            text = said.get(name, default)
            if (text.lower() if name == "digest-uri" else text) != expected_text:
                raise SaslFailure(f"user {brief(user)} gave {brief(said.get(name, ''))} as {name}")
        if "cnonce" not in said or not re.fullmatch("[+-]?[0-9]{1,10}", said.get("maxbuf", "0")):
            raise SaslFailure(f"user {brief(user)} gave no cnonce, or a maxbuf that is not a number")
        said["nc"] = "00000001"  # the count is the server's own; what the client says of it is not looked at
        expected = proof(said, user, self._users[user], "AUTHENTICATE:")
        if not hmac.compare_digest(expected.encode(), said.get("response", "").encode()):
            raise SaslFailure(f"wrong password for user {brief(user)}")
        self.user = user
        return f"rspauth={proof(said, user, self._users[user], ':')}".encode()
