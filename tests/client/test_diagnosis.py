"""Diagnosis of unreachable servers: one wording for the client and for every command."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator

import pytest

from zoolet.__main__ import main
from zoolet.client import Backoff, Client, blocking
from zoolet.client.aio.dial import open_failure
from zoolet.testing import Server

EARLY_TEXT = "without an answer; possible causes: maxClientCnxns or maxCnxns is reached, the port "


def untrusted_certificate_error() -> ssl.SSLCertVerificationError:
    """Return the error for a certificate of an unknown authority, as OpenSSL raises it."""
    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] ... (_ssl.c:1006)")
    error.verify_message = "self-signed certificate"
    return error


OPEN_FAILURES: dict[str, tuple[Exception, bool, str]] = {
    "refused": (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"), False, "connection refused"),
    "refused twice": (
        OSError(
            "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), [Errno 111] Connect call failed"
        ),
        False,
        "connection refused",
    ),
    "two reasons": (
        OSError("Multiple exceptions: [Errno 101] Connect call failed ('::1', 1), [Errno 111] Connect call failed"),
        False,
        "network is unreachable, connection refused",
    ),
    "no name": (socket.gaierror(-2, "Name or service not known"), False, "name or service not known"),
    "no time": (TimeoutError(), False, "no connection within 1.500 s"),
    "no route in time": (TimeoutError(110, "Connect call failed ('10.0.0.1', 1)"), False, "connection timed out"),
    "a certificate": (
        ssl.SSLError(1, "[SSL: X] certificate verify failed"),
        True,
        "[SSL: X] certificate verify failed",
    ),
    "an unknown authority": (
        untrusted_certificate_error(),
        True,
        "the certificate of the server cannot be verified: self-signed certificate",
    ),
    "no TLS": (
        ConnectionResetError(),
        True,
        f"the server closed the connection {EARLY_TEXT}is plain or requires a different",
    ),
    "a reset of TLS": (ConnectionResetError(104, "x"), True, f"the server reset the connection {EARLY_TEXT}is plain"),
    "no text": (OSError(), False, "OSError"),
}


@pytest.mark.parametrize("name", OPEN_FAILURES)
def test_connection_failure_text_has_reason_without_errno(name: str) -> None:
    error, tls, words = OPEN_FAILURES[name]

    assert open_failure(error, 1.5, tls).startswith(words)
    assert "Errno" not in open_failure(error, 1.5, tls)


async def test_connection_reset_before_reply_is_explained_like_close() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def reset() -> None:
            accepted, _ = listener.accept()
            accepted.recv(1)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()

        thread = threading.Thread(target=reset)
        thread.start()
        zk = Client(f"127.0.0.1:{listener.getsockname()[1]}", backoff=Backoff(first=10))
        await zk.start(wait=False)
        reason = await zk.first_round()
        await zk.aclose()
        thread.join()

    assert f"the server reset the connection {EARLY_TEXT}requires TLS" in reason


@pytest.fixture
def full_server() -> Iterator[str]:
    """Yield the address of a server that accepts no more connections from this host."""
    with Server(config={"maxClientCnxns": 1}) as server, blocking.Client(server.hosts):
        yield server.hosts


@pytest.mark.parametrize("command", [["status"], ["locks"], ["shell", "-server"]], ids=lambda words: words[0])
def test_commands_name_connection_limit_as_first_possible_reason(
    full_server: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["ls", "/"] if command[0] == "shell" else []

    assert main([*command, full_server, *words]) == 1

    assert EARLY_TEXT in "".join(capsys.readouterr())
