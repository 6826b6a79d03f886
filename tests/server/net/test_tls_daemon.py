"""TLS in a daemon started by a user: clients, ready lines, and errors at startup."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from support.command import zoolet
from support.daemon import running_daemon, startup_error
from support.embedded import ask
from support.tls_clients import AUTHORITY_OPTIONS, CERTIFICATE_OPTIONS, FILES, client_context
from support.waiting import DEADLINE_S

from zoolet.client import AuthFailedError, Client, ConnectionLossError, NoAuthError, acl
from zoolet.protocol.acl import ACL, Id
from zoolet.protocol.errors import InvalidACLError, SessionClosedRequireAuthError
from zoolet.testing.run.certificates import Authority


@contextmanager
def daemon(*options: str) -> Iterator[int]:
    """Run a daemon; yield its TLS port."""
    with running_daemon("--port", "0", "--secure-port", "0", *options) as server:
        server.port()
        yield server.port()


# --- clients ---


async def test_zoolet_client_speaks_tls() -> None:
    with daemon(*CERTIFICATE_OPTIONS) as port:
        async with Client(f"127.0.0.1:{port}", tls=client_context()) as zk:
            await zk.create("/a", b"x" * 100_000)
            assert (await zk.get("/a"))[0] == b"x" * 100_000


def test_kazoo_speaks_tls() -> None:
    with daemon(*CERTIFICATE_OPTIONS) as port:
        zk = KazooClient(f"127.0.0.1:{port}", use_ssl=True, ca=str(FILES / "ca.pem"), verify_certs=True)
        zk.start(5)
        assert zk.create("/a", b"v") == "/a"
        zk.stop()
        zk.close()


async def test_trust_store_makes_client_certificate_mandatory() -> None:
    with daemon(*CERTIFICATE_OPTIONS, *AUTHORITY_OPTIONS) as port:
        async with Client(f"127.0.0.1:{port}", tls=client_context(certificate=True)) as zk:
            assert await zk.children("/") == ["zookeeper"]

        with pytest.raises(ConnectionLossError, match="requires a different certificate"):
            await Client(f"127.0.0.1:{port}", 0.5, tls=client_context()).start()


async def test_subject_of_client_certificate_is_x509_identity() -> None:
    with daemon(*CERTIFICATE_OPTIONS, *AUTHORITY_OPTIONS, "-Dzookeeper.ssl.clientAuth=want") as port:
        hosts = f"127.0.0.1:{port}"
        async with (
            Client(hosts, tls=client_context(certificate=True)) as known,
            Client(hosts, tls=client_context()) as other,
        ):
            shown = [(identity.scheme, identity.user) for identity in await known.who_am_i()]
            await known.create("/mine", b"", acl=acl.x509("CN=client"))
            await known.create("/creator", b"", acl=acl.CREATOR_ALL)

            assert ("x509", "CN=client") in shown
            assert await known.get("/mine")
            assert (await known.get_acl("/creator"))[0] == acl.x509("CN=client")
            for path in ("/mine", "/creator"):
                with pytest.raises(NoAuthError):
                    await other.get(path)
            with pytest.raises(InvalidACLError):
                await known.create("/no", b"", acl=(ACL(31, Id("x509", "client")),))
            await known.add_auth("x509", b"")
            with pytest.raises(AuthFailedError):
                await other.add_auth("x509", b"")


async def test_certificate_without_subject_gives_no_identity(authority: Authority) -> None:
    nameless, named = authority.issue(""), authority.issue("somebody")
    server = authority.issue("server")
    with daemon("--tls-cert", str(server), "--tls-ca", str(authority.path)) as port:
        for path, shown in ((nameless, set()), (named, {"CN=somebody"})):
            tls = client_context(authority.path)
            tls.load_cert_chain(path)
            async with Client(f"127.0.0.1:{port}", tls=tls) as zk:
                assert {who.user for who in await zk.who_am_i() if who.scheme == "x509"} == shown


async def test_certificate_of_super_user_passes_all_acls() -> None:
    options = ("-Dzookeeper.ssl.clientAuth=want", "-Dzookeeper.X509AuthenticationProvider.superUser=CN=client")
    with daemon(*CERTIFICATE_OPTIONS, *AUTHORITY_OPTIONS, *options) as port:
        hosts = f"127.0.0.1:{port}"
        async with (
            Client(hosts, tls=client_context(certificate=True)) as known,
            Client(hosts, tls=client_context()) as other,
        ):
            await other.create("/theirs", b"theirs", acl=acl.x509("CN=somebody else"))

            assert (await known.get("/theirs"))[0] == b"theirs"
            with pytest.raises(NoAuthError):
                await other.get("/theirs")


async def test_enforced_x509_refuses_client_without_certificate() -> None:
    options = ("-Dzookeeper.enforce.auth.enabled=true", "-Dzookeeper.enforce.auth.schemes=x509")
    with daemon(*CERTIFICATE_OPTIONS, *AUTHORITY_OPTIONS, "-Dzookeeper.ssl.clientAuth=want", *options) as port:
        hosts = f"127.0.0.1:{port}"
        async with Client(hosts, tls=client_context(certificate=True)) as known:
            assert await known.exists("/")
        async with Client(hosts, tls=client_context()) as other:
            with pytest.raises(SessionClosedRequireAuthError):
                await other.exists("/")


async def test_client_refuses_server_with_untrusted_certificate() -> None:
    with daemon(*CERTIFICATE_OPTIONS) as port:
        with pytest.raises(ConnectionLossError, match="certificate"):
            await Client(f"127.0.0.1:{port}", 0.5, tls=ssl.create_default_context()).start()


async def test_plain_text_at_tls_port_gets_no_answer() -> None:
    with daemon(*CERTIFICATE_OPTIONS) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"ruok")
        writer.write_eof()
        assert b"imok" not in await reader.read()
        writer.close()


# --- ready lines ---


@pytest.mark.slow
def test_ready_line_for_tls_follows_plain_ready_line() -> None:
    with running_daemon("--port", "0", "--secure-port", "0", *CERTIFICATE_OPTIONS) as server:
        lines = [server.read_line(1), server.read_line(1)]

    assert re.fullmatch(r"zoolet ready on 127\.0\.0\.1:[1-9]\d*", lines[0])
    assert re.fullmatch(r"zoolet ready for TLS on 127\.0\.0\.1:[1-9]\d*", lines[1])


@pytest.mark.slow
def test_all_listen_addresses_share_one_port() -> None:
    options = ("--host", "127.0.0.1, [::1]", "--port", "0", "--secure-port", "0", *CERTIFICATE_OPTIONS)
    with running_daemon(*options) as server:
        lines = [server.read_line(1) for _ in range(4)]
        ports = [int(line.rpartition(":")[2]) for line in lines]
        for address in ("127.0.0.1", "::1"):
            assert ask(ports[0], b"srvr", address).startswith(b"Zookeeper version")
            with socket.create_connection((address, ports[2]), DEADLINE_S) as plain:
                client_context().wrap_socket(plain, server_hostname="127.0.0.1").close()

    assert ports[0] == ports[1] != ports[2] == ports[3]
    assert [line.rpartition(":")[0] for line in lines] == [
        "zoolet ready on 127.0.0.1",
        "zoolet ready on [::1]",
        "zoolet ready for TLS on 127.0.0.1",
        "zoolet ready for TLS on [::1]",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("hosts", ["127.0.0.1,0.0.0.0", "127.0.0.1,127.0.0.2,0.0.0.0"])
def test_overlapping_listen_addresses_are_refused(hosts: str) -> None:
    done = zoolet("serve", "--host", hosts, "--port", "0")

    assert done.returncode == 1
    assert done.stderr.startswith("zoolet serve: cannot listen on 127.0.0.1:0, ")
    assert done.stderr.endswith(": address already in use\n")


@pytest.mark.slow
def test_ready_line_for_tls_is_absent_without_tls() -> None:
    with running_daemon("--port", "0") as server:
        server.port()
        server.process.terminate()

        assert server.read_line(1) == ""


def listening_ports(pid: int) -> set[int]:
    """Return the TCP ports that a process listens on."""
    inodes = {os.readlink(entry).partition("[")[2].rstrip("]") for entry in Path(f"/proc/{pid}/fd").iterdir()}
    rows = [
        row.split()
        for name in ("tcp", "tcp6")
        if (table := Path(f"/proc/{pid}/net/{name}")).exists()
        for row in table.read_text().splitlines()[1:]
    ]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in inodes}


@pytest.mark.slow
def test_secure_port_alone_is_only_listening_port(tmp_path: Path, authority: Authority) -> None:
    certificate = authority.issue("server")
    (tmp_path / "zoo.cfg").write_text(f"secureClientPort=0\nssl.keyStore.location={certificate}\n")
    with running_daemon(str(tmp_path / "zoo.cfg")) as server:
        line = server.read_line(1)
        listening = listening_ports(server.process.pid)

    assert line.startswith("zoolet ready for TLS on ")
    assert listening == {int(line.rpartition(":")[2])}


@pytest.mark.slow
def test_host_option_applies_to_file_without_tls(tmp_path: Path) -> None:
    (tmp_path / "zoo.cfg").write_text("clientPort=0\n")

    with running_daemon(str(tmp_path / "zoo.cfg"), "--host", "127.0.0.1") as server:
        assert server.read_line(1).startswith("zoolet ready on 127.0.0.1:")


@pytest.mark.slow
@pytest.mark.parametrize("option", ["-Dzookeeper.secureClientPort=0", "-DsecureClientPort=0"])
def test_host_option_applies_to_secure_port_property(option: str) -> None:
    with running_daemon("--host", "127.0.0.1", option, *CERTIFICATE_OPTIONS) as server:
        assert server.read_line(1).startswith("zoolet ready for TLS on 127.0.0.1:")


@pytest.mark.slow
def test_tls_listens_on_configured_address(tmp_path: Path, authority: Authority) -> None:
    certificate = authority.issue("server")
    (tmp_path / "zoo.cfg").write_text(
        f"secureClientPort=0\nsecureClientPortAddress=127.0.0.5\nssl.keyStore.location={certificate}\n"
    )

    with running_daemon(str(tmp_path / "zoo.cfg")) as server:
        assert server.read_line(1).startswith("zoolet ready for TLS on 127.0.0.5:")


# --- errors at startup ---


def test_occupied_secure_port_is_reported_in_one_line() -> None:
    with daemon(*CERTIFICATE_OPTIONS) as port:
        done = zoolet("serve", "--port", "0", "--secure-port", port, *CERTIFICATE_OPTIONS)

    assert done.returncode == 1
    assert done.stderr == f"zoolet serve: cannot listen on 127.0.0.1:{port}: address already in use\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--secure-port", "0"), "--secure-port requires --tls-cert\n"),
        (("--secure-port", "0", "--tls-cert", "/nowhere.pem"), "cannot use /nowhere.pem for TLS: no such file"),
        (("--secure-port", "0", "--tls-cert", str(FILES / "ca.pem")), "ca.pem for TLS"),
        (("--secure-port", "0", "--tls-cert", "/key.jks"), "cannot use /key.jks for TLS: no such file"),
        (("--secure-port", "0", "--tls-cert", "/key.bcfks"), "BCFKS cannot be read"),
        (CERTIFICATE_OPTIONS, "--tls-cert requires --secure-port"),
        (AUTHORITY_OPTIONS, "--tls-ca requires --secure-port"),
        (
            ("--secure-port", "0", *CERTIFICATE_OPTIONS, "-Dzookeeper.ssl.clientAuth=need"),
            "requires ssl.trustStore.location",
        ),
        (
            ("--secure-port", "0", *CERTIFICATE_OPTIONS, "-Dzookeeper.ssl.clientAuth=want"),
            "requires ssl.trustStore.location",
        ),
        (("-Dzookeeper.ssl.crl=true",), "-Dzookeeper.ssl.crl=true is not supported"),
        (("-Dzookeeper.ssl.ocsp=true",), "-Dzookeeper.ssl.ocsp=true is not supported"),
        (("-Dzookeeper.client.portUnification=true",), "-Dzookeeper.client.portUnification=true is not supported"),
        (("-Dzookeeper.X509AuthenticationProvider.superUser=CN=x",), "superUser requires ssl.trustStore.location"),
        (("-Dzookeeper.X509AuthenticationProvider.superUser=x",), "superUser must be a distinguished name"),
        (("-Dzookeeper.X509AuthenticationProvider.superUser=CN=x, O=y",), "superUser must be a distinguished name"),
        (
            ("-Dzookeeper.X509AuthenticationProvider.superuser=CN=x",),
            "did you mean X509AuthenticationProvider.superUser?",
        ),
        (("-Dzookeeper.enforce.auth.enabled=ture",), "enforce.auth.enabled must be true or false, not 'ture'"),
        (("-Dzookeeper.X509AuthenticationProvider.clientCertIdType=SAN",), "clientCertIdType=SAN is not supported"),
        (("-Dzookeeper.authProvider.1=com.example.Mine",), "authProvider.1=com.example.Mine is not supported"),
        (("--secure-port", "0", *CERTIFICATE_OPTIONS, "-Dzookeeper.ssl.protocol=TLSv1.1"), "TLSv1.2, TLSv1.3 or both"),
        (
            ("--secure-port", "0", *CERTIFICATE_OPTIONS, "-Dzookeeper.ssl.ciphersuites=TLS_MADE_UP"),
            "TLS_MADE_UP is unknown",
        ),
        (("--secure-port", "0", *CERTIFICATE_OPTIONS, "--tls-ca", "/nowhere.pem"), "cannot use /nowhere.pem for TLS"),
        (
            ("--secure-port", "0", *CERTIFICATE_OPTIONS, "--tls-ca", str(FILES / "server-key.pem")),
            "server-key.pem for TLS",
        ),
    ],
)
def test_invalid_tls_options_exit_2_with_one_line(options: tuple[str, ...], reason: str) -> None:
    assert reason in startup_error("--port", "0", *options)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["-Dzookeeper.secureClientPort=0", "-Dzookeeper.ssl.clientAuth=need"])
def test_zoolet_run_refuses_tls_options(option: str) -> None:
    store = (
        f"-Dzookeeper.ssl.keyStore.location={FILES / 'server.pem'}",
        f"-Dzookeeper.ssl.keyStore.key.location={FILES / 'server-key.pem'}",
    )
    done = zoolet("run", option, *store, "--", "echo", "served in plain text")

    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.slow
def test_warning_of_unknown_key_names_nearest(tmp_path: Path) -> None:
    (tmp_path / "zoo.cfg").write_text("clientPort=0\nclientPortAddress=127.0.0.1\nmaxClientCnxn=1\n")

    with running_daemon(str(tmp_path / "zoo.cfg")) as server:
        server.port()

        assert "maxClientCnxn; did you mean maxClientCnxns?" in server.log_until("unknown")
