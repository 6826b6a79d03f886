"""Valid distinguished names, on every supported Python; other tests cover the forms that Java writes."""

from __future__ import annotations

import time

import pytest
from support.distinguished_names import NAMES, OTHERS

from zoolet.protocol.distinguished_name import is_name, is_written_as_shown

HOSTILE = [
    "CN=" + " " * 50_000,
    "CN=a" + " " * 50_000 + "\\",
    'CN="' + "\\x" * 25_000,
    "1" + ".1" * 25_000,
    "CN=#" + "ab" * 25_000 + "g",
    "CN=" + "\\," * 25_000 + "<",
    " " * 50_000,
]


@pytest.mark.parametrize("text", [*NAMES, "CN=#ab , O=b"])  # Java also decodes the bytes, and rejects these
def test_these_are_names(text: str) -> None:
    assert is_name(text)


@pytest.mark.parametrize("text", OTHERS)
def test_invalid_names_are_not_recognized(text: str) -> None:
    assert not is_name(text)


@pytest.mark.parametrize("text", ["CN=a", "CN=a,O=b+OU=c", "CN=", "CN=a\\ ", "CN=\\ a", "1.2.3=#0a"])
def test_these_are_written_as_they_are_shown(text: str) -> None:
    assert is_written_as_shown(text)


@pytest.mark.parametrize(
    "text", ["", "CN=a ", "CN= a", "cn=a", "CN=a, O=b", "CN=a;O=b", "CN=a,", 'CN="a"', "S=a", "OID.1.2=#00"]
)
def test_these_are_written_in_another_form(text: str) -> None:
    assert not is_written_as_shown(text)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_name_is_read_in_linear_time(text: str) -> None:
    started = time.process_time()

    is_name(text)
    is_written_as_shown(text)

    assert time.process_time() - started < 0.5  # quadratic parsing would take minutes
