"""Java key stores and trust stores."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import sys
from pathlib import Path

import pytest
from support.daemon import running_daemon, startup_error
from support.key_stores import KeyStores, needs_keytool
from support.tls_clients import FILES, common_name, is_accepted
from support.tls_server import TlsServer

from zoolet.server.net import tls
from zoolet.server.net.tls_settings import TlsSettings
from zoolet.testing.run.certificates import Authority


@needs_keytool
@pytest.mark.slow  # keytool takes seconds
@pytest.mark.parametrize("name", ["server.jks", "server.p12", "renamed.jks"])
async def test_server_accepts_java_key_store(stores: KeyStores, name: str) -> None:
    async with TlsServer(TlsSettings(stores[name], key_store_password="changeit")) as port:
        certificate = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))

    assert certificate.startswith("-----BEGIN CERTIFICATE-----")


def test_error_for_jks_store_names_missing_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jks", None)
    store = tmp_path / "server.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed")

    with pytest.raises(tls.TlsError, match=r"server\.jks is a JKS key store; .* the extra 'jks'$"):
        tls.context(TlsSettings(str(store)))


@needs_keytool
@pytest.mark.slow
def test_pkcs12_store_named_jks_needs_no_extra(stores: KeyStores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jks", None)

    assert tls.context(TlsSettings(stores["renamed.jks"], key_store_password="changeit"))


@needs_keytool
@pytest.mark.slow
@pytest.mark.parametrize("name", ["server.jks", "server.p12", "renamed.jks"])
@pytest.mark.parametrize("password", ["wrong", "", None])
def test_error_for_wrong_password_names_key_store(stores: KeyStores, name: str, password: str | None) -> None:
    with pytest.raises(tls.TlsError, match=rf"cannot use .*{re.escape(name)} for TLS: \S") as caught:
        tls.context(TlsSettings(stores[name], key_store_password=password))

    assert "\n" not in str(caught.value)


@needs_keytool
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("two.jks", r"expected one key, .*\b2$"),
        ("two.p12", r"expected one key, .*\b2$"),
        ("locked.jks", r"cannot use .*locked\.jks for TLS"),  # the password of the key differs from the store's
        ("cut.jks", r"cut\.jks"),
        ("trust.jks", r"trust\.jks"),
        ("trust.p12", r"trust\.p12"),
    ],
)
def test_key_store_without_exactly_one_usable_key_is_refused(stores: KeyStores, name: str, message: str) -> None:
    with pytest.raises(tls.TlsError, match=message):
        tls.context(TlsSettings(stores[name], key_store_password="changeit"))


@needs_keytool
@pytest.mark.slow
def test_key_password_different_from_store_is_reported(stores: KeyStores) -> None:
    options = ("--secure-port", "0", "--tls-cert", stores["locked.jks"], "-Dzookeeper.ssl.keyStore.password=changeit")

    assert "locked.jks" in startup_error(*options)


@needs_keytool
@pytest.mark.slow
@pytest.mark.parametrize("name", ["trust.jks", "trust.p12"])
async def test_java_trust_store_verifies_client_certificates(
    stores: KeyStores, tmp_path: Path, authority: Authority, name: str
) -> None:
    settings = TlsSettings(
        str(FILES / "server.pem"),
        key=str(FILES / "server-key.pem"),
        trust_store=stores[name],
        trust_store_password="changeit",
        client_auth="need",
    )
    ours = tmp_path / "ours.pem"
    ours.write_bytes((FILES / "client.pem").read_bytes() + (FILES / "client-key.pem").read_bytes())
    certificates = [ours, authority.issue("stranger"), None]
    async with TlsServer(settings) as port:
        outcomes = [await asyncio.to_thread(is_accepted, port, FILES / "ca.pem", one) for one in certificates]

    assert outcomes == [True, False, False]


@needs_keytool
@pytest.mark.slow
@pytest.mark.parametrize("name", ["trust.jks", "trust.p12"])
def test_wrong_trust_store_password_is_refused(stores: KeyStores, name: str) -> None:
    settings = TlsSettings(
        str(FILES / "server.pem"),
        key=str(FILES / "server-key.pem"),
        trust_store=stores[name],
        trust_store_password="wrong",
        client_auth="need",
    )

    with pytest.raises(tls.TlsError, match=re.escape(name)):
        tls.context(settings)


@needs_keytool
@pytest.mark.slow
def test_key_store_password_is_read_from_file(stores: KeyStores, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("changeit\n")
    (tmp_path / "zoo.cfg").write_text(
        f"secureClientPort=0\nsecureClientPortAddress=127.0.0.1\nssl.keyStore.location={stores['server.p12']}\n"
        f"ssl.keyStore.passwordPath={tmp_path / 'password'}\n"
    )

    with running_daemon(str(tmp_path / "zoo.cfg")) as server:
        assert common_name(server.port(), Path(stores["server.pem"])) == "server"


@needs_keytool
@pytest.mark.slow
@pytest.mark.parametrize("name", ["server.jks", "server.p12"])
def test_private_key_of_key_store_is_not_left_on_disk(
    stores: KeyStores, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    tls.context(TlsSettings(stores[name], key_store_password="changeit"))

    assert list(tmp_path.iterdir()) == []


@needs_keytool
@pytest.mark.slow
def test_unusable_private_key_is_not_left_on_disk(
    stores: KeyStores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []

    def refuse(self: ssl.SSLContext, path: str, *ignored: object, **options: object) -> None:
        seen.append((os.stat(path).st_mode & 0o777, b"ENCRYPTED" in Path(path).read_bytes()))
        raise ssl.SSLError("no")

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", refuse)

    with pytest.raises(tls.TlsError):
        tls.context(TlsSettings(stores["server.p12"], key_store_password="changeit"))

    assert (seen, list(tmp_path.iterdir())) == ([(0o600, True)], [])
