"""The users of SASL DIGEST-MD5 in a JAAS file.

::

    Server {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        user_bob="secret"
        user_super="another secret";
    };

Source: the login configuration syntax of javax.security.auth.login.Configuration; DigestLoginModule.
"""

from __future__ import annotations

import re
from typing import Final

from .converters import read_text

SECTION: Final = "Server"
"""The section that is read by default. ``sasl.serverconfig`` selects a different section."""

_TOKEN_PATTERN: Final = (
    r'(?s:\s+|//[^\n]*|#[^\n]*|/\*.*?\*/|"(?P<text>(?:\\.|[^"\\])*)"|(?P<mark>[{};=])|(?P<word>[^\s{};="]+))'
)
Token = tuple[str, str]
"""The kind of a token and its text. The kind is ``mark``, ``word``, or ``text`` for a token in quotes."""


def read_users(path: str, section: str = SECTION) -> dict[str, str] | None:
    """Read the users in a section of a JAAS file, with their passwords.

    Returns:
        The passwords by user; None if the file has no such section.

    Raises:
        OSError: The file cannot be read.
        UnicodeDecodeError: The file is not UTF-8.
        ValueError: The section is not closed, or uses a module other than DigestLoginModule. The message names the
            file.
    """
    tokens = _tokens(read_text(path, "utf-8-sig"))
    name: Token = ("word", section)
    if name not in tokens:
        return None
    inside = tokens[tokens.index(name) + 1 :]
    if inside[:1] != [("mark", "{")] or ("mark", "}") not in inside:
        raise ValueError(f"section {section} of {path} is not enclosed in braces")
    inside = inside[1 : inside.index(("mark", "}"))]
    module = inside[0][1] if inside else "no login module"
    if not module.endswith(".DigestLoginModule"):
        raise ValueError(f"section {section} of {path} uses {module}; only DigestLoginModule is supported")
    return {
        option.removeprefix("user_"): inside[place + 2][1]
        for place, (kind, option) in enumerate(inside[:-2])
        if kind == "word" and option.startswith("user_") and inside[place + 1] == ("mark", "=")
    }


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    for match in re.finditer(_TOKEN_PATTERN, text):
        kind = match.lastgroup
        if kind == "text":
            tokens.append((kind, re.sub(r"\\(.)", r"\1", match["text"], flags=re.DOTALL)))
        elif kind is not None:
            tokens.append((kind, match[kind]))
    return tokens
