"""The JAAS file that names the users of SASL DIGEST-MD5.

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
from pathlib import Path
from typing import Final

_TOKEN: Final = re.compile(
    r'\s+|//[^\n]*|#[^\n]*|/\*.*?\*/|"(?P<text>(?:\\.|[^"\\])*)"|(?P<mark>[{};=])|(?P<word>[^\s{};="]+)', re.DOTALL
)
Token = tuple[str, str]
"""What kind a token is, ``text`` in quotes, ``mark`` or ``word``, and what it says."""


def users(path: str, section: str = "Server") -> dict[str, str] | None:
    """Read the users of a section; None if the file has no such section.

    Raises:
        ValueError: The file cannot be read, is not of the form, or asks for another module than DigestLoginModule.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error.reason
        raise ValueError(f"a JAAS file that can be read; {path}: {why}") from None
    tokens = _tokens(text)
    name: Token = ("word", section)
    if name not in tokens:
        return None
    inside = tokens[tokens.index(name) + 1 :]
    if inside[:1] != [("mark", "{")] or ("mark", "}") not in inside:
        raise ValueError(f"a JAAS file with a section {section} {{ ... }}; {path} has none that is closed")
    inside = inside[1 : inside.index(("mark", "}"))]
    module = inside[0][1] if inside else "nothing"
    if not module.endswith(".DigestLoginModule"):
        raise ValueError(f"a JAAS file whose section {section} uses DigestLoginModule; {path} asks for {module}")
    return {
        said.removeprefix("user_"): inside[place + 2][1]
        for place, (kind, said) in enumerate(inside[:-2])
        if kind == "word" and said.startswith("user_") and inside[place + 1] == ("mark", "=")
    }


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "text":
            tokens.append((kind, re.sub(r"\\(.)", r"\1", match["text"], flags=re.DOTALL)))
        elif kind is not None:
            tokens.append((kind, match[kind]))
    return tokens
