"""``zoolet status``: one line and an exit code, for servers that serve, that do not serve, and for other programs."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from support.answering import answering_server
from support.apache import ApacheZooKeeper, free_port, require_apache

from zoolet.__main__ import main
from zoolet.cli.status import parse_srvr
from zoolet.client.four_letters import unfinished_reason
from zoolet.testing import Server


def status(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Run the command. Return its exit code and its only line."""
    code = main(["status", *words])
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")
    return code, out.rstrip("\n")


def test_serving_server_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with Server() as server:
        server.populate({"/a": b""})
        hosts = server.hosts
        code, line = status(capsys, hosts)
    assert code == 0
    assert re.fullmatch(
        rf"{hosts} serves as standalone, zxid 0x[0-9a-f]+, 6 nodes, 1 connection, 0 outstanding, "
        r"latency min/avg/max [0-9./]+ ms",
        line,
    )


@pytest.mark.slow
def test_apache_server_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    require_apache()
    with ApacheZooKeeper() as apache:
        code, line = status(capsys, apache.hosts)
    assert code == 0
    # Apache may still count the connection that checked whether it had started.
    assert re.match(rf"{apache.hosts} serves as standalone, zxid 0x0, 5 nodes, (1 connection|2 connections)", line)


def test_each_unreachable_server_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    missing = f"127.0.0.1:{free_port()}"
    with Server() as server:
        assert status(capsys, f"{server.hosts},{missing}") == (
            1,
            f"1 of 2 servers accept reads and writes: {server.hosts} standalone; "
            f"cannot connect to {missing}: connection refused",
        )


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (b"This ZooKeeper instance is not currently serving requests\n", "HOSTS is running but not serving requests"),
        (
            b"srvr is not executed because it is not in the whitelist.\n",
            "HOSTS is running, but its state is unknown: srvr is not in",
        ),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "cannot connect to HOSTS: not a ZooKeeper server: received 'HTTP/1.1 400 Bad Request'",
        ),
        (
            b"",
            "cannot connect to HOSTS: the server closed the connection without an answer; possible causes: "
            "maxClientCnxns or maxCnxns is reached, the port requires TLS, or a proxy cannot reach its server",
        ),
        (b"\x15\x03\x03\x00\x02\x02\x50", "cannot connect to HOSTS: the port requires TLS"),
        (b"\xff\xfe\x1b[31m: red\n", "cannot connect to HOSTS: not a ZooKeeper server: received b'"),
    ],
)
def test_server_that_does_not_serve_is_reported(capsys: pytest.CaptureFixture[str], answer: bytes, line: str) -> None:
    with answering_server(answer) as hosts:
        code, out = status(capsys, hosts)
    assert code == 1
    assert out.startswith(line.replace("HOSTS", hosts))


def test_status_queries_tls_server_over_tls(capsys: pytest.CaptureFixture[str]) -> None:
    with Server(tls=True) as server:
        hosts = server.hosts
        code, line = status(capsys, hosts, "--tls-ca", str(server.tls_ca))

    assert (code, line.startswith(f"{hosts} serves as standalone")) == (0, True)


def test_status_with_certificate_but_no_authority_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "127.0.0.1:1", "--tls-cert", "client.pem"]) == 2
    assert capsys.readouterr().err == "zoolet status: --tls-cert requires --tls-ca\n"


@pytest.mark.parametrize("others", [(), ("--tls-ca", "ca.pem")])
def test_status_with_key_but_no_certificate_exits_with_2(
    capsys: pytest.CaptureFixture[str], others: tuple[str, ...]
) -> None:
    assert main(["status", "127.0.0.1:1", "--tls-key", "key.pem", *others]) == 2
    assert capsys.readouterr().err == "zoolet status: --tls-key requires --tls-cert\n"


@pytest.mark.parametrize("command", ["status", "top -n 1", "locks"])
def test_non_zookeeper_server_has_same_message_in_all_commands(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    with answering_server(b"SSH-2.0-OpenSSH_9.2\r\n") as hosts:
        assert main([*command.split(), hosts]) == 1
    out, err = capsys.readouterr()

    line = (out + err).splitlines()[-1].removeprefix("zoolet locks: ")
    assert line == f"cannot connect to {hosts}: not a ZooKeeper server: received 'SSH-2.0-OpenSSH_9.2'"


@pytest.mark.parametrize("command", ["status", "top -n 1", "locks"])
def test_invalid_host_name_has_same_message_in_all_commands(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main([*command.split(), "a..b:1"]) == 1
    out, err = capsys.readouterr()

    assert "cannot connect to a..b:1: " in out + err


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not a ZooKeeper server: received 'SSH-2.0-OpenSSH_9.2'"),
        (b"Zookeeper version: 3.9", "no answer within 2 s; the port may require TLS"),
        (b"", "no answer within 2 s; the port may require TLS"),
    ],
)
def test_greeting_of_foreign_server_is_shown(answer: bytes, reason: str) -> None:
    assert unfinished_reason(answer, 2.0, tls=False).startswith(reason)


def test_status_reports_silent_server(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        hosts = f"127.0.0.1:{listener.getsockname()[1]}"
        assert status(capsys, hosts, "--timeout", "0.1") == (
            1,
            f"cannot connect to {hosts}: no answer within 0.1 s; the port may require TLS or may not be a ZooKeeper "
            "port",
        )


def test_escape_sequences_in_srvr_reply_are_removed() -> None:
    health = parse_srvr("Mode: \x1b[31mleader\nZxid: 0x1\x1b]0;title\x07\nNode count: 5\n")
    assert health.text == "serves as mleader, zxid 0x10e, 5 nodes"


def test_status_of_invalid_hosts_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "/nowhere"]) == 2
    assert "hosts must be a string like" in capsys.readouterr().err


def test_unusable_tls_file_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    ca = str(Path(__file__).parents[1] / "support" / "tls" / "ca.pem")
    for words, message in (
        (("--tls-ca", "/nowhere"), "cannot read --tls-ca /nowhere: no such file or directory"),
        (("--tls-ca", "/dev/null"), "cannot use --tls-ca /dev/null: no certificate in PEM format"),
        (("--tls-ca", ca, "--tls-cert", "/nowhere"), "cannot use --tls-cert /nowhere: no such file or directory"),
    ):
        assert main(["status", "127.0.0.1:1", *words]) == 2
        assert capsys.readouterr().err == f"zoolet status: {message}\n"
