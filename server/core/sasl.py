"""SASL DIGEST-MD5, the server's side: one challenge, one proof, no security layer.

::

    client                              server
    anything (ignored)           ->
                                 <-     realm, nonce
    username, response, ...      ->
                                 <-     rspauth, and the connection is ("sasl", username)

Source: RFC 2831; SaslServerCallbackHandler; ZooKeeperSaslServer.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from random import Random
from typing import Final

REALM: Final = "zk-sasl-md5"
_DIRECTIVE = re.compile(r'\s*([A-Za-z-]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|([^,"\s]*))\s*(?:,|$)')


class SaslFailure(Exception):
    """The client did not prove who it is; the message is for the server's log."""


class DigestMd5:
    """One exchange.

    Args:
        users: The password of each user.
        random: Where the nonce comes from.

    Attributes:
        user: Who the client is, once it has proved it.
    """

    def __init__(self, users: Mapping[str, str], random: Random) -> None:
        self._users = users
        self._nonce = base64.b64encode(random.randbytes(30)).decode()
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
        said = _directives(token)
        user = said.get("username", "")
        if user not in self._users:
            raise SaslFailure(f"unknown user {user!r}")
        if said.get("nonce") != self._nonce or said.get("nc") != "00000001":
            raise SaslFailure(f"user {user!r} answered another challenge")
        secret = _secret(user, said.get("realm", ""), self._users[user], self._nonce, said.get("cnonce", ""))
        expected = _response(secret, said, "AUTHENTICATE:")
        if not hmac.compare_digest(expected.encode(), said.get("response", "").encode()):
            raise SaslFailure(f"wrong password for user {user!r}")
        self.user = user
        return f"rspauth={_response(secret, said, ':')}".encode()


def _directives(token: bytes) -> dict[str, str]:
    text = token.decode("utf-8", "replace")
    said, at = {}, 0
    while at < len(text):
        match = _DIRECTIVE.match(text, at)
        if match is None:
            raise SaslFailure("the response makes no sense")
        said[match[1].lower()] = re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else match[3]
        at = match.end()
    return said


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _secret(user: str, realm: str, password: str, nonce: str, cnonce: str) -> str:
    return _md5(_md5(f"{user}:{realm}:{password}".encode()) + f":{nonce}:{cnonce}".encode()).hex()


def _response(secret: str, said: Mapping[str, str], verb: str) -> str:
    a2 = _md5(f"{verb}{said.get('digest-uri', '')}".encode()).hex()
    qop = said.get("qop", "auth")
    return _md5(
        f"{secret}:{said.get('nonce', '')}:{said.get('nc', '')}:{said.get('cnonce', '')}:{qop}:{a2}".encode()
    ).hex()
