"""SIGHUP: TLS files are reloaded for new connections, and open connections are kept."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import time
from pathlib import Path

import pytest
from support.daemon import running_daemon
from support.embedded import ask
from support.key_stores import KeyStores, needs_keytool
from support.tls_clients import common_name, is_accepted, shake_hands
from support.waiting import DEADLINE_S

from zoolet.testing.run.certificates import Authority


@pytest.mark.slow
def test_new_connections_get_certificate_after_sighup(authority: Authority) -> None:
    path, renewed = authority.issue("old"), authority.issue("new")
    with running_daemon("--secure-port", "0", "--tls-cert", str(path)) as server:
        port = server.port()
        before = common_name(port, authority.path)
        renewed.replace(path)
        unasked = common_name(port, authority.path)
        server.process.send_signal(signal.SIGHUP)
        server.log_until("SIGHUP")
        after = common_name(port, authority.path)

    assert (before, unasked, after) == ("old", "old", "new")


@pytest.mark.slow
def test_expiring_certificate_has_metric_and_warning(authority: Authority) -> None:
    path, renewed = authority.issue("old", days=3), authority.issue("new", days=30)
    options = ("--secure-port", "0", "--tls-cert", str(path), "-Dzookeeper.4lw.commands.whitelist=mntr")
    with running_daemon("--port", "0", *options) as server:
        port = server.port()
        warning = server.log_until("certificate in")
        soon = certificate_expiry(port)
        renewed.replace(path)
        server.process.send_signal(signal.SIGHUP)
        server.log_until("SIGHUP")
        later = certificate_expiry(port)

    assert f"{path} expires on " in warning
    assert 2 < (soon - time.time()) / 86_400 < 3
    assert 29 < (later - time.time()) / 86_400 < 30


def certificate_expiry(port: int) -> float:
    """Return the metric with the expiry time of the certificate."""
    found = re.search(r"^zk_zoolet_certificate_end_time_seconds\t(\S+)$", ask(port, b"mntr").decode(), re.MULTILINE)
    assert found is not None
    return float(found[1])


@pytest.mark.slow
def test_sighup_keeps_open_tls_connections(authority: Authority) -> None:
    path = authority.issue("server")
    with running_daemon("--secure-port", "0", "--tls-cert", str(path)) as server:
        connection, _ = shake_hands(server.port(), authority.path)
        server.process.send_signal(signal.SIGHUP)
        server.log_until("SIGHUP")
        with connection:
            connection.recv(1000)
            connection.sendall(b"\0\0\0\x08\xff\xff\xff\xfe\0\0\0\x0b")
            answer = connection.recv(1000)

    assert answer[4:8] == b"\xff\xff\xff\xfe"  # the xid of a ping


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_sighup_ignores_unreadable_certificate(authority: Authority, content: bytes | None) -> None:
    path = authority.issue("old")
    with running_daemon("--secure-port", "0", "--tls-cert", str(path)) as server:
        port = server.port()
        path.unlink() if content is None else path.write_bytes(content)
        server.process.send_signal(signal.SIGHUP)
        line = server.log_until("SIGHUP")

        assert common_name(port, authority.path) == "old"

    assert "ERROR" in line
    assert str(path) in line


@pytest.mark.slow
def test_sighup_loads_repaired_certificate(authority: Authority) -> None:
    path, renewed = authority.issue("old"), authority.issue("new")
    with running_daemon("--secure-port", "0", "--tls-cert", str(path)) as server:
        port = server.port()
        path.write_bytes(b"nonsense")
        server.process.send_signal(signal.SIGHUP)
        server.log_until("SIGHUP")
        renewed.replace(path)
        server.process.send_signal(signal.SIGHUP)
        server.log_until("SIGHUP")

        assert common_name(port, authority.path) == "new"


@pytest.mark.slow
def test_sighup_reloads_authorities(tmp_path: Path, authority: Authority) -> None:
    other = Authority(tmp_path, "other-authority")
    certificate, trusted, client = authority.issue("server"), tmp_path / "trusted.pem", other.issue("client")
    trusted.write_bytes(authority.path.read_bytes())
    with running_daemon("--secure-port", "0", "--tls-cert", str(certificate), "--tls-ca", str(trusted)) as server:
        port = server.port()
        before = is_accepted(port, authority.path, client)
        trusted.write_bytes(other.path.read_bytes())
        server.process.send_signal(signal.SIGHUP)
        server.log_until("SIGHUP")
        after = is_accepted(port, authority.path, client)

    assert (before, after) == (False, True)


@needs_keytool
@pytest.mark.slow
def test_sighup_keeps_old_certificate_if_key_is_locked(stores: KeyStores, tmp_path: Path) -> None:
    path = tmp_path / "server.jks"
    shutil.copy(stores["server.jks"], path)
    options = ("--secure-port", "0", "--tls-cert", str(path), "-Dzookeeper.ssl.keyStore.password=changeit")
    with running_daemon(*options) as server:
        server.port()
        shutil.copy(stores["locked.jks"], path)
        server.process.send_signal(signal.SIGHUP)

        assert "cannot reload the certificates, keeping the current ones" in server.log_until("SIGHUP")


@pytest.mark.slow
def test_sighup_reloads_password_file(tmp_path: Path, authority: Authority) -> None:
    path, password = tmp_path / "key.pem", tmp_path / "password"
    authority.issue("old", b"first").replace(path)
    password.write_text("first\n")
    options = ("--tls-cert", str(path), f"-Dzookeeper.ssl.keyStore.passwordPath={password}")
    with running_daemon("--secure-port", "0", *options) as server:
        port = server.port()
        authority.issue("new", b"second").replace(path)
        password.write_text("second\n")
        server.process.send_signal(signal.SIGHUP)
        server.log_until("SIGHUP")

        assert common_name(port, authority.path) == "new"


@pytest.mark.slow
def test_sighup_does_not_stop_daemon_without_tls() -> None:
    with running_daemon("--port", "0") as server:
        port = server.port()
        server.process.send_signal(signal.SIGHUP)
        server.log_until("SIGHUP")
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as connection:
            connection.sendall(b"srvr")

            assert connection.recv(9) == b"Zookeeper"
