"""Distinguished names: who a certificate is of, as text, the id of scheme ``x509``.

Source: X509AuthenticationProvider; javax.security.auth.x500.X500Principal (its constructor, and getName of RFC 2253).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""The attributes that have a name in RFC 2253; others are shown by their numbers, and their values in hexadecimal."""
_READ: Final = (
    *KEYWORDS.values(),
    *("S", "T", "IP", "DNQ", "DNQUALIFIER", "SURNAME", "GIVENNAME", "INITIALS", "GENERATION"),
    *("EMAIL", "EMAILADDRESS", "SERIALNUMBER"),
)
"""The names of attributes that are read; those that are not in RFC 2253 are Java's."""
# The quantifiers are possessive (a plus behind them): what they have taken they keep, so that each character is looked
# at once. Names come from clients, and a name that can be read in many ways would be read in all of them.
_SPACE: Final = r"[ \n]*+"
_NUMBER: Final = r"[0-2](?:\.[0-9]++)++"
_HEX: Final = r"\#(?:[0-9a-fA-F]{2})++"
_ESCAPED: Final = r'\\(?:[0-9a-fA-F]{2}|[,=\n+<>\#;\\" ])'
_PLAIN: Final = rf'(?:[^,+<>;"\\\#]|{_ESCAPED})(?:[^,+<>;"\\]++|{_ESCAPED})*+'
_VALUE: Final = rf'(?>{_HEX}{_SPACE}|"(?:[^"\\]++|\\.)*+"{_SPACE}|{_PLAIN}|)'
_PART: Final = rf"{_SPACE}(?:{'|'.join(_READ)}|(?:OID\.)?{_NUMBER}){_SPACE}={_SPACE}{_VALUE}"
_NAME: Final = re.compile(rf"(?:{_PART}(?:[,;+]{_PART})*+)?", re.IGNORECASE | re.DOTALL)
_WRITTEN_PART: Final = rf"(?:{'|'.join(KEYWORDS.values())}|{_NUMBER})=(?! )(?>{_HEX}|{_PLAIN}|)(?<!(?<!\\) )"
_WRITTEN: Final = re.compile(rf"{_WRITTEN_PART}(?:[,+]{_WRITTEN_PART})*+", re.DOTALL)
WRITTEN_FORM: Final = "the most specific part first, without spaces between the parts, such as CN=shop,O=Example"
"""How :func:`show` writes a name, in words."""
_SPECIAL: Final = re.compile(r'[,=+<>#;"\\]')

Attribute = tuple[str, str | bytes]
"""The number of an attribute, and its value: bytes, which are shown in hexadecimal, if it is not text."""


def is_name(text: str) -> bool:
    """Return whether a text is a distinguished name, as Java's constructor says; only of texts with control characters,
    and with numbers that no attribute can have, it may say otherwise.
    """
    return _NAME.fullmatch(text) is not None


def is_written_as_shown(text: str) -> bool:
    """Return whether a text is a name as :func:`show` writes it. Names are compared as text, so another is nobody's."""
    return _WRITTEN.fullmatch(text) is not None


def show(name: Sequence[Sequence[Attribute]]) -> str:
    """Return the text of a name, the most specific part first.

    Args:
        name: The parts as a certificate has them, the most general first; nearly all have one attribute.
    """
    return ",".join("+".join(_show_attribute(*attribute) for attribute in part) for part in reversed(name))


def _show_attribute(number: str, value: str | bytes) -> str:
    if isinstance(value, bytes):
        return f"{KEYWORDS.get(number, number)}=#{value.hex()}"
    text = _SPECIAL.sub(r"\\\g<0>", value).replace("\0", r"\00")
    inner = text.strip(" \r")
    leading = len(text) - len(text.lstrip(" \r")) if inner else len(text)
    before, after = text[:leading], text[leading + len(inner) :]
    spaces = ["".join(f"\\{character}" for character in part) for part in (before, after)]
    return f"{KEYWORDS[number]}={spaces[0]}{inner}{spaces[1]}"
