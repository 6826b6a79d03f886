"""SASL DIGEST-MD5 as ZooKeeper uses it: one challenge, one proof, no security layer.

::

    client                              server
    anything (ignored)           ->
                                 <-     realm, nonce
    username, response, ...      ->
                                 <-     rspauth

Source: RFC 2831; ZooKeeperSaslServer; ZooKeeperSaslClient.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final

REALM: Final = "zk-sasl-md5"
URI: Final = "zookeeper/zk-sasl-md5"
MAX_TOKEN: Final = 4096
"""Bytes of a token; the longest that real clients send have some 300."""
# Possessive quantifiers throughout (++ and *+): without backtracking a match takes linear time.
_DIRECTIVE = re.compile(r'[\s,]*+([A-Za-z-]++)\s*+=\s*+(?:"((?:\\.|[^"\\])*+)"|([^,"\s]*+))\s*+(?:,|$)')

_BARE = re.compile(r"[\s,]*+[A-Za-z-]++\s*+")  # at the end, a name without a value is accepted
UNIQUE: Final = frozenset(
    {"username", "realm", "nonce", "cnonce", "qop", "digest-uri", "response", "maxbuf", "charset", "cipher", "authzid"}
)
"""The directives that may occur only once; ``nc`` is ignored. Source: DigestMD5Base.parseDirectives."""


class SaslFailure(Exception):
    """The peer failed to authenticate; the message is for a log."""


def directives(token: bytes) -> dict[str, str]:
    """Parse ``name="value",name=value``; return the values by their names in lower case.

    Raises:
        SaslFailure: The token is not of that form, longer than 4,096 bytes, or has a directive twice.
    """
    if len(token) > MAX_TOKEN:
        raise SaslFailure(f"a token of {len(token)} bytes; the limit is {MAX_TOKEN}")
    text = token.decode("utf-8", "replace")
    values: dict[str, str] = {}
    offset = 0
    while offset < len(text):
        match = _DIRECTIVE.match(text, offset)
        if match is None and _BARE.fullmatch(text, offset):
            break
        if match is None or (match[3] == "" and not text[offset : match.end()].endswith(",")):
            raise SaslFailure("a token that is not a list of name=value")
        if match[1].lower() in values and match[1].lower() in UNIQUE:
            raise SaslFailure(f"{match[1].lower()!r} occurs twice")
        values[match[1].lower()] = re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else match[3]
        offset = match.end()
    return values


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def proof(fields: Mapping[str, str], user: str, password: str, verb: str) -> str:
    """Return the ``response`` value, hex digits that prove knowledge of the password.

    Args:
        fields: The directives of the client's response: realm, nonce, cnonce, nc, qop, digest-uri, authzid.
        user: The user's name.
        password: The password.
        verb: ``AUTHENTICATE:`` for the client's proof, ``:`` for the server's.
    """
    nonce, cnonce = fields.get("nonce", ""), fields.get("cnonce", "")
    inner = _md5(f"{user}:{fields.get('realm', '')}:{password}".encode())
    authzid = f":{fields['authzid']}" if "authzid" in fields else ""
    secret = _md5(inner + f":{nonce}:{cnonce}{authzid}".encode()).hex()
    a2 = _md5(f"{verb}{fields.get('digest-uri', '')}".encode()).hex()
    return _md5(f"{secret}:{nonce}:{fields.get('nc', '')}:{cnonce}:{fields.get('qop', 'auth')}:{a2}".encode()).hex()


def answer(challenge: bytes, user: str, password: str, cnonce: str) -> tuple[bytes, str]:
    """Return the client's response to a challenge, and the proof that the server must return (``rspauth``).

    Args:
        challenge: The token from the server.
        user: The user's name.
        password: The password.
        cnonce: A value that was never used before.

    Raises:
        SaslFailure: The challenge is invalid.
    """
    offered = directives(challenge)
    if "nonce" not in offered:
        raise SaslFailure("the server's challenge has no nonce")
    fields = {
        "charset": "utf-8",
        "username": user,
        "realm": offered.get("realm", REALM),
        "nonce": offered["nonce"],
        "nc": "00000001",
        "cnonce": cnonce,
        "digest-uri": URI,
        "maxbuf": "65536",
        "qop": "auth",
    }
    fields["response"] = proof(fields, user, password, "AUTHENTICATE:")
    bare = ("charset", "nc", "maxbuf", "qop", "response")
    token = ",".join(f"{name}={text if name in bare else _quoted(text)}" for name, text in fields.items())
    return token.encode(), proof(fields, user, password, ":")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
