"""The server's side of SASL DIGEST-MD5. The wire format is in :mod:`zoolet.protocol.sasl`.

Source: SaslServerCallbackHandler, ZooKeeperSaslServer.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Mapping
from random import Random

from ...protocol.sasl import DIGEST_URI, REALM, SaslFailure, parse_directives, proof
from .warnings import quoted_name

_EXPECTED_DIRECTIVES = {
    "realm": ("", REALM),
    "digest-uri": ("", DIGEST_URI),
    "qop": ("auth", "auth"),
    "charset": ("utf-8", "utf-8"),
}
"""The default value and the required value of each directive in a response.

Source: com.sun.security.sasl.digest.DigestMD5Server, and the observed replies of Apache ZooKeeper.
"""


class DigestMd5:
    """The server's side of one login, in two steps: the first returns the challenge, the second verifies the response.

    Args:
        users: Passwords by user name.
        rng: Source of randomness for the nonce.

    Attributes:
        user: The name of the authenticated user; None before the client is authenticated.
    """

    def __init__(self, users: Mapping[str, str], rng: Random) -> None:
        self._users = users
        self._nonce = base64.b64encode(rng.randbytes(30)).decode()
        self._challenged = False
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        """Receive a token from the client, and return the token to reply with.

        Raises:
            SaslFailure: The user is unknown, the response is wrong or invalid, or the exchange is complete.
        """
        if not self._challenged:
            self._challenged = True
            return f'realm="{REALM}",nonce="{self._nonce}",charset=utf-8,algorithm=md5-sess'.encode()
        if self.user is not None:
            raise SaslFailure("the exchange is already complete")
        fields = parse_directives(token)
        user = fields.get("username", "")
        if user not in self._users:
            raise SaslFailure(f"unknown user {quoted_name(user)}")
        if fields.get("nonce") != self._nonce:
            raise SaslFailure(f"user {quoted_name(user)} responded to a different challenge")
        for name, (default, expected_text) in _EXPECTED_DIRECTIVES.items():
            text = fields.get(name, default)
            if (text.lower() if name == "digest-uri" else text) != expected_text:
                raise SaslFailure(
                    f"user {quoted_name(user)} sent an invalid {name}: {quoted_name(fields.get(name, ''))}"
                )
        if "cnonce" not in fields or not re.fullmatch("[+-]?[0-9]{1,10}", fields.get("maxbuf", "0")):
            raise SaslFailure(f"user {quoted_name(user)} sent no cnonce or an invalid maxbuf")
        fields["nc"] = "00000001"  # each nonce is used only once; the client's own count is ignored
        expected = proof(fields, user, self._users[user], "AUTHENTICATE:")
        if not hmac.compare_digest(expected.encode(), fields.get("response", "").encode()):
            raise SaslFailure(f"wrong password for user {quoted_name(user)}")
        self.user = user
        return f"rspauth={proof(fields, user, self._users[user], ':')}".encode()
