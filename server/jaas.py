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

_TOKEN: Final = re.compile(r'\s+|//[^\n]*|#[^\n]*|/\*.*?\*/|"((?:\\.|[^"\\])*)"|([{};=])|([^\s{};="]+)', re.DOTALL)


def users(path: str, section: str = "Server") -> dict[str, str] | None:
    """Read the users of a section; None if the file has no such section.

    Raises:
        ValueError: The file cannot be read, is not of the form, or asks for another login module than
            DigestLoginModule.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"a JAAS file that can be read; {path}: {error.strerror}") from None
    tokens = [
        match[1] or match[2] or match[3]
        for match in _TOKEN.finditer(text)
        if match[1] is not None or match[2] or match[3]
    ]
    if section not in tokens:
        return None
    at = tokens.index(section)
    if "}" not in tokens[at:] or tokens[at + 1 : at + 2] != ["{"]:
        raise ValueError(f"a JAAS file with a section {section} {{ ... }}; {path} has none that is closed")
    inside = tokens[at + 2 : tokens.index("}", at)]
    if not inside or not inside[0].endswith(".DigestLoginModule"):
        raise ValueError(
            f"a JAAS file whose section {section} uses DigestLoginModule; "
            f"{path} asks for {inside[0] if inside else 'nothing'}"
        )
    return {
        name.removeprefix("user_"): inside[place + 2]
        for place, name in enumerate(inside[:-2])
        if name.startswith("user_") and inside[place + 1] == "="
    }
