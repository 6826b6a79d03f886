"""Distinguished names: the subject of a certificate as text, which is the id of scheme ``x509``.

Source: X509AuthenticationProvider, javax.security.auth.x500.X500Principal (its constructor, and getName of RFC 2253).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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
"""The keywords of RFC 2253 by the number of the attribute. Other attributes are written as their numbers, with
hexadecimal values.
"""
_ACCEPTED_KEYWORDS: Final = (
    *KEYWORDS.values(),
    *("S", "T", "IP", "DNQ", "DNQUALIFIER", "SURNAME", "GIVENNAME", "INITIALS", "GENERATION"),
    *("EMAIL", "EMAILADDRESS", "SERIALNUMBER"),
)
"""The keywords that are accepted. In addition to the keywords of RFC 2253, these are the ones that Java accepts."""
# A name is read piece by piece, and each piece once. Names come from clients, and backtracking would try every way to
# read an ambiguous name. Possessive quantifiers would also prevent that, but early releases of 3.11 misread them.
_SPACE: Final = r"[ \n]*"
_NUMBER: Final = r"[0-2](?:\.[0-9]+)+"
_HEX: Final = r"\#(?:[0-9a-fA-F]{2})+"
_ESCAPED: Final = r'\\(?:[0-9a-fA-F]{2}|[,=\n+<>\#;\\" ])'
_PLAIN: Final = rf'(?:[^,+<>;"\\\#]|{_ESCAPED})(?:[^,+<>;"\\]|{_ESCAPED})*'
_TYPE: Final = rf"(?i){_SPACE}(?:{'|'.join(_ACCEPTED_KEYWORDS)}|(?:OID\.)?{_NUMBER}){_SPACE}={_SPACE}"
_VALUE: Final = rf'(?s){_HEX}{_SPACE}|"(?:[^"\\]|\\.)*"{_SPACE}|{_PLAIN}|'
_WRITTEN_TYPE: Final = rf"(?:{'|'.join(KEYWORDS.values())}|{_NUMBER})=(?! )"
_WRITTEN_VALUE: Final = rf"(?s){_HEX}|{_PLAIN}|"
WRITTEN_FORM: Final = "the most specific part first, without spaces between the parts, such as CN=shop,O=Example"
"""A description of the output of :func:`show`."""
_SPECIAL: Final = r'[,=+<>#;"\\]'

Attribute = tuple[str, str | bytes]
"""The number and the value of an attribute. A binary value is bytes, which are written in hexadecimal."""


def is_name(text: str) -> bool:
    """Return whether a text is a distinguished name. The result is the same as in Java, except perhaps for texts with
    control characters or with impossible attribute numbers.
    """
    return not text or all(_split_parts(text, _TYPE, _VALUE, ",;+"))


def is_canonical(text: str) -> bool:
    """Return whether a text is a name in the form that :func:`show` produces.

    In an ACL, a name in any other form never matches, because names are compared as text.
    """
    parts = _split_parts(text, _WRITTEN_TYPE, _WRITTEN_VALUE, ",+")
    return all(part is not None and (part[-1:] != " " or part[-2:-1] == "\\") for part in parts)


def _split_parts(text: str, type_pattern: str, value_pattern: str, separators: str) -> Iterator[str | None]:
    """Yield the parts of a name, such as ``CN=shop``.

    If the remaining text is not a valid part, yield None and stop.
    """
    types, values = re.compile(type_pattern), re.compile(value_pattern)  # re caches the compiled patterns
    start = 0
    while (found := types.match(text, start)) is not None:
        value = values.match(text, found.end())
        assert value is not None  # both patterns match an empty value
        end = value.end()
        if end < len(text) and text[end] not in separators:
            break
        yield text[start:end]
        if end == len(text):
            return
        start = end + 1
    yield None


def show(name: Sequence[Sequence[Attribute]]) -> str:
    """Return a name as text, with the most specific part first.

    Args:
        name: The parts in the order of a certificate, with the most general part first. A part may consist of several
            attributes, but nearly always consists of one.
    """
    return ",".join("+".join(_show_attribute(*attribute) for attribute in part) for part in reversed(name))


def _show_attribute(number: str, value: str | bytes) -> str:
    if isinstance(value, bytes):
        return f"{KEYWORDS.get(number, number)}=#{value.hex()}"
    text = re.sub(_SPECIAL, r"\\\g<0>", value).replace("\0", r"\00")
    inner = text.strip(" \r")
    leading = len(text) - len(text.lstrip(" \r")) if inner else len(text)
    before, after = text[:leading], text[leading + len(inner) :]
    spaces = ["".join(f"\\{character}" for character in part) for part in (before, after)]
    return f"{KEYWORDS[number]}={spaces[0]}{inner}{spaces[1]}"
