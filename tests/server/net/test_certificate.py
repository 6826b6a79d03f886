"""The subject and expiry of certificates. Subjects are compared with Java's, which ZooKeeper uses as user names."""

from __future__ import annotations

import base64
import shutil
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID as Oid
from hypothesis import given
from hypothesis import strategies as st
from support.apache import skip_unless_required
from support.distinguished_names import INVALID_NAMES, NAMES

from zoolet.protocol.distinguished_name import is_canonical, is_name
from zoolet.server.net.certificate import subject, valid_until

PROGRAM = Path(__file__).parents[2] / "support" / "java" / "Names.java"
KEY = ec.generate_private_key(ec.SECP256R1())
ISSUER = x509.Name([x509.NameAttribute(Oid.COMMON_NAME, "authority")])
UNTIL = datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC)


def certificate(parts: list[list[tuple[x509.ObjectIdentifier, str]]], until: datetime = UNTIL) -> bytes:
    """Return a certificate, in DER."""
    name = x509.Name(
        [x509.RelativeDistinguishedName([x509.NameAttribute(*attribute) for attribute in part]) for part in parts]
    )
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(ISSUER).public_key(KEY.public_key())
    builder = builder.serial_number(1).not_valid_before(until - timedelta(days=1)).not_valid_after(until)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def java(kind: str, values: list[bytes]) -> list[str]:
    """Return Java's output for certificates or names. Skip the test if there is no JDK."""
    if not shutil.which("javac"):
        skip_unless_required("javac is missing (apt-get install default-jdk-headless)")
    lines = "".join(f"{kind}{base64.b64encode(value).decode()}\n" for value in values)
    command = ["java", "-XX:TieredStopAtLevel=1", str(PROGRAM)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    return [base64.b64decode(line).decode() for line in done.stdout.splitlines()]


WHOLE = certificate([[(Oid.COMMON_NAME, "a")]])
SUBJECTS = {
    "CN=broker-1,OU=Kafka,O=Example,C=DE": [
        [(Oid.COUNTRY_NAME, "DE")],
        [(Oid.ORGANIZATION_NAME, "Example")],
        [(Oid.ORGANIZATIONAL_UNIT_NAME, "Kafka")],
        [(Oid.COMMON_NAME, "broker-1")],
    ],
    "UID=u,DC=example,DC=org,STREET=S,ST=B,L=M": [
        [(Oid.LOCALITY_NAME, "M")],
        [(Oid.STATE_OR_PROVINCE_NAME, "B")],
        [(Oid.STREET_ADDRESS, "S")],
        [(Oid.DOMAIN_COMPONENT, "org")],
        [(Oid.DOMAIN_COMPONENT, "example")],
        [(Oid.USER_ID, "u")],
    ],
    "1.2.840.113549.1.9.1=#160b61406578616d706c652e6f,CN=a": [
        [(Oid.COMMON_NAME, "a")],
        [(Oid.EMAIL_ADDRESS, "a@example.o")],
    ],
    r"CN=a\,b\+c\"\\d\<\>\;\#\=": [[(Oid.COMMON_NAME, 'a,b+c"\\d<>;#=')]],
    r"CN=\ \ two spaces\ \ ": [[(Oid.COMMON_NAME, "  two spaces  ")]],
    "CN=Jörg 漢 😀": [[(Oid.COMMON_NAME, "Jörg 漢 😀")]],
    "": [],
}


@pytest.mark.parametrize("text", SUBJECTS)
def test_subject_is_escaped_and_most_specific_first(text: str) -> None:
    assert subject(certificate(SUBJECTS[text])) == text


def test_subjects_equal_those_of_java() -> None:
    certificates = [certificate(parts) for parts in SUBJECTS.values()]
    certificates.append(certificate([[(Oid.COMMON_NAME, "a"), (Oid.ORGANIZATION_NAME, "b"), (Oid.SURNAME, "s")]]))

    assert list(map(subject, certificates)) == java("c", certificates)


@pytest.mark.parametrize("text", [text for text in SUBJECTS if text])
def test_displayed_subjects_are_recognized_as_canonical(text: str) -> None:
    assert is_canonical(text)


def test_subject_names_are_recognized_as_in_java() -> None:
    verdicts = ["yes" if is_name(name) else "no" for name in [*NAMES, *INVALID_NAMES]]

    assert java("n", [name.encode() for name in [*NAMES, *INVALID_NAMES]]) == verdicts


HOSTILE = ["CN=" + " " * 10_000 + "<", "CN= a," * 2_000 + "<", "CN= ," * 3_000 + "<", 'CN="a"' + " " * 10_000 + "<"]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:8])
def test_ambiguous_subject_is_read_in_linear_time(text: str) -> None:
    started = time.process_time()

    assert not is_name(text)
    assert not is_canonical(text)
    assert time.process_time() - started < 0.1  # hours, if each space could match in two places


@pytest.mark.parametrize(("kind", "value"), [(_ASN1Type.BMPString, "root"), (_ASN1Type.T61String, "root")])
def test_subject_value_of_unsupported_type_is_shown_as_hex(kind: _ASN1Type, value: str) -> None:
    name = x509.Name([x509.NameAttribute(Oid.COMMON_NAME, value, kind)])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(ISSUER).public_key(KEY.public_key())
    builder = builder.serial_number(1).not_valid_before(UNTIL - timedelta(days=1)).not_valid_after(UNTIL)

    found = subject(builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER))

    assert found.startswith("CN=#")


@pytest.mark.parametrize("until", [UNTIL, datetime(2050, 1, 1, tzinfo=UTC), datetime(1999, 1, 2, 3, 4, 5, tzinfo=UTC)])
def test_valid_until_returns_end_of_certificate_validity(until: datetime) -> None:
    assert valid_until(certificate([], until)) == until


@given(st.integers(0, 400), st.integers(0, 255))
def test_damaged_certificate_is_read_or_refused(at: int, byte: int) -> None:
    whole = WHOLE
    changed = whole[:at] + bytes([byte]) + whole[at + 1 :]

    for broken in (whole[:at], changed):
        try:
            text = subject(broken)
        except ValueError:
            continue
        assert isinstance(text, str)
