"""Tokens of SASL DIGEST-MD5: their maximum size, valid and invalid directives, and the cost of parsing them."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from zoolet.protocol.sasl import MAX_TOKEN_BYTES, SaslFailure, parse_directives


def test_sasl_token_of_4096_bytes_is_read() -> None:
    token = b'a="' + b"x" * (MAX_TOKEN_BYTES - 4) + b'"'

    assert len(parse_directives(token)["a"]) == MAX_TOKEN_BYTES - 4


def test_sasl_token_of_4097_bytes_is_refused() -> None:
    with pytest.raises(SaslFailure, match="4097"):
        parse_directives(b'a="' + b"x" * (MAX_TOKEN_BYTES - 3) + b'"')


@pytest.mark.parametrize(
    "token",
    [
        b"a" * MAX_TOKEN_BYTES,
        b" " * MAX_TOKEN_BYTES,
        b"," * MAX_TOKEN_BYTES,
        b"a" + b" " * (MAX_TOKEN_BYTES - 1),
        b"a=" + b" " * (MAX_TOKEN_BYTES - 2),
        b'a="' + b"\\" * (MAX_TOKEN_BYTES - 3),
        b'a="' + b"\\a" * (MAX_TOKEN_BYTES // 2 - 2),
        b" ,a-" * (MAX_TOKEN_BYTES // 4),
        b"a=b " * (MAX_TOKEN_BYTES // 4),
    ],
    ids=["letters", "blanks", "commas", "blanks behind", "no value", "escapes", "open", "mixed", "no commas"],
)
def test_hostile_sasl_token_is_parsed_quickly(token: bytes) -> None:
    started = time.process_time()
    for _ in range(20):
        with suppress(SaslFailure):
            parse_directives(token[:-1] + b"=")
    took = time.process_time() - started

    assert len(token) <= MAX_TOKEN_BYTES
    assert took < 0.5  # takes 2 ms; trying every possible split would take seconds


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (b'realm="a",nonce="b"', {"realm": "a", "nonce": "b"}),
        (b' realm = "a" , nonce = b ,', {"realm": "a", "nonce": "b"}),
        (rb'a="x\"y\\z"', {"a": 'x"y\\z'}),
        (b'a="b,c=d"', {"a": "b,c=d"}),
        (b"A-b=1", {"a-b": "1"}),
        (b"a=,b=1", {"a": "", "b": "1"}),
        (b'a=""', {"a": ""}),
        (b"a=1,A=2", {"a": "2"}),
        (b"a=1,b", {"a": "1"}),
        (b"", {}),
    ],
)
def test_sasl_directives_are_parsed(token: bytes, expected: dict[str, str]) -> None:
    assert parse_directives(token) == expected


@pytest.mark.parametrize("token", [b"qop=1,QOP=2", b"a=", b"=1", b'a="1', b'a="1"2', b"a=1 b=2", b"a b=1"])
def test_invalid_sasl_directives_are_refused(token: bytes) -> None:
    with pytest.raises(SaslFailure):
        parse_directives(token)
