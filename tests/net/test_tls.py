"""TLS: the daemon's second listener, and the client's and kazoo's way to it."""

from __future__ import annotations

import asyncio
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from kazoo.client import KazooClient

from zoolet.client import Client, ConnectionLossError

FILES: Final = Path(__file__).parents[1] / "support" / "tls"
CERTIFICATE: Final = ("--tls-cert", str(FILES / "server.pem"), "--tls-key", str(FILES / "server-key.pem"))
AUTHORITY: Final = ("--tls-ca", str(FILES / "ca.pem"))


@contextmanager
def daemon(*options: str) -> Iterator[int]:
    """Give the TLS port of a daemon."""
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
    """Give a client's context."""
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
