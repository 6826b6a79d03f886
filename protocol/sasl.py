"""SASL DIGEST-MD5 in the form that ZooKeeper uses: one challenge, one proof, no security layer.

::

    client                              server
    anything (ignored)           ->
                                 <-     realm, nonce
    username, response, ...      ->
                                 <-     rspauth

Source: RFC 2831, ZooKeeperSaslServer, ZooKeeperSaslClient.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final

REALM: Final = "zk-sasl-md5"
DIGEST_URI: Final = "zookeeper/zk-sasl-md5"
MAX_TOKEN_BYTES: Final = 4096
"""Maximum size of a token in bytes. The tokens of real clients have at most about 300 bytes."""
# A lookahead after each repetition prevents backtracking into it, so a match takes linear time. Possessive quantifiers
# would do the same, but are faulty in early releases of Python 3.11.
_NAME: Final = r"[\s,]*(?![\s,])([A-Za-z-]+)(?![A-Za-z-])\s*(?!\s)"
_DIRECTIVE: Final = rf'{_NAME}=\s*(?!\s)(?:"((?:\\.|[^"\\])*)"|([^,"\s]*)(?![^,"\s]))\s*(?!\s)(?:,|$)'
UNIQUE_DIRECTIVES: Final = frozenset(
    {"username", "realm", "nonce", "cnonce", "qop", "digest-uri", "response", "maxbuf", "charset", "cipher", "authzid"}
)
"""The directives that may occur only once. ``nc`` may be repeated, because it is ignored.

Source: DigestMD5Base.parseDirectives.
"""


class SaslFailure(Exception):
    """The error for a peer that failed to authenticate. The message is for the log."""


def parse_directives(token: bytes) -> dict[str, str]:
    """Parse a token of the form ``name="value",name=value``. Return the values by name. Names are in lower case.

    Raises:
        SaslFailure: The token does not have this form, is longer than 4,096 bytes, or repeats one of
            :data:`UNIQUE_DIRECTIVES`.
    """
    if len(token) > MAX_TOKEN_BYTES:
        raise SaslFailure(f"the token has {len(token)} bytes (limit {MAX_TOKEN_BYTES})")
    text = token.decode("utf-8", "replace")
    values: dict[str, str] = {}
    directive, name = re.compile(_DIRECTIVE), re.compile(_NAME)
    offset = 0
    while offset < len(text):
        match = directive.match(text, offset)
        if match is None and name.fullmatch(text, offset):  # at the end, a name without a value is accepted
            break
        if match is None or (match[3] == "" and not text[offset : match.end()].endswith(",")):
            raise SaslFailure("the token is not a list of name=value")
        if match[1].lower() in values and match[1].lower() in UNIQUE_DIRECTIVES:
            raise SaslFailure(f"the token contains {match[1].lower()!r} twice")
        values[match[1].lower()] = re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else match[3]
        offset = match.end()
    return values


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def proof(fields: Mapping[str, str], user: str, password: str, verb: str) -> str:
    """Return the value of the ``response`` directive: hexadecimal digits that prove knowledge of the password.

    Args:
        fields: Directives of the client's response: realm, nonce, cnonce, nc, qop, digest-uri, authzid.
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
        cnonce: The client's nonce, a value that was never used before.

    Raises:
        SaslFailure: The challenge is invalid.
    """
    offered = parse_directives(challenge)
    if "nonce" not in offered:
        raise SaslFailure("the server's challenge has no nonce")
    fields = {
        "charset": "utf-8",
        "username": user,
        "realm": offered.get("realm", REALM),
        "nonce": offered["nonce"],
        "nc": "00000001",
        "cnonce": cnonce,
        "digest-uri": DIGEST_URI,
        "maxbuf": "65536",
        "qop": "auth",
    }
    fields["response"] = proof(fields, user, password, "AUTHENTICATE:")
    bare = ("charset", "nc", "maxbuf", "qop", "response")
    token = ",".join(f"{name}={text if name in bare else _quote(text)}" for name, text in fields.items())
    return token.encode(), proof(fields, user, password, ":")


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
