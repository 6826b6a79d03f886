"""A parser for the subject and the expiry date of a certificate. All other fields of the DER encoding are skipped.

OpenSSL has verified the certificates of peers before they are parsed here. The parser still checks all lengths.

Source: RFC 5280, section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from ...protocol.distinguished_name import KEYWORDS, Attribute, show

_OID: Final = 0x06
_UTC_TIME: Final = 0x17
_VERSION: Final = 0xA0
_TEXT_ENCODINGS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x16: "ascii"}
"""The encodings of text values by their tags: UTF8String, PrintableString, IA5String.

Java also decodes four other types as UTF-8, and replaces invalid bytes. This could make names equal that an authority
considers different. Here, values of these types are shown in hexadecimal.
"""


def subject(certificate: bytes) -> str:
    """Return the subject of a certificate in the form of RFC 2253 and Java: ``CN=broker-1,OU=Kafka,O=Example``.

    Args:
        certificate: The certificate in DER.

    Raises:
        ValueError: The bytes are not a certificate.
    """
    *_, name = _locate_fields(certificate)
    parts = [_iterate_values(certificate, *part) for _, *part in _iterate_values(certificate, *name)]
    return show([[_read_attribute(certificate, *found) for _, *found in part] for part in parts])


def valid_until(certificate: bytes) -> datetime:
    """Return the expiry date of a certificate.

    Args:
        certificate: The certificate in DER.

    Raises:
        ValueError: The bytes are not a certificate.
    """
    *_, validity, _ = _locate_fields(certificate)
    _, (tag, start, stop) = _iterate_values(certificate, *validity)
    text = certificate[start:stop].decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _locate_fields(der: bytes) -> list[tuple[int, int]]:
    """Return the start and the end of the serial number, the algorithm, the issuer, the validity and the subject.

    Raises:
        ValueError: The bytes are not a certificate.
    """
    (_, *certificate), *_ = _iterate_values(der, 0, len(der))
    (_, *signed), *_ = _iterate_values(der, *certificate)
    fields = [(start, stop) for tag, start, stop in _iterate_values(der, *signed) if tag != _VERSION]
    if len(fields) < 5:
        raise ValueError("not a certificate")
    return fields[:5]


def _read_attribute(der: bytes, start: int, stop: int) -> Attribute:
    (kind, *number), (tag, value, end) = _iterate_values(der, start, stop)
    if kind != _OID:
        raise ValueError("an attribute of a name has no object identifier")
    dotted = _format_oid(der[number[0] : number[1]])
    if dotted in KEYWORDS and tag in _TEXT_ENCODINGS:
        with suppress(UnicodeDecodeError):
            return dotted, der[value:end].decode(_TEXT_ENCODINGS[tag])
    return dotted, der[number[1] : end]  # the slice includes the tag and the length


def _format_oid(encoded: bytes) -> str:
    """Return the text of an object identifier."""
    numbers, value = [], 0
    for byte in encoded:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2) if numbers else 0
    return ".".join(map(str, [first, (numbers[0] if numbers else 0) - 40 * first, *numbers[1:]]))


def _iterate_values(der: bytes, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield the tag, the start and the end of each value in a part of the bytes.

    Raises:
        ValueError: A value is longer than the part.
    """
    while start < stop:
        if start + 2 > stop:
            raise ValueError("the certificate is truncated")
        tag, length = der[start], der[start + 1]
        start += 2
        if length & 0x80:
            size = length & 0x7F
            if not 1 <= size <= 4 or start + size > stop:
                raise ValueError("the certificate is truncated")
            length = int.from_bytes(der[start : start + size], "big")
            start += size
        if start + length > stop:
            raise ValueError("the certificate is truncated")
        yield tag, start, start + length
        start += length
