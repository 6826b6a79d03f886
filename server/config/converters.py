"""The types of values: one :class:`Converter` for each type that a key may have."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

from ...protocol.distinguished_name import WRITTEN_FORM, is_canonical
from ..net.tls_settings import store_type

MAX_INT: Final = 2**31 - 1
MIN_INT: Final = -(2**31)


class Converter(NamedTuple):
    """One type of value.

    Args:
        convert: Returns the value of a text. Raises ValueError if the text is not of this type. Raises OSError or
            UnicodeDecodeError if the text names an unreadable file.
        type: The type in plain words, for the documentation.
        expected: The end of the sentence "KEY must be ...".
        unit: The unit of a number, such as ``milliseconds``.
        limits: The range of a number, such as ``1 to 65535``.
        show: Returns the text of a value, or an empty text if the value is not set.
    """

    convert: Callable[[str], Any]
    type: str
    expected: str = ""
    unit: str = ""
    limits: str = ""
    show: Callable[[Any], str] = lambda value: str(value) if isinstance(value, str | int) else ""


def number(low: int, high: int = MAX_INT, unit: str = "") -> Converter:
    """Return the converter of a whole number from *low* to *high*."""
    return Converter(
        convert=lambda text: _parse_whole_number(text, low, high),
        type="whole number",
        expected=f"a whole number from {low} to {high}" + (f" ({unit})" if unit else ""),
        unit=unit,
        limits=f"{low} to {high}",
    )


def at_least(low: int, unit: str = "") -> Converter:
    """Return the converter of a whole number. As in ZooKeeper, *low* replaces any smaller number."""
    return Converter(
        convert=lambda text: max(low, _parse_whole_number(text, MIN_INT, MAX_INT)),
        type="whole number",
        expected=f"a whole number from {MIN_INT} to {MAX_INT} ({unit})",
        unit=unit,
        limits=f"{MIN_INT} to {MAX_INT}",
    )


def milliseconds(low: int) -> Converter:
    """Return the converter of a time in milliseconds, which is at least *low*."""
    return number(low, unit="milliseconds")


def one_of(*choices: str, upper: bool = False) -> Converter:
    """Return the converter of one of several words.

    Upper and lower case are equivalent. The value is in lower case unless *upper* is set.
    """

    def convert(text: str) -> str:
        word = text.upper() if upper else text.lower()
        if word not in choices:
            raise ValueError(text)
        return word

    return Converter(convert=convert, type=_join_alternatives(choices), expected=_join_alternatives(choices))


def _parse_whole_number(text: str, low: int, high: int) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text) or not low <= int(text) <= high:
        raise ValueError(text)
    return int(text)


def _parse_java_integer(text: str) -> int:
    """Parse a number as Integer.getInteger does: 0x or # precedes hexadecimal digits."""
    if match := re.fullmatch(r"(?:0[xX]|#)([0-9a-fA-F]{1,8})", text):
        text = str(int(match[1], 16))
    return _parse_whole_number(text, 0, MAX_INT)


def _parse_boolean(text: str, words: tuple[str, str]) -> bool:
    if text.lower() not in words:
        raise ValueError(text)
    return text.lower() == words[1]


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _parse_schemes(text: str) -> frozenset[str]:
    schemes = frozenset(_split_names(text))
    if schemes - {"digest", "ip", "sasl", "x509"}:
        raise ValueError(text)
    return schemes


def _parse_addresses(text: str) -> str | None:
    parts = [part.strip(" []") for part in text.split(",")] if text else []
    if not all(part and part != "*" and part.isprintable() for part in parts):
        raise ValueError(text)
    return ",".join(dict.fromkeys(parts)) or None


def _check_distinguished_name(text: str) -> str:
    if not is_canonical(text):
        raise ValueError(text)
    return text


def _parse_protocols(text: str) -> frozenset[str]:
    if text == "TLS":  # in Java, this name means all supported versions
        return frozenset(_TLS_VERSIONS)
    if not (versions := frozenset(_split_names(text))) or versions - {*_TLS_VERSIONS}:
        raise ValueError(text)
    return versions


def _parse_algorithm(text: str) -> str:
    name = _hashlib_name(text)
    if name not in map(_hashlib_name, _ALGORITHMS):
        raise ValueError(text)
    return name


def _hashlib_name(algorithm: str) -> str:
    """Return hashlib's name of a digest that Java names ``SHA-256`` or ``SHA3-256``."""
    return algorithm.lower().replace("sha-", "sha").replace("sha3-", "sha3_")


def _check_key_store(text: str) -> str:
    if store_type(text, None) == "BCFKS":
        raise ValueError(text)
    return _check_path(text)


def _check_path(text: str) -> str:
    if "\0" in text:
        raise ValueError(text)
    return text


def _check_socket_path(text: str) -> str:
    if not text.startswith("/") or len(text.encode()) > MAX_SOCKET_PATH_BYTES or text.endswith("/"):
        raise ValueError(text)
    return _check_path(text)


def read_text(path: str, encoding: str) -> str:
    """Return the content of a text file.

    Raises:
        OSError: The file cannot be read.
        UnicodeDecodeError: The content is not in *encoding*.
    """
    with open(path, encoding=encoding) as file:
        return file.read()


def _check_directory(text: str) -> str:
    if not text:
        raise ValueError(text)
    return _check_path(text)


def _check_password_file(text: str) -> str:
    """Return the path of a password file, after a check that the file is readable.

    The password itself is read together with the certificates.
    """
    read_text(_check_path(text), "utf-8")
    return text


def _read_token_file(text: str) -> str:
    """Return the token in a file.

    Raises:
        ValueError: The token is too short, or contains a space or a character outside ASCII.
    """
    token = read_text(_check_path(text), "utf-8-sig").strip()
    if len(token) < MIN_TOKEN_CHARACTERS or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(text)
    return token


def _check_url_path(text: str) -> str:
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", text):
        raise ValueError(text)
    return text


def _parse_metrics_provider(text: str) -> bool:
    """Return whether the class of a metrics provider is the one for Prometheus. The two other providers have no port.

    Raises:
        ValueError: The class is not a metrics provider of ZooKeeper.
    """
    if text not in (_PROMETHEUS, *_OTHER_PROVIDERS):
        raise ValueError(text)
    return text == _PROMETHEUS


def _join_alternatives(words: Collection[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}"


def _join_values(values: Collection[str]) -> str:
    return ", ".join(values if isinstance(values, tuple) else sorted(values))


_TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_ALGORITHMS: Final = (
    *("MD5", "SHA1", "SHA-224", "SHA-256", "SHA-384", "SHA-512"),
    *("SHA3-256", "SHA3-384", "SHA3-512"),
)
MAX_SOCKET_PATH_BYTES: Final = 107
"""The maximum length of the path of a Unix socket on Linux, in bytes."""
MIN_TOKEN_CHARACTERS: Final = 16
"""The minimum length of a token, in characters."""
_METRICS_PACKAGE: Final = "org.apache.zookeeper.metrics."
_PROMETHEUS: Final = _METRICS_PACKAGE + "prometheus.PrometheusMetricsProvider"
_OTHER_PROVIDERS: Final = (
    _METRICS_PACKAGE + "impl.DefaultMetricsProvider",
    _METRICS_PACKAGE + "impl.NullMetricsProvider",
)
_YES_NO: Final = ("no", "yes")
_TRUE_FALSE: Final = ("false", "true")

TEXT: Final = Converter(convert=str, type="text")
FILE: Final = Converter(
    convert=_check_path,
    type="file",
    expected="the path of a file",
    show=lambda value: value if isinstance(value, str) else "",
)
"""A file. Its default is shown only if the field contains a path, not the content of the file."""
SOCKET: Final = Converter(
    convert=_check_socket_path,
    type="file",
    expected=f"the absolute path of a socket, at most {MAX_SOCKET_PATH_BYTES} bytes long",
    show=lambda value: value if isinstance(value, str) else "",
)
DIRECTORY: Final = Converter(
    convert=_check_directory,
    type="directory",
    expected="the path of a directory",
    show=lambda value: value if isinstance(value, str) else "",
)
FORCE_SYNC: Final = Converter(
    convert=lambda text: "never" if text.lower() == "no" else "always", type="yes or no", show=lambda value: "yes"
)
"""ZooKeeper's key for syncing: any value except ``no`` enables it."""
NAMES: Final = Converter(convert=_split_names, type="names, separated by commas", show=_join_values)
PORT: Final = number(0, 65535)
ADDRESSES: Final = Converter(
    convert=_parse_addresses,
    type="address or host name, or several, separated by commas",
    expected="an address or host name, or several, separated by commas",
)
ADDRESS: Final = Converter(convert=lambda text: text.strip("[]") or None, type="address or host name")
BOOLEAN: Final = Converter(
    convert=lambda text: _parse_boolean(text, _TRUE_FALSE),
    type="true or false",
    expected="true or false",
    show=lambda value: _TRUE_FALSE[bool(value)],
)
"""A boolean. For most keys ZooKeeper treats every text except ``true`` as false. Here a misspelled value is an error,
because it could disable a security setting.
"""
YES: Final = Converter(
    convert=lambda text: _parse_boolean(text, _YES_NO),
    type="yes or no",
    expected="yes or no",
    show=lambda value: _YES_NO[bool(value)],
)
CONNECTIONS: Final = Converter(
    convert=lambda text: max(0, _parse_whole_number(text, MIN_INT, MAX_INT)),
    type="whole number",
    expected=f"a whole number from {MIN_INT} to {MAX_INT} (connections)",
    unit="connections",
    limits=f"{MIN_INT} to {MAX_INT}",
)
"""A number of connections. Every negative number means the same as 0."""
BUFFER: Final = Converter(
    convert=_parse_java_integer,
    type="whole number, or 0x and hexadecimal digits",
    expected=f"a whole number from 0 to {MAX_INT} (bytes), or 0x and hexadecimal digits",
    unit="bytes",
    limits=f"0 to {MAX_INT}",
)
SCHEMES: Final = Converter(
    convert=_parse_schemes,
    type="digest, ip, sasl or x509, or several, separated by commas",
    expected="digest, ip, sasl or x509, or several of them, separated by commas",
    show=_join_values,
)
DISTINGUISHED_NAME: Final = Converter(
    convert=_check_distinguished_name,
    type="distinguished name",
    expected=f"a distinguished name, {WRITTEN_FORM}",
)
PROTOCOLS: Final = Converter(
    convert=_parse_protocols,
    type="TLSv1.2, TLSv1.3 or both, separated by a comma",
    expected="TLSv1.2, TLSv1.3 or both (older versions are not offered)",
    show=_join_values,
)
ALGORITHM: Final = Converter(
    convert=_parse_algorithm, type="name of a digest", expected=_join_alternatives(_ALGORITHMS), show=str.upper
)
KEY_STORE: Final = Converter(
    convert=_check_key_store,
    type="file",
    expected="a PEM file, or a key store of type JKS or PKCS12 (BCFKS cannot be read)",
)
STORE_TYPE: Final = one_of("PEM", "JKS", "PKCS12", upper=True)
PASSWORD_FILE: Final = Converter(convert=_check_password_file, type="file", expected="the path of a file")
TOKEN_FILE: Final = Converter(
    convert=_read_token_file,
    type="file",
    expected=f"a file with a token of at least {MIN_TOKEN_CHARACTERS} ASCII characters",
    show=lambda value: "",
)
URL_PATH: Final = Converter(
    convert=_check_url_path, type="path", expected="a path that starts with / and does not end with it"
)
METRICS_PROVIDER: Final = Converter(
    convert=_parse_metrics_provider,
    type="name of a class",
    expected=f"{_PROMETHEUS}, or DefaultMetricsProvider or NullMetricsProvider of {_METRICS_PACKAGE}impl",
    show=lambda value: _PROMETHEUS if value else _OTHER_PROVIDERS[0],
)
