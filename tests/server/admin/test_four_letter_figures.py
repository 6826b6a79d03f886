"""srvr, stat and mntr: lines, order and metrics, and the commands that reset the metrics."""

from __future__ import annotations

import re
from typing import Final

import pytest
from support.live_server import LiveServer, Serve
from support.waiting import until

from zoolet.protocol import records as r
from zoolet.protocol.enums import CreateMode
from zoolet.protocol.operations import OpCode

pytestmark = pytest.mark.usefixtures("no_error_is_logged")

VERSION: Final = r"Zookeeper version: 3\.9\.\d+[A-Za-z0-9.-]*, built on \d\d/\d\d/\d{4} \d\d:\d\d UTC\n"
"""The pattern of go-zookeeper."""
FIGURES: Final = (
    r"Latency min/avg/max: \d+/\d+\.\d+/\d+\n"
    r"Received: \d+\nSent: \d+\nConnections: \d+\nOutstanding: \d+\nZxid: 0x[0-9a-f]+\nMode: standalone\n"
    r"Node count: \d+\n"
)


def figures(text: str) -> dict[str, str]:
    """Parse an answer to mntr."""
    return dict(line.split("\t") for line in text.splitlines())


# --- srvr and stat ---


async def test_srvr_has_lines_in_order(server: LiveServer) -> None:
    assert re.fullmatch(VERSION + FIGURES, await server.ask(b"srvr"))


async def test_srvr_of_fresh_server_has_initial_values(server: LiveServer) -> None:
    answer = await server.ask(b"srvr")

    assert "\nReceived: 1\nSent: 0\nConnections: 1\nOutstanding: 0\nZxid: 0x0\n" in answer
    assert answer.endswith("\nNode count: 5\n")


async def test_srvr_counts_nodes_requests_and_zxids(server: LiveServer) -> None:
    session = await server.session()
    await session.create("/a")

    answer = await server.ask(b"srvr")

    assert "\nReceived: 3\nSent: 2\nConnections: 2\nOutstanding: 0\nZxid: 0x2\n" in answer
    assert answer.endswith("\nNode count: 6\n")


async def test_stat_lists_connections_after_version(server: LiveServer) -> None:
    session = await server.session()
    await session.create("/a")

    answer = await server.ask(b"stat")

    client = r" /127\.0\.0\.1:\d+\[[015]\]\(queued=0,recved=\d+,sent=\d+\)\n"
    assert re.fullmatch(VERSION + "Clients:\n" + client * 2 + "\n" + FIGURES, answer)
    assert f" {session.address}[1](queued=0,recved=2,sent=2)\n" in answer


@pytest.mark.parametrize("word", ["stat", "cons", "dump"])
async def test_ipv6_address_is_shown_unabbreviated_in_brackets(serve: Serve, word: str) -> None:
    try:
        server = await serve(whitelist=("*",), host="::1")
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")

    assert re.search(r" /\[0:0:0:0:0:0:0:1\]:\d+[\[ ]", await server.ask(word.encode()))


# --- mntr ---


async def test_mntr_starts_with_version_and_state(server: LiveServer) -> None:
    first, second, *_ = (await server.ask(b"mntr")).splitlines()

    assert re.fullmatch(r"zk_version\t3\.9\.\d+\S*, built on .+", first)
    assert second == "zk_server_state\tstandalone"


async def test_every_mntr_metric_is_a_number(server: LiveServer) -> None:
    await (await server.session()).create("/a")

    seen = figures(await server.ask(b"mntr"))

    del seen["zk_version"], seen["zk_server_state"]
    assert [key for key, value in seen.items() if not re.fullmatch(r"-?\d+(\.\d+(E-?\d+)?)?", value)] == []


@pytest.mark.parametrize(
    "figure",
    [
        "avg_latency",
        "max_latency",
        "min_latency",
        "packets_received",
        "packets_sent",
        "num_alive_connections",
        "outstanding_requests",
        "znode_count",
        "watch_count",
        "ephemerals_count",
        "approximate_data_size",
        "open_file_descriptor_count",
        "max_file_descriptor_count",
    ],
)
async def test_mntr_has_metrics_that_exporters_read(server: LiveServer, figure: str) -> None:
    assert f"\nzk_{figure}\t" in await server.ask(b"mntr")


async def test_mntr_of_fresh_server_has_initial_values(server: LiveServer) -> None:
    seen = figures(await server.ask(b"mntr"))

    assert (seen["zk_znode_count"], seen["zk_approximate_data_size"]) == ("5", "44")
    assert (seen["zk_watch_count"], seen["zk_ephemerals_count"], seen["zk_global_sessions"]) == ("0", "0", "0")


QUOTAS: Final = (
    ("/app", b"count=100,bytes=5000"),
    ("/app/x", b"count=7,bytes=-1;byteHardLimit=90;countHardLimit=8"),
    ("/b", b"count=-1,bytes=77"),
    ("/odd", b"nonsense"),
)


async def test_mntr_sums_quotas_of_each_namespace(server: LiveServer) -> None:
    session = await server.session()
    for path, data in (("/app", b"abc"), ("/app/x", b"defg"), ("/b", b""), ("/odd", b"")):
        await session.create(path, data=data)
    for path, limits in QUOTAS:
        await session.create(f"/zookeeper/quota{path}")
        await session.create(f"/zookeeper/quota{path}/zookeeper_limits", data=limits)
        await session.create(f"/zookeeper/quota{path}/zookeeper_stats", data=b"count=0,bytes=0")

    found = figures(await server.ask(b"mntr"))

    assert {name: number for name, number in found.items() if "quota" in name} == {  # as ZooKeeper 3.8.0 answers
        "zk_app_quota_count_limit_per_namespace": "108",
        "zk_b_quota_count_limit_per_namespace": "-1",
        "zk_app_quota_bytes_limit_per_namespace": "5090",
        "zk_b_quota_bytes_limit_per_namespace": "77",
        "zk_app_quota_count_usage_per_namespace": "3",
        "zk_b_quota_count_usage_per_namespace": "1",
        "zk_app_quota_bytes_usage_per_namespace": "11",
        "zk_b_quota_bytes_usage_per_namespace": "0",
    }


async def test_mntr_shows_limited_number_of_quotas(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoolet.server.admin.figures.MAX_QUOTAS", 2)
    session = await server.session()
    for path in ("/zookeeper/quota/a", "/zookeeper/quota/b", "/zookeeper/quota/c"):
        await session.create(path)
        await session.create(f"{path}/zookeeper_limits", data=b"nonsense" if path.endswith("a") else b"count=1,bytes=1")
        await session.create(f"{path}/zookeeper_stats", data=b"count=0,bytes=0")

    found = figures(await server.ask(b"mntr"))

    assert [name for name in found if "quota_count_limit" in name] == ["zk_b_quota_count_limit_per_namespace"]


async def test_mntr_counts_nodes_watches_and_packets(server: LiveServer) -> None:
    session = await server.session()
    await session.create("/a")
    await session.create("/e", CreateMode.EPHEMERAL)
    await session.watch("/a")
    await session.ask(OpCode.GET_CHILDREN, r.GetChildrenRequest("/", True))

    seen = figures(await server.ask(b"mntr"))

    assert (seen["zk_znode_count"], seen["zk_approximate_data_size"]) == ("7", "48")
    assert (seen["zk_watch_count"], seen["zk_ephemerals_count"], seen["zk_global_sessions"]) == ("2", "1", "1")
    assert (seen["zk_packets_received"], seen["zk_num_alive_connections"]) == ("6", "2")


# --- crst and srst ---


async def test_crst_resets_counters_of_connections(server: LiveServer) -> None:
    session = await server.session()
    await session.create("/a")

    assert await server.ask(b"crst") == "Connection stats reset.\n"

    assert f"{session.address}[1](queued=0,recved=0,sent=0" in await server.ask(b"cons")


async def test_srst_resets_counters_of_server(server: LiveServer) -> None:
    await (await server.session()).create("/a")

    assert await server.ask(b"srst") == "Server stats reset.\n"

    assert "\nReceived: 1\nSent: 0\n" in await server.ask(b"srvr")


async def test_srst_resets_latency_of_earlier_requests(server: LiveServer) -> None:
    session = await server.session()
    for _ in range(20):
        await session.create("/a")

    await server.ask(b"srst")
    await until(lambda: len(server.daemon.connections.open) == 1)

    metrics = server.engine.metrics
    assert 0 <= metrics.latency_count <= 1
    assert metrics.latency_total >= 0
