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
# Possessive throughout (++ and *+): a part that has matched is never tried again shorter, so a match takes linear time.
_DIRECTIVE = re.compile(r'[\s,]*+([A-Za-z-]++)\s*+=\s*+(?:"((?:\\.|[^"\\])*+)"|([^,"\s]*+))\s*+(?:,|$)')

_BARE = re.compile(r"[\s,]*+[A-Za-z-]++\s*+")  # at the end, a name without a value is let pass
UNIQUE: Final = frozenset(
    {"username", "realm", "nonce", "cnonce", "qop", "digest-uri", "response", "maxbuf", "charset", "cipher", "authzid"}
)
"""The directives that may be there only once; ``nc`` is not looked at. Source: DigestMD5Base.parseDirectives."""


class SaslFailure(Exception):
    """The other side did not prove who it is; the message is for a log."""


def directives(token: bytes) -> dict[str, str]:
    """Read ``name="value",name=value``; names in lower case.

    Raises:
        SaslFailure: The token is not of that form, longer than 4,096 bytes, or says something twice.
    """
    if len(token) > MAX_TOKEN:
        raise SaslFailure(f"a token of {len(token)} bytes, and {MAX_TOKEN} is the limit")
    text = token.decode("utf-8", "replace")
    said: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _DIRECTIVE.match(text, at)
        if match is None and _BARE.fullmatch(text, at):
            break
        if match is None or (match[3] == "" and not text[at : match.end()].endswith(",")):
            raise SaslFailure("a token that is not a list of name=value")
        if match[1].lower() in said and match[1].lower() in UNIQUE:
            raise SaslFailure(f"{match[1].lower()!r} is there twice")
        said[match[1].lower()] = re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else match[3]
        at = match.end()
    return said


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def proof(said: Mapping[str, str], user: str, password: str, verb: str) -> str:
    """Return the hex digits that prove that one knows a password.

    Args:
        said: The directives of the client's response: realm, nonce, cnonce, nc, qop, digest-uri, authzid.
        user: Whose password it is.
        password: The password.
        verb: ``AUTHENTICATE:`` for the client's proof, ``:`` for the server's.
    """
    nonce, cnonce = said.get("nonce", ""), said.get("cnonce", "")
    inner = _md5(f"{user}:{said.get('realm', '')}:{password}".encode())
    authzid = f":{said['authzid']}" if "authzid" in said else ""
    secret = _md5(inner + f":{nonce}:{cnonce}{authzid}".encode()).hex()
    a2 = _md5(f"{verb}{said.get('digest-uri', '')}".encode()).hex()
    return _md5(f"{secret}:{nonce}:{said.get('nc', '')}:{cnonce}:{said.get('qop', 'auth')}:{a2}".encode()).hex()


def answer(challenge: bytes, user: str, password: str, cnonce: str) -> tuple[bytes, str]:
    """Return the client's answer to a challenge, and the proof that the server has to give in turn (rspauth).

    Args:
        challenge: What the server sent.
        user: Who logs in.
        password: The password.
        cnonce: Something that was never used before.

    Raises:
        SaslFailure: The challenge makes no sense.
    """
    asked = directives(challenge)
    if "nonce" not in asked:
        raise SaslFailure("the server's challenge has no nonce")
    said = {
        "charset": "utf-8",
        "username": user,
        "realm": asked.get("realm", REALM),
        "nonce": asked["nonce"],
        "nc": "00000001",
        "cnonce": cnonce,
        "digest-uri": URI,
        "maxbuf": "65536",
        "qop": "auth",
    }
    said["response"] = proof(said, user, password, "AUTHENTICATE:")
    bare = ("charset", "nc", "maxbuf", "qop", "response")
    token = ",".join(f"{name}={text if name in bare else _quoted(text)}" for name, text in said.items())
    return token.encode(), proof(said, user, password, ":")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
