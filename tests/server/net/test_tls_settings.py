"""TLS settings: client certificates, versions, cipher suites, and PEM files."""

from __future__ import annotations

import asyncio
import re
import ssl
from pathlib import Path
from typing import Final

import pytest
from support.daemon import running_daemon
from support.tls_clients import is_accepted, shake_hands
from support.tls_server import TlsServer

from zoolet.server.net import tls
from zoolet.server.net.tls_settings import TlsSettings
from zoolet.testing.run.certificates import Authority

# --- client certificates ---


BOTH_VERSIONS: Final = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("version", BOTH_VERSIONS)
@pytest.mark.parametrize(
    ("demand", "let_in"),
    [("none", [True, True, True]), ("want", [True, True, False]), ("need", [False, True, False])],
)
async def test_client_auth_setting_decides_accepted_certificates(
    tmp_path: Path, authority: Authority, demand: str, let_in: list[bool], version: ssl.TLSVersion
) -> None:
    settings = TlsSettings(str(authority.issue("server")), trust_store=str(authority.path), client_auth=demand)
    ours, theirs = authority.issue("client"), Authority(tmp_path, "stranger").issue("their-client")
    async with TlsServer(settings) as port:
        outcomes = [
            await asyncio.to_thread(is_accepted, port, authority.path, certificate, version)
            for certificate in (None, ours, theirs)
        ]

    assert outcomes == let_in


@pytest.mark.slow
def test_authority_requires_client_certificate(authority: Authority) -> None:
    options = ("--tls-cert", str(authority.issue("server")), "--tls-ca", str(authority.path))
    with running_daemon("--secure-port", "0", *options) as server:
        port = server.port()
        outcomes = [is_accepted(port, authority.path), is_accepted(port, authority.path, authority.issue("client"))]

    assert outcomes == [False, True]


# --- versions and suites ---


@pytest.mark.parametrize("version", BOTH_VERSIONS)
@pytest.mark.parametrize("spoken", ["TLSv1.2", "TLSv1.3"])
async def test_only_enabled_tls_versions_are_accepted(
    authority: Authority, spoken: str, version: ssl.TLSVersion
) -> None:
    settings = TlsSettings(str(authority.issue("server")), protocols=frozenset({spoken}))
    async with TlsServer(settings) as port:
        outcome = await asyncio.to_thread(is_accepted, port, authority.path, None, version)

    assert outcome == (version.name == spoken.replace(".", "_"))


JAVA_NAME: Final = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
OPENSSL_NAME: Final = "ECDHE-ECDSA-AES256-GCM-SHA384"


@pytest.mark.parametrize("name", [JAVA_NAME, OPENSSL_NAME])
async def test_only_named_cipher_suites_are_offered(authority: Authority, name: str) -> None:
    settings = TlsSettings(str(authority.issue("server")), cipher_suites=(name,))
    async with TlsServer(settings) as port:
        connection, _ = await asyncio.to_thread(shake_hands, port, authority.path)
        with connection:
            cipher = connection.cipher()

    assert cipher is not None
    assert cipher[:2] == (OPENSSL_NAME, "TLSv1.2")


MODERN: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")


@pytest.mark.parametrize(
    ("suites", "versions"),
    [
        ((JAVA_NAME,), ("TLSv1_2", "TLSv1_2")),
        (MODERN, ("TLSv1_3", "TLSv1_3")),
        ((JAVA_NAME, *MODERN), ("TLSv1_2", "TLSv1_3")),
    ],
)
def test_cipher_suites_limit_tls_versions(
    authority: Authority, suites: tuple[str, ...], versions: tuple[str, str]
) -> None:
    made = tls.context(TlsSettings(str(authority.issue("server")), cipher_suites=suites))

    assert (made.minimum_version.name, made.maximum_version.name) == versions


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", "ECDHE-RSA-AES256-SHA"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA256", "AES256-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_cipher_suite_has_names_of_java_and_openssl(java: str, openssl: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    context.set_ciphers(tls.openssl_name(java))

    assert tls.openssl_name(java) == openssl
    assert openssl in [suite["name"] for suite in context.get_ciphers()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suites", "message"),
    [
        (("TLS_MADE_UP",), "TLS_MADE_UP is unknown"),
        ((JAVA_NAME, "TLS_ECDHE_RSA_WITH_ROT13_SHA"), "TLS_ECDHE_RSA_WITH_ROT13_SHA is unknown"),
        ((MODERN[0],), "can only be enabled together"),
        ((JAVA_NAME, *MODERN[1:]), f"add {MODERN[0]}"),
        (("ALL",), "ALL"),
        (("HIGH:aNULL",), "HIGH:aNULL"),
        (("aNULL@SECLEVEL=0",), "aNULL@SECLEVEL=0"),
        (("kECDHE",), "kECDHE"),
        ((f"{OPENSSL_NAME}:eNULL@SECLEVEL=0",), "eNULL"),
    ],
)
def test_unavailable_cipher_suites_are_refused(authority: Authority, suites: tuple[str, ...], message: str) -> None:
    with pytest.raises(tls.TlsError, match=re.escape(message)):
        tls.context(TlsSettings(str(authority.issue("server")), cipher_suites=suites))


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "suites"), [("TLSv1.3", (JAVA_NAME,)), ("TLSv1.2", MODERN)])
def test_cipher_suites_of_disabled_version_are_refused(
    authority: Authority, protocol: str, suites: tuple[str, ...]
) -> None:
    settings = TlsSettings(str(authority.issue("server")), protocols=frozenset({protocol}), cipher_suites=suites)

    with pytest.raises(tls.TlsError, match=r"ssl\.ciphersuites has no TLS 1\.\d suite"):
        tls.context(settings)


# --- PEM files ---


def test_key_of_pem_file_may_be_encrypted(authority: Authority) -> None:
    path = authority.issue("server", b"geheim")

    assert tls.context(TlsSettings(str(path), key_store_password="geheim"))


@pytest.mark.parametrize("password", [None, "", "wrong"])
def test_wrong_pem_password_raises_without_prompt(authority: Authority, password: str | None) -> None:
    path = authority.issue("server", b"geheim")

    with pytest.raises(tls.TlsError, match=re.escape(f"cannot use {path} for TLS: the key in {path} is encrypted")):
        tls.context(TlsSettings(str(path), key_store_password=password))


def test_truncated_pem_file_is_reported_as_truncated(authority: Authority) -> None:
    path = authority.issue("server")
    whole = path.read_bytes()
    path.write_bytes(
        whole[: whole.index(b"-----END CERTIFICATE-----")] + whole[whole.index(b"-----END CERTIFICATE-----") + 30 :]
    )

    with pytest.raises(tls.TlsError, match="or its key is truncated"):
        tls.context(TlsSettings(str(path)))


@pytest.mark.slow
def test_key_not_matching_certificate_is_refused(authority: Authority) -> None:
    mine, other = authority.issue("server"), authority.issue("other")

    with pytest.raises(tls.TlsError, match=r"cannot use .* does not match the certificate"):
        tls.context(TlsSettings(str(mine), key=str(other)))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "no such file or directory"),
        (b"no PEM", "contains no PEM certificate"),
        (b"", "contains no PEM certificate"),
    ],
)
def test_error_names_unusable_certificate_file(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "server.pem"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(tls.TlsError, match=f"{re.escape(str(path))}.*{problem}"):
        tls.context(TlsSettings(str(path)))


def test_certificate_chain_ends_with_its_earliest_expiry(authority: Authority) -> None:
    path, between = authority.issue("server", days=30), authority.issue("between", days=3)
    alone = tls.context(TlsSettings(str(path))).certificate_ends
    path.write_text(path.read_text() + between.read_text().partition("-----BEGIN PRIVATE")[0])

    chain = tls.context(TlsSettings(str(path))).certificate_ends

    assert round((alone - chain) / 86_400) == 27
