"""``zoolet top``: live statistics of servers, from mntr and cons."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest
from support.apache import ApacheZooKeeper, free_port, require_apache
from support.daemon import DaemonProcess
from support.pseudo_terminal import run_at_terminal

from zoolet.__main__ import main
from zoolet.cli.top import connection_lines, format_server
from zoolet.client.four_letters import Sample, packet_rates, parse_cons, parse_mntr
from zoolet.client.wire.hosts import Address
from zoolet.testing import Server

MNTR_REPLY = "zk_version\t3.9.4\nzk_server_state\tleader\nzk_packets_received\t100\nzk_avg_latency\t0.5\nzk_odd\tx\n"
CONS_REPLY = (
    " /127.0.0.1:5[1](queued=0,recved=7,sent=7,sid=0x1,lop=GETD,est=1,to=10000,avglat=0.1)\n"
    " /127.0.0.1:6[0](queued=0,recved=1,sent=0)\n"
)


def sample(at: float, received: int, **facts: str) -> Sample:
    """Return a sample of a server with one connection."""
    return Sample(at, {"packets_received": received}, "leader", {"c:1": {"sid": "0x1", **facts}})


def test_mntr_reply_is_parsed() -> None:
    assert parse_mntr(MNTR_REPLY) == ({"packets_received": 100.0, "avg_latency": 0.5}, "leader")
    assert parse_mntr("garbage\x1b[2J") == ({}, "")


def test_cons_reply_is_parsed() -> None:
    connections = parse_cons(CONS_REPLY)
    assert list(connections) == ["127.0.0.1:5", "127.0.0.1:6"]
    assert connections["127.0.0.1:5"]["lop"] == "GETD"


def test_top_computes_rates_between_two_samples() -> None:
    assert packet_rates(sample(2.0, 300), sample(0.0, 100)) == {"packets_received_per_second": 100.0}
    assert packet_rates(sample(2.0, 300), None) == {}
    assert packet_rates(sample(2.0, 5), sample(0.0, 100)) == {}  # the server was restarted
    assert packet_rates(sample(2.0, 5), Sample(0.0, {"other": 1}, "leader")) == {}


def test_top_lists_busiest_connection_first() -> None:
    before = Sample(0, {"x": 1}, "", {"a:1": {"sid": "0xa", "recved": "5"}, "b:1": {"sid": "0xb", "recved": "5"}})
    now = Sample(1, {"x": 1}, "", {"a:1": {"sid": "0xa", "recved": "6"}, "b:1": {"sid": "0xb", "recved": "9"}})
    assert [line.split()[0] for line in connection_lines(now, before)] == ["session", "0xb", "0xa"]


def test_missing_permission_for_cons_is_explained() -> None:
    problem = "answers, but cons is not in 4lw.commands.whitelist"
    assert problem in format_server("a:1", Sample(0, {"x": 1}, "leader", problem=problem), None)[-1]


def test_top_prints_samples_as_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    with Server() as server:
        hosts = server.hosts
        assert main(["top", hosts, "-n", "2", "--interval", "0.01"]) == 0
        text = capsys.readouterr().out
        assert text.count(f"{hosts}  standalone") == 2
        assert "outstanding, latency min/avg/max" in text
        assert main(["top", hosts, "-n", "1", "--json"]) == 0
        value = json.loads(capsys.readouterr().out)[hosts]
        assert (value["state"], value["znode_count"] > 0) == ("standalone", True)


@pytest.mark.slow
def test_top_shows_statistics_of_apache_server(capsys: pytest.CaptureFixture[str]) -> None:
    require_apache()
    with ApacheZooKeeper() as apache:
        assert main(["top", apache.hosts, "-n", "1"]) == 0
    assert f"{apache.hosts}  standalone" in capsys.readouterr().out


def test_top_reports_unreachable_server(capsys: pytest.CaptureFixture[str]) -> None:
    address = Address("127.0.0.1", free_port())
    assert main(["top", str(address), "-n", "1"]) == 1
    assert f"cannot connect to {address}: connection refused" in capsys.readouterr().out
    assert main(["top", "host:99999", "-n", "1"]) == 2


def test_top_shows_server_that_allows_only_srvr(capsys: pytest.CaptureFixture[str]) -> None:
    """Allowing only srvr is the default of ZooKeeper and of zoolet serve."""
    with DaemonProcess() as daemon:
        assert main(["top", daemon.hosts, "-n", "1"]) == 0
    text = capsys.readouterr().out
    assert f"{daemon.hosts}  standalone" in text
    assert re.search(r"1 connection, 5 nodes\n", text)
    assert "no connections shown: the server answers, but cons is not in 4lw.commands.whitelist" in text


def test_q_quits_top_while_server_is_silent(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = ["top", f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", "600"]
        with run_at_terminal(words, tmp_path) as terminal, silent.accept()[0]:
            terminal.type("q")
            assert terminal.wait() == 0


def test_ipv6_addresses_in_cons_reply_are_abbreviated() -> None:
    line = " /[0:0:0:0:0:0:0:1]:53862[1](queued=0,recved=7,sid=0x1)\n /10.0.0.7:41822[0](queued=0,recved=1,sid=0x2)\n"
    assert list(parse_cons(line)) == ["[::1]:53862", "10.0.0.7:41822"]
    assert parse_cons("/" + "1" * 900 + "[" * 90) == {}


@pytest.mark.parametrize("key", ["q", "Q", "\x04"])
def test_q_or_ctrl_d_quits_top_at_terminal(key: str, tmp_path: Path) -> None:
    with Server() as server, run_at_terminal(["top", server.hosts, "--interval", "600"], tmp_path) as terminal:
        terminal.expect("standalone")
        terminal.type(key)
        assert terminal.wait() == 0
