"""Valid distinguished names, on every supported Python; other tests cover the forms that Java writes."""

from __future__ import annotations

import time

import pytest
from support.distinguished_names import INVALID_NAMES, NAMES

from zoolet.protocol.distinguished_name import is_canonical, is_name

HOSTILE_NAMES = [
    "CN=" + " " * 50_000,
    "CN=a" + " " * 50_000 + "\\",
    'CN="' + "\\x" * 25_000,
    "1" + ".1" * 25_000,
    "CN=#" + "ab" * 25_000 + "g",
    "CN=" + "\\," * 25_000 + "<",
    " " * 50_000,
]


@pytest.mark.parametrize("text", [*NAMES, "CN=#ab , O=b"])  # Java decodes the bytes after #, and rejects these
def test_valid_distinguished_name_is_recognized(text: str) -> None:
    assert is_name(text)


@pytest.mark.parametrize("text", INVALID_NAMES)
def test_invalid_distinguished_name_is_not_recognized(text: str) -> None:
    assert not is_name(text)


@pytest.mark.parametrize("text", ["CN=a", "CN=a,O=b+OU=c", "CN=", "CN=a\\ ", "CN=\\ a", "1.2.3=#0a"])
def test_canonical_distinguished_name_is_recognized(text: str) -> None:
    assert is_canonical(text)


@pytest.mark.parametrize(
    "text", ["", "CN=a ", "CN= a", "cn=a", "CN=a, O=b", "CN=a;O=b", "CN=a,", 'CN="a"', "S=a", "OID.1.2=#00"]
)
def test_non_canonical_distinguished_name_is_not_canonical(text: str) -> None:
    assert not is_canonical(text)


@pytest.mark.parametrize("text", HOSTILE_NAMES, ids=range(len(HOSTILE_NAMES)))
def test_hostile_distinguished_name_is_read_in_linear_time(text: str) -> None:
    started = time.process_time()

    is_name(text)
    is_canonical(text)

    assert time.process_time() - started < 0.5  # quadratic parsing would take minutes
