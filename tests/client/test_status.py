"""``zoolet status``: one line and an exit code, for servers that serve, do not, or are something else."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.apache import ApacheZooKeeper, free_port, require_apache

from zoolet.__main__ import main
from zoolet.client.cli.status import read_answer
from zoolet.server import Server


def status(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Run the command; return its exit code and its only line."""
    code = main(["status", *words])
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")
    return code, out.rstrip("\n")


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Run a server that sends the same bytes to everybody."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            link, _ = listener.accept()
            with link:
                link.recv(100)
                link.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)


def test_a_server_that_serves(capsys: pytest.CaptureFixture[str]) -> None:
    with Server() as server:
        server.populate({"/a": b""})
        hosts = server.hosts
        code, line = status(capsys, hosts)
    assert code == 0
    assert re.fullmatch(
        rf"{hosts} serves as standalone, zxid 0x[0-9a-f]+, 6 nodes, 1 connections, 0 outstanding, "
        r"latency [0-9./]+ ms",
        line,
    )


@pytest.mark.slow
def test_apache(capsys: pytest.CaptureFixture[str]) -> None:
    require_apache()
    with ApacheZooKeeper() as apache:
        code, line = status(capsys, apache.hosts)
    assert code == 0
    assert line.startswith(f"{apache.hosts} serves as standalone, zxid 0x0, 5 nodes, 1 connections")


def test_several_servers_of_which_one_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    missing = f"127.0.0.1:{free_port()}"
    with Server() as server:
        assert status(capsys, f"{server.hosts},{missing}") == (
            1,
            f"1 of 2 serve: {server.hosts} standalone; {missing} does not answer: Connection refused",
        )


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (b"This ZooKeeper instance is not currently serving requests\n", "runs, and does not serve"),
        (b"srvr is not executed because it is not in the whitelist.\n", "answers, but may not say how it is"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not a ZooKeeper server"),
        (b"", "closes the connection without an answer: it may serve TLS only (--tls-ca)"),
        (b"\xff\xfe\x1b[31m: red\n", "is not a ZooKeeper server"),
    ],
)
def test_what_does_not_serve(capsys: pytest.CaptureFixture[str], answer: bytes, line: str) -> None:
    with answering(answer) as hosts:
        code, out = status(capsys, hosts)
    assert code == 1
    assert out.startswith(f"{hosts} {line}")


def test_a_server_of_tls_is_asked_over_tls(capsys: pytest.CaptureFixture[str]) -> None:
    with Server(tls=True) as server:
        hosts = server.hosts
        code, line = status(capsys, hosts, "--tls-ca", str(server.tls_ca))

    assert (code, line.startswith(f"{hosts} serves as standalone")) == (0, True)


def test_a_certificate_without_an_authority_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "127.0.0.1:1", "--tls-cert", "client.pem"]) == 2
    assert capsys.readouterr().err == "zoolet: --tls-cert needs --tls-ca\n"


def test_a_server_that_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        hosts = f"127.0.0.1:{listener.getsockname()[1]}"
        assert status(capsys, hosts, "--timeout", "0.1") == (
            1,
            f"{hosts} does not answer within 0.1 s: it may serve TLS (--tls-ca), or something else than ZooKeeper",
        )


def test_what_a_server_says_cannot_reach_the_terminal_raw() -> None:
    health = read_answer("Mode: \x1b[31mleader\nZxid: 0x1\x1b]0;title\x07\nNode count: 5\n")
    assert health.text == "serves as mleader, zxid 0x10e, 5 nodes"


def test_wrong_hosts_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "/nowhere"]) == 2
    assert "name no server" in capsys.readouterr().err
