"""Converters: valid texts, and the display of values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoolet.server.config import converters
from zoolet.server.config.converters import Converter


@given(st.integers(-5, 70_000))
def test_number_shown_as_text_converts_back(value: int) -> None:
    converter = converters.number(-5, 70_000)

    assert converter.convert(converter.show(value)) == value


@pytest.mark.parametrize("text", ["", " 1", "1 ", "1.0", "1e3", "0x10", "٣", "6", "-6", "9" * 5000])
def test_number_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        converters.number(-5, 5).convert(text)


def test_description_of_expected_number_has_range_and_unit() -> None:
    assert converters.milliseconds(1).expected == "a whole number from 1 to 2147483647 (milliseconds)"
    assert converters.PORT.expected == "a whole number from 0 to 65535"


@pytest.mark.parametrize(
    ("converter", "text", "value"),
    [
        (converters.BOOLEAN, "False", False),
        (converters.YES, "Yes", True),
        (converters.YES, "NO", False),
        (converters.one_of("need", "want"), "NEED", "need"),
        (converters.STORE_TYPE, "pkcs12", "PKCS12"),
        (converters.ADDRESS, "[::1]", "::1"),
        (converters.ADDRESS, "", None),
        (converters.NAMES, " a,, b ", ("a", "b")),
        (converters.SCHEMES, "sasl, digest", frozenset({"sasl", "digest"})),
        (converters.PROTOCOLS, "TLS", frozenset({"TLSv1.2", "TLSv1.3"})),
        (converters.ALGORITHM, "SHA3-512", "sha3_512"),
        (converters.ALGORITHM, "sha256", "sha256"),
        (converters.CONNECTIONS, "-7", 0),
        (converters.BUFFER, "0X10", 16),
    ],
)
def test_valid_text_is_converted_to_its_value(converter: Converter, text: str, value: object) -> None:
    assert converter.convert(text) == value


@pytest.mark.parametrize(
    ("converter", "value", "text"),
    [
        (converters.BOOLEAN, frozenset(), "false"),
        (converters.BOOLEAN, True, "true"),
        (converters.YES, False, "no"),
        (converters.PORT, 0, "0"),
        (converters.PORT, None, ""),
        (converters.TEXT, None, ""),
        (converters.FILE, {"bob": "secret"}, ""),
        (converters.NAMES, ("b", "a"), "b, a"),
        (converters.PROTOCOLS, frozenset({"TLSv1.3", "TLSv1.2"}), "TLSv1.2, TLSv1.3"),
        (converters.ALGORITHM, "sha1", "SHA1"),
    ],
)
def test_value_is_shown_in_notation_of_zoo_cfg(converter: Converter, value: object, text: str) -> None:
    assert converter.show(value) == text


@pytest.mark.parametrize("converter", [converters.FILE, converters.PASSWORD_FILE, converters.KEY_STORE])
def test_invalid_path_is_refused(converter: Converter) -> None:
    with pytest.raises(ValueError):
        converter.convert("/a\0b")
