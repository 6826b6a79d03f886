"""TLS: the daemon's second listener, and the client's and kazoo's way to it."""

from __future__ import annotations

import asyncio
import os
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from kazoo.client import KazooClient
from support.certificates import Authority

from zoolet.client import Client, ConnectionLossError
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest
from zoolet.server.app import assemble
from zoolet.server.config import Config
from zoolet.server.net import tls
from zoolet.server.net.tls_settings import TlsSettings

FILES: Final = Path(__file__).parents[1] / "support" / "tls"
CERTIFICATE: Final = ("--tls-cert", str(FILES / "server.pem"), "--tls-key", str(FILES / "server-key.pem"))
AUTHORITY: Final = ("--tls-ca", str(FILES / "ca.pem"))


@contextmanager
def daemon(*options: str) -> Iterator[int]:
    """Return the TLS port of a daemon."""
    command = [sys.executable, "-m", "zoolet.server", "serve", "--port", "0", "--secure-port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            lines = [process.stdout.readline() for _ in range(2)]
            found = re.fullmatch(r"zoolet ready for TLS on 127\.0\.0\.1:(\d+)\n", lines[1])
            assert lines[0].startswith("zoolet ready on")
            assert found is not None, lines
            yield int(found[1])
        finally:
            process.terminate()
            process.communicate()


def trusting(*, certificate: bool = False) -> ssl.SSLContext:
    """Return a client's context."""
    context = ssl.create_default_context(cafile=str(FILES / "ca.pem"))
    if certificate:
        context.load_cert_chain(FILES / "client.pem", FILES / "client-key.pem")
    return context


async def test_a_client_speaks_tls() -> None:
    with daemon(*CERTIFICATE) as port:
        async with Client(f"127.0.0.1:{port}", tls=trusting()) as zk:
            await zk.create("/a", b"x" * 100_000)
            assert (await zk.get("/a"))[0] == b"x" * 100_000


def test_kazoo_speaks_tls() -> None:
    with daemon(*CERTIFICATE) as port:
        zk = KazooClient(f"127.0.0.1:{port}", use_ssl=True, ca=str(FILES / "ca.pem"), verify_certs=True)
        zk.start(5)
        assert zk.create("/a", b"v") == "/a"
        zk.stop()
        zk.close()


async def test_with_an_authority_a_client_must_show_a_certificate() -> None:
    with daemon(*CERTIFICATE, *AUTHORITY) as port:
        async with Client(f"127.0.0.1:{port}", tls=trusting(certificate=True)) as zk:
            assert await zk.children("/") == ["zookeeper"]

        with pytest.raises(ConnectionLossError):
            await Client(f"127.0.0.1:{port}", 0.5, tls=trusting()).start()


async def test_a_server_that_is_not_trusted_is_not_spoken_to() -> None:
    with daemon(*CERTIFICATE) as port:
        with pytest.raises(ConnectionLossError, match="certificate"):
            await Client(f"127.0.0.1:{port}", 0.5, tls=ssl.create_default_context()).start()


def test_a_secure_port_that_is_taken_is_said_in_one_line() -> None:
    with daemon(*CERTIFICATE) as port:
        command = [
            sys.executable,
            "-m",
            "zoolet.server",
            "serve",
            "--port",
            "0",
            "--secure-port",
            str(port),
            *CERTIFICATE,
        ]

        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)

    assert done.returncode == 1
    assert done.stderr == f"zoolet: cannot listen on 127.0.0.1:{port}: Address already in use\n"


async def test_plain_text_at_the_tls_port_gets_nothing() -> None:
    with daemon(*CERTIFICATE) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"ruok")
        writer.write_eof()
        assert b"imok" not in await reader.read()
        writer.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "secureClientPort needs ssl.keyStore.location"),
        (("--tls-cert", "/nowhere.pem"), "cannot use /nowhere.pem for TLS: No such file"),
        (("--tls-cert", str(FILES / "ca.pem")), "ca.pem for TLS"),
        (("--tls-cert", "/key.jks"), "cannot use /key.jks for TLS: No such file"),
        (("--tls-cert", "/key.bcfks"), "BCFKS cannot be read"),
    ],
)
def test_what_tls_lacks_is_said_in_one_line(options: tuple[str, ...], said: str) -> None:
    command = [sys.executable, "-m", "zoolet.server", "serve", "--port", "0", "--secure-port", "0", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)

    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


# --- a daemon with any options ---

DEADLINE_S: Final = 10.0  # only ever reached on failure
HELLO: Final = frame(ConnectRequest(timeout_ms=30_000).encode())


class Running:
    """A daemon that may have no plain port.

    Args:
        process: The daemon, its stdout and stderr unbuffered pipes.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._unread: dict[int, bytes] = {}

    def read_line(self, number: int) -> str:
        """Wait for a line of stdout (1) or stderr (2); empty at the end."""
        pipe = self.process.stdout if number == 1 else self.process.stderr
        assert pipe is not None
        text = self._unread.pop(number, b"")
        deadline = time.monotonic() + DEADLINE_S
        while b"\n" not in text:
            assert select.select([pipe], [], [], max(0, deadline - time.monotonic()))[0], f"no line; so far {text!r}"
            more = os.read(pipe.fileno(), 65_536)
            if not more:
                return text.decode()
            text += more
        line, _, self._unread[number] = text.partition(b"\n")
        return line.decode()

    def log_until(self, text: str) -> str:
        """Wait for a line of the log with this in it."""
        while text not in (line := self.read_line(2)):
            assert line, f"the log ended without {text!r}"
        return line

    def port(self) -> int:
        """Wait for the next ready line; return its port."""
        line = self.read_line(1)
        assert line.startswith("zoolet ready "), line
        return int(line.rpartition(":")[2])


@contextmanager
def running(*options: str) -> Iterator[Running]:
    """Run a daemon; it has to stop with exit code 0."""
    command = [sys.executable, "-m", "zoolet.server", "serve", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        try:
            yield Running(process)
        finally:
            process.terminate()
            process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0


def refused(*options: str) -> str:
    """Start a daemon that does not start; return the one line in which it says why."""
    command = [sys.executable, "-m", "zoolet.server", "serve", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    return done.stderr


def shake(
    port: int, authority: Path, certificate: Path | None = None, version: ssl.TLSVersion | None = None
) -> tuple[ssl.SSLSocket, bytes]:
    """Shake hands and open a session; return the connection, and the beginning of the answer (empty: it was closed).

    With TLS 1.3 a client learns only by the answer whether its certificate will do.
    """
    context = ssl.create_default_context(cafile=str(authority))
    if certificate is not None:
        context.load_cert_chain(certificate)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    plain = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
    secure = context.wrap_socket(plain, server_hostname="127.0.0.1")
    secure.sendall(HELLO)
    return secure, secure.recv(4)


def lets_in(port: int, authority: Path, certificate: Path | None = None, version: ssl.TLSVersion | None = None) -> bool:
    """Return whether a client gets a session."""
    try:
        connection, answer = shake(port, authority, certificate, version)
    except OSError:
        return False
    connection.close()
    return len(answer) == 4


def common_name(port: int, authority: Path) -> str:
    """Return whose certificate a server shows."""
    connection, _ = shake(port, authority)
    with connection:
        subject = connection.getpeercert() or {}
        return dict(pair[0] for pair in subject["subject"])["commonName"]  # type: ignore[misc]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


# --- the ready lines ---


@pytest.mark.slow
def test_the_ready_line_for_tls_follows_that_of_the_plain_port() -> None:
    with running("--port", "0", "--secure-port", "0", *CERTIFICATE) as server:
        lines = [server.read_line(1), server.read_line(1)]

    assert re.fullmatch(r"zoolet ready on 127\.0\.0\.1:[1-9]\d*", lines[0])
    assert re.fullmatch(r"zoolet ready for TLS on 127\.0\.0\.1:[1-9]\d*", lines[1])


@pytest.mark.slow
def test_without_tls_there_is_no_line_for_it() -> None:
    with running("--port", "0") as server:
        server.port()
        server.process.terminate()

        assert server.read_line(1) == ""


@pytest.mark.slow
def test_a_secure_port_alone_is_the_only_one_that_listens(tmp_path: Path, authority: Authority) -> None:
    certificate = authority.issue("server")
    (tmp_path / "zoo.cfg").write_text(f"secureClientPort=0\nssl.keyStore.location={certificate}\n")
    with running(str(tmp_path / "zoo.cfg")) as server:
        line = server.read_line(1)
        listening = listening_ports(server.process.pid)

    assert line.startswith("zoolet ready for TLS on ")
    assert listening == {int(line.rpartition(":")[2])}


def listening_ports(pid: int) -> set[int]:
    """Return the TCP ports on which a process listens."""
    inodes = {os.readlink(entry).partition("[")[2].rstrip("]") for entry in Path(f"/proc/{pid}/fd").iterdir()}
    rows = [
        row.split()
        for name in ("tcp", "tcp6")
        if (table := Path(f"/proc/{pid}/net/{name}")).exists()
        for row in table.read_text().splitlines()[1:]
    ]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in inodes}


@pytest.mark.slow
def test_a_host_on_the_command_line_goes_for_a_file_without_tls(tmp_path: Path) -> None:
    (tmp_path / "zoo.cfg").write_text("clientPort=0\n")

    with running(str(tmp_path / "zoo.cfg"), "--host", "127.0.0.1") as server:
        assert server.read_line(1).startswith("zoolet ready on 127.0.0.1:")


@pytest.mark.slow
@pytest.mark.parametrize("option", ["-Dzookeeper.secureClientPort=0", "-DsecureClientPort=0"])
def test_a_host_on_the_command_line_goes_for_a_secure_port_that_is_a_property(option: str) -> None:
    with running("--host", "127.0.0.1", option, *CERTIFICATE) as server:
        assert server.read_line(1).startswith("zoolet ready for TLS on 127.0.0.1:")


@pytest.mark.slow
def test_tls_listens_where_it_is_told(tmp_path: Path, authority: Authority) -> None:
    certificate = authority.issue("server")
    (tmp_path / "zoo.cfg").write_text(
        f"secureClientPort=0\nsecureClientPortAddress=127.0.0.5\nssl.keyStore.location={certificate}\n"
    )

    with running(str(tmp_path / "zoo.cfg")) as server:
        assert server.read_line(1).startswith("zoolet ready for TLS on 127.0.0.5:")


# --- what is refused at the start ---


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (CERTIFICATE, "ssl.keyStore.location needs secureClientPort (--secure-port)"),
        (AUTHORITY, "ssl.trustStore.location needs secureClientPort"),
        (("--secure-port", "0", *CERTIFICATE, "-Dzookeeper.ssl.clientAuth=need"), "needs ssl.trustStore.location"),
        (("--secure-port", "0", *CERTIFICATE, "-Dzookeeper.ssl.clientAuth=want"), "needs ssl.trustStore.location"),
        (("-Dzookeeper.ssl.crl=true",), "ssl.crl=true cannot be obeyed"),
        (("-Dzookeeper.ssl.ocsp=true",), "ssl.ocsp=true cannot be obeyed"),
        (("-Dzookeeper.audit.enable=true",), "audit.enable=true cannot be obeyed"),
        (("-Dzookeeper.client.portUnification=true",), "client.portUnification=true cannot be obeyed"),
        (("-Dzookeeper.X509AuthenticationProvider.superUser=CN=x",), "X509AuthenticationProvider.superUser=CN=x"),
        (("-Dzookeeper.authProvider.1=com.example.Mine",), "authProvider.1=com.example.Mine cannot be obeyed"),
        (("--secure-port", "0", *CERTIFICATE, "-Dzookeeper.ssl.protocol=TLSv1.1"), "TLSv1.2, TLSv1.3 or both"),
        (("--secure-port", "0", *CERTIFICATE, "-Dzookeeper.ssl.ciphersuites=TLS_MADE_UP"), "TLS_MADE_UP is unknown"),
        (("--secure-port", "0", *CERTIFICATE, "--tls-ca", "/nowhere.pem"), "cannot use /nowhere.pem for TLS"),
        (("--secure-port", "0", *CERTIFICATE, "--tls-ca", str(FILES / "server-key.pem")), "server-key.pem for TLS"),
    ],
)
def test_security_that_cannot_be_had_is_said_in_one_line_and_exit_code_2(options: tuple[str, ...], said: str) -> None:
    assert said in refused("--port", "0", *options)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["-Dzookeeper.secureClientPort=0", "-Dzookeeper.ssl.clientAuth=need"])
def test_zoolet_run_does_not_pass_over_what_it_is_told_of_tls(option: str) -> None:
    store = (
        f"-Dzookeeper.ssl.keyStore.location={FILES / 'server.pem'}",
        f"-Dzookeeper.ssl.keyStore.key.location={FILES / 'server-key.pem'}",
    )
    command = [sys.executable, "-m", "zoolet.server", "run", option, *store, "--", "echo", "served in plain text"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)

    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.slow
def test_an_unknown_key_is_warned_of_with_the_nearest_known_one(tmp_path: Path) -> None:
    (tmp_path / "zoo.cfg").write_text("clientPort=0\nclientPortAddress=127.0.0.1\nmaxClientCnxn=1\n")

    with running(str(tmp_path / "zoo.cfg")) as server:
        server.port()

        assert "maxClientCnxn; did you mean maxClientCnxns?" in server.log_until("unknown")


# --- whose certificates are asked for ---

BOTH_VERSIONS: Final = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("version", BOTH_VERSIONS)
@pytest.mark.parametrize(
    ("demand", "let_in"),
    [("none", [True, True, True]), ("want", [True, True, False]), ("need", [False, True, False])],
)
async def test_a_demand_for_certificates_is_kept(
    tmp_path: Path, authority: Authority, demand: str, let_in: list[bool], version: ssl.TLSVersion
) -> None:
    settings = TlsSettings(str(authority.issue("server")), trust_store=str(authority.path), client_auth=demand)
    ours, theirs = authority.issue("client"), Authority(tmp_path, "stranger").issue("their-client")
    async with Served(settings) as port:
        outcomes = [
            await asyncio.to_thread(lets_in, port, authority.path, certificate, version)
            for certificate in (None, ours, theirs)
        ]

    assert outcomes == let_in


class Served:
    """A TLS port in this loop that answers every connection with a session.

    Args:
        settings: What it is told of TLS.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings

    async def __aenter__(self) -> int:
        self._listener = assemble(Config())
        return await self._listener.start_secure("127.0.0.1", 0, tls.context(self._settings))

    async def __aexit__(self, *ignored: object) -> None:
        await self._listener.stop(patient=False)


@pytest.mark.slow
def test_with_an_authority_a_certificate_is_needed_by_default(authority: Authority) -> None:
    options = ("--tls-cert", str(authority.issue("server")), "--tls-ca", str(authority.path))
    with running("--secure-port", "0", *options) as server:
        port = server.port()
        outcomes = [lets_in(port, authority.path), lets_in(port, authority.path, authority.issue("client"))]

    assert outcomes == [False, True]


# --- versions and suites ---


@pytest.mark.parametrize("version", BOTH_VERSIONS)
@pytest.mark.parametrize("spoken", ["TLSv1.2", "TLSv1.3"])
async def test_only_the_enabled_versions_are_spoken(authority: Authority, spoken: str, version: ssl.TLSVersion) -> None:
    settings = TlsSettings(str(authority.issue("server")), protocols=frozenset({spoken}))
    async with Served(settings) as port:
        outcome = await asyncio.to_thread(lets_in, port, authority.path, None, version)

    assert outcome == (version.name == spoken.replace(".", "_"))


JAVA_NAME: Final = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
OPENSSL_NAME: Final = "ECDHE-ECDSA-AES256-GCM-SHA384"
MODERN: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")


@pytest.mark.parametrize("name", [JAVA_NAME, OPENSSL_NAME])
async def test_only_the_suites_that_are_named_are_offered(authority: Authority, name: str) -> None:
    settings = TlsSettings(str(authority.issue("server")), cipher_suites=(name,))
    async with Served(settings) as port:
        connection, _ = await asyncio.to_thread(shake, port, authority.path)
        with connection:
            cipher = connection.cipher()

    assert cipher is not None
    assert cipher[:2] == (OPENSSL_NAME, "TLSv1.2")


@pytest.mark.parametrize(
    ("suites", "versions"),
    [
        ((JAVA_NAME,), ("TLSv1_2", "TLSv1_2")),
        (MODERN, ("TLSv1_3", "TLSv1_3")),
        ((JAVA_NAME, *MODERN), ("TLSv1_2", "TLSv1_3")),
    ],
)
def test_the_suites_decide_on_the_versions_too(
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
def test_a_suite_has_a_name_in_java_and_one_in_openssl(java: str, openssl: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    context.set_ciphers(tls.openssl_name(java))

    assert tls.openssl_name(java) == openssl
    assert openssl in [suite["name"] for suite in context.get_ciphers()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suites", "said"),
    [
        (("TLS_MADE_UP",), "TLS_MADE_UP is unknown"),
        ((JAVA_NAME, "TLS_ECDHE_RSA_WITH_ROT13_SHA"), "TLS_ECDHE_RSA_WITH_ROT13_SHA is unknown"),
        ((MODERN[0],), "can only be offered together"),
        ((JAVA_NAME, *MODERN[1:]), f"add {MODERN[0]}"),
        (("ALL",), "ALL"),
        (("HIGH:aNULL",), "HIGH:aNULL"),
        (("aNULL@SECLEVEL=0",), "aNULL@SECLEVEL=0"),
        (("kECDHE",), "kECDHE"),
        ((f"{OPENSSL_NAME}:eNULL@SECLEVEL=0",), "eNULL"),
    ],
)
def test_suites_that_cannot_be_had_are_refused(authority: Authority, suites: tuple[str, ...], said: str) -> None:
    with pytest.raises(tls.TlsError, match=re.escape(said)):
        tls.context(TlsSettings(str(authority.issue("server")), cipher_suites=suites))


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "suites"), [("TLSv1.3", (JAVA_NAME,)), ("TLSv1.2", MODERN)])
def test_suites_of_a_version_that_is_not_enabled_are_refused(
    authority: Authority, protocol: str, suites: tuple[str, ...]
) -> None:
    settings = TlsSettings(str(authority.issue("server")), protocols=frozenset({protocol}), cipher_suites=suites)

    with pytest.raises(tls.TlsError, match=r"ssl\.ciphersuites names no suite"):
        tls.context(settings)


# --- PEM files ---


def test_the_key_of_a_pem_file_may_be_locked(authority: Authority) -> None:
    path = authority.issue("server", b"geheim")

    assert tls.context(TlsSettings(str(path), key_store_password="geheim"))


@pytest.mark.parametrize("password", [None, "", "wrong"])
def test_a_wrong_password_of_a_pem_file_is_refused_and_nobody_is_asked(
    authority: Authority, password: str | None
) -> None:
    path = authority.issue("server", b"geheim")

    with pytest.raises(tls.TlsError, match=re.escape(f"cannot use {path} for TLS")):
        tls.context(TlsSettings(str(path), key_store_password=password))


@pytest.mark.slow
def test_the_key_of_another_certificate_is_refused(authority: Authority) -> None:
    mine, other = authority.issue("server"), authority.issue("other")

    with pytest.raises(tls.TlsError, match="cannot use"):
        tls.context(TlsSettings(str(mine), key=str(other)))


# --- Java key stores ---

needs_keytool = pytest.mark.skipif(shutil.which("keytool") is None, reason="keytool is missing (default-jre-headless)")


class Stores:
    """Key stores made by Java's own tool.

    Args:
        folder: Where they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pair("server.jks", "JKS")
        self.pair("server.p12", "PKCS12")
        shutil.copy(folder / "server.p12", folder / "renamed.jks")
        shutil.copy(folder / "server.jks", folder / "two.jks")
        shutil.copy(folder / "server.p12", folder / "two.p12")
        self.pair("two.jks", "JKS", alias="second")
        self.pair("two.p12", "PKCS12", alias="second")
        self.pair("locked.jks", "JKS", "-keypass", "another-password")
        (folder / "cut.jks").write_bytes((folder / "server.jks").read_bytes()[:-40])
        self.tool("-exportcert", "-alias", "server", "-keystore", "server.p12", "-rfc", "-file", "server.pem")
        for name, kind in (("trust.jks", "JKS"), ("trust.p12", "PKCS12")):
            options = ("-keystore", name, "-storetype", kind)
            self.tool("-importcert", "-noprompt", "-alias", "ca", "-file", str(FILES / "ca.pem"), *options)

    def pair(self, name: str, kind: str, *more: str, alias: str = "server") -> None:
        """Make a key with a certificate for 127.0.0.1."""
        what = ("-genkeypair", "-alias", alias, "-keyalg", "EC", "-dname", f"CN={alias}", "-ext", "san=ip:127.0.0.1")
        self.tool(*what, "-keystore", name, "-storetype", kind, *more)

    def tool(self, *options: str) -> None:
        """Run keytool."""
        command = ["keytool", *options, "-storepass", "changeit"]
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True, timeout=60)

    def __getitem__(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


@needs_keytool
@pytest.mark.slow  # keytool takes seconds
@pytest.mark.parametrize("name", ["server.jks", "server.p12", "renamed.jks"])
async def test_a_java_key_store_serves(stores: Stores, name: str) -> None:
    async with Served(TlsSettings(stores[name], key_store_password="changeit")) as port:
        certificate = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))

    assert certificate.startswith("-----BEGIN CERTIFICATE-----")


@needs_keytool
@pytest.mark.slow
@pytest.mark.parametrize("name", ["server.jks", "server.p12", "renamed.jks"])
@pytest.mark.parametrize("password", ["wrong", "", None])
def test_a_wrong_password_of_a_java_key_store_is_refused_by_name(
    stores: Stores, name: str, password: str | None
) -> None:
    with pytest.raises(tls.TlsError, match=rf"cannot use .*{re.escape(name)} for TLS: \S") as caught:
        tls.context(TlsSettings(stores[name], key_store_password=password))

    assert "\n" not in str(caught.value)


@needs_keytool
@pytest.mark.slow
@pytest.mark.parametrize("name", ["two.jks", "two.p12"])
def test_a_key_store_with_two_keys_is_refused(stores: Stores, name: str) -> None:
    with pytest.raises(tls.TlsError, match="2 keys"):
        tls.context(TlsSettings(stores[name], key_store_password="changeit"))


@needs_keytool
@pytest.mark.slow
def test_a_key_with_another_password_than_its_store_is_refused(stores: Stores) -> None:
    with pytest.raises(tls.TlsError, match=r"cannot use .*locked\.jks for TLS"):
        tls.context(TlsSettings(stores["locked.jks"], key_store_password="changeit"))


@needs_keytool
@pytest.mark.slow
def test_a_key_with_another_password_than_its_store_is_said_in_one_line(stores: Stores) -> None:
    options = ("--secure-port", "0", "--tls-cert", stores["locked.jks"], "-Dzookeeper.ssl.keyStore.password=changeit")

    assert "locked.jks" in refused(*options)


@needs_keytool
@pytest.mark.slow
@pytest.mark.parametrize("name", ["cut.jks", "trust.jks", "trust.p12"])
def test_a_key_store_without_a_whole_key_is_refused(stores: Stores, name: str) -> None:
    with pytest.raises(tls.TlsError, match=re.escape(name)):
        tls.context(TlsSettings(stores[name], key_store_password="changeit"))


@needs_keytool
@pytest.mark.slow
@pytest.mark.parametrize("name", ["trust.jks", "trust.p12"])
async def test_a_java_trust_store_says_whose_certificates_will_do(
    stores: Stores, tmp_path: Path, authority: Authority, name: str
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
    async with Served(settings) as port:
        outcomes = [await asyncio.to_thread(lets_in, port, FILES / "ca.pem", one) for one in certificates]

    assert outcomes == [True, False, False]


@needs_keytool
@pytest.mark.slow
@pytest.mark.parametrize("name", ["trust.jks", "trust.p12"])
def test_a_wrong_password_of_a_trust_store_is_refused(stores: Stores, name: str) -> None:
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
def test_a_password_may_be_in_a_file(stores: Stores, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("changeit\n")
    (tmp_path / "zoo.cfg").write_text(
        f"secureClientPort=0\nsecureClientPortAddress=127.0.0.1\nssl.keyStore.location={stores['server.p12']}\n"
        f"ssl.keyStore.passwordPath={tmp_path / 'password'}\n"
    )

    with running(str(tmp_path / "zoo.cfg")) as server:
        assert common_name(server.port(), Path(stores["server.pem"])) == "server"


@needs_keytool
@pytest.mark.slow
@pytest.mark.parametrize("name", ["server.jks", "server.p12"])
def test_no_private_key_is_left_on_the_disk(
    stores: Stores, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    tls.context(TlsSettings(stores[name], key_store_password="changeit"))

    assert list(tmp_path.iterdir()) == []


@needs_keytool
@pytest.mark.slow
def test_no_private_key_is_left_on_the_disk_when_it_cannot_be_used(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


# --- SIGHUP ---


@pytest.mark.slow
def test_sighup_reads_the_certificate_again_for_new_connections(authority: Authority) -> None:
    path, renewed = authority.issue("old"), authority.issue("new")
    with running("--secure-port", "0", "--tls-cert", str(path)) as server:
        port = server.port()
        before = common_name(port, authority.path)
        renewed.replace(path)
        unasked = common_name(port, authority.path)
        server.process.send_signal(signal.SIGHUP)
        server.log_until("SIGHUP")
        after = common_name(port, authority.path)

    assert (before, unasked, after) == ("old", "old", "new")


@pytest.mark.slow
def test_sighup_leaves_connections_alone(authority: Authority) -> None:
    path = authority.issue("server")
    with running("--secure-port", "0", "--tls-cert", str(path)) as server:
        connection, _ = shake(server.port(), authority.path)
        server.process.send_signal(signal.SIGHUP)
        server.log_until("SIGHUP")
        with connection:
            connection.recv(1000)
            connection.sendall(b"\0\0\0\x08\xff\xff\xff\xfe\0\0\0\x0b")
            answer = connection.recv(1000)

    assert answer[4:8] == b"\xff\xff\xff\xfe"  # a ping's


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_after_sighup_the_old_certificate_stays_when_the_new_one_cannot_be_read(
    authority: Authority, content: bytes | None
) -> None:
    path = authority.issue("old")
    with running("--secure-port", "0", "--tls-cert", str(path)) as server:
        port = server.port()
        path.unlink() if content is None else path.write_bytes(content)
        server.process.send_signal(signal.SIGHUP)
        line = server.log_until("SIGHUP")

        assert common_name(port, authority.path) == "old"

    assert "ERROR" in line
    assert str(path) in line


@pytest.mark.slow
def test_after_sighup_a_certificate_that_is_mended_is_taken(authority: Authority) -> None:
    path, renewed = authority.issue("old"), authority.issue("new")
    with running("--secure-port", "0", "--tls-cert", str(path)) as server:
        port = server.port()
        path.write_bytes(b"nonsense")
        server.process.send_signal(signal.SIGHUP)
        server.log_until("SIGHUP")
        renewed.replace(path)
        server.process.send_signal(signal.SIGHUP)
        server.log_until("SIGHUP")

        assert common_name(port, authority.path) == "new"


@pytest.mark.slow
def test_sighup_reads_the_authorities_again(tmp_path: Path, authority: Authority) -> None:
    other = Authority(tmp_path, "other-authority")
    certificate, trusted, client = authority.issue("server"), tmp_path / "trusted.pem", other.issue("client")
    trusted.write_bytes(authority.path.read_bytes())
    with running("--secure-port", "0", "--tls-cert", str(certificate), "--tls-ca", str(trusted)) as server:
        port = server.port()
        before = lets_in(port, authority.path, client)
        trusted.write_bytes(other.path.read_bytes())
        server.process.send_signal(signal.SIGHUP)
        server.log_until("SIGHUP")
        after = lets_in(port, authority.path, client)

    assert (before, after) == (False, True)


@needs_keytool
@pytest.mark.slow
def test_sighup_with_a_key_that_cannot_be_unlocked_keeps_the_old_certificate(stores: Stores, tmp_path: Path) -> None:
    path = tmp_path / "server.jks"
    shutil.copy(stores["server.jks"], path)
    options = ("--secure-port", "0", "--tls-cert", str(path), "-Dzookeeper.ssl.keyStore.password=changeit")
    with running(*options) as server:
        server.port()
        shutil.copy(stores["locked.jks"], path)
        server.process.send_signal(signal.SIGHUP)

        assert "the certificates stay as they are" in server.log_until("SIGHUP")


@pytest.mark.slow
def test_sighup_reads_the_password_file_again(tmp_path: Path, authority: Authority) -> None:
    path, password = tmp_path / "key.pem", tmp_path / "password"
    authority.issue("old", b"first").replace(path)
    password.write_text("first\n")
    options = ("--tls-cert", str(path), f"-Dzookeeper.ssl.keyStore.passwordPath={password}")
    with running("--secure-port", "0", *options) as server:
        port = server.port()
        authority.issue("new", b"second").replace(path)
        password.write_text("second\n")
        server.process.send_signal(signal.SIGHUP)
        server.log_until("SIGHUP")

        assert common_name(port, authority.path) == "new"


@pytest.mark.slow
def test_sighup_does_not_end_a_daemon_without_tls() -> None:
    with running("--port", "0") as server:
        port = server.port()
        server.process.send_signal(signal.SIGHUP)
        server.log_until("SIGHUP")
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as connection:
            connection.sendall(b"srvr")

            assert connection.recv(9) == b"Zookeeper"
