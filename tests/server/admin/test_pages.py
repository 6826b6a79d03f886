"""The pages of the admin port, without a socket: commands, metrics, health, the token, and requests from web pages."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import Any, Final

import pytest
from support.calls import connect_peer, engine_with_settings, multi, set_op
from support.http import answer

from zoolet.server.admin.commands import BY_NAME, COMMANDS
from zoolet.server.admin.http import LOCAL_NAMES, HttpError, HttpRequest, Response, check_browser
from zoolet.server.admin.java import double
from zoolet.server.admin.java_json import PIECE_CHARACTERS, json_pieces, pretty_json
from zoolet.server.admin.observed import MonitoredServer
from zoolet.server.admin.pages import AdminPages
from zoolet.server.core.engine import Engine
from zoolet.server.core.metrics import Summary

TOKEN: Final = "a-token-of-the-tests"
BEARER: Final = {"authorization": f"Bearer {TOKEN}"}


def pages(engine: Engine | None = None, **options: Any) -> AdminPages:
    """Return the pages of an engine."""
    return AdminPages(MonitoredServer(engine or engine_with_settings()), TOKEN, LOCAL_NAMES, **options)


def ask(of: AdminPages, target: str, method: str = "GET", **headers: str) -> Response:
    """Request a page, and return the response."""
    return asyncio.run(answer(of.router, HttpRequest(method, target, {"host": "127.0.0.1:8080", **headers})))


def execute_command(of: AdminPages, name: str, **headers: str) -> dict[str, Any]:
    """Execute a command, and return its decoded answer."""
    found: dict[str, Any] = json.loads(ask(of, f"/commands/{name}", **headers).body)
    return found


def refusal(of: AdminPages, target: str, method: str = "GET", **headers: str) -> HttpError:
    """Send a request that must be refused, and return the error."""
    with pytest.raises(HttpError) as caught:
        ask(of, target, method, **headers)
    return caught.value


# --- commands ---


KEYS: Final = {
    "configuration": "client_port data_dir data_log_dir tick_time max_client_cnxns "
    "min_session_timeout max_session_timeout server_id client_port_listen_backlog",
    "connections": "connections secure_connections",
    "dirs": "datadir_size logdir_size",
    "dump": "expiry_time_to_session_ids session_id_to_ephemeral_paths",
    "get_trace_mask": "tracemask",
    "hash": "digests",
    "initial_configuration": "initial_configuration",
    "is_read_only": "read_only",
    "last_snapshot": "zxid timestamp",
    "observers": "synced_observers observers",
    "ruok": "",
    "server_stats": "version read_only server_stats client_response node_count",
    "stats": "version read_only server_stats client_response node_count connections secure_connections",
    "voting_view": "current_config",
    "watch_summary": "num_connections num_paths num_total_watches",
    "watches": "session_id_to_watched_paths",
    "watches_by_path": "path_to_session_ids",
    "zabstate": "voting zabstate",
}
"""The keys in a real server's answer to each command, in order."""


@pytest.mark.parametrize("name", [name for name, command in BY_NAME.items() if command.name in KEYS])
def test_each_command_name_and_alias_is_answered(name: str) -> None:
    command = BY_NAME[name].name

    assert list(execute_command(pages(), name)) == [*KEYS[command].split(), "command", "error"]


def test_page_of_commands_links_names_in_order() -> None:
    text = ask(pages(), "/commands/").body.decode()

    assert re.findall(r'<a href="/commands/(\w+)">\1</a>\n<br/>\n', text) == sorted(each.name for each in COMMANDS)


def test_unknown_command_is_answered_as_by_zookeeper() -> None:
    response = ask(pages(), "/commands/ruok/x")

    assert response.status == 200
    assert response.body == b'{\n  "command" : "ruok/x",\n  "error" : "Unknown command: ruok/x"\n}'


def test_session_ids_are_signed_numbers_in_json() -> None:
    engine = engine_with_settings()
    peer = connect_peer(engine)
    peer.create("/a", b"", 1)
    peer.get("/a", watch=True)
    assert peer.welcome is not None
    session = peer.welcome.session_id

    assert execute_command(pages(engine), "dump")["session_id_to_ephemeral_paths"] == {str(session): ["/a"]}
    assert execute_command(pages(engine), "wchc")["session_id_to_watched_paths"] == {str(session): ["/a"]}
    assert execute_command(pages(engine), "wchp")["path_to_session_ids"] == {"/a": [session]}
    assert execute_command(pages(engine), "cons")["connections"][0]["session_id"] == session


def test_path_of_commands_is_configurable() -> None:
    moved = pages(prefix="/admin")

    assert ask(moved, "/admin/ruok").status == 200
    assert refusal(moved, "/commands/ruok").status == 404


# --- commands with side effects ---


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {TOKEN}"}])
@pytest.mark.parametrize("name", [command.name for command in COMMANDS if command.guarded])
def test_guarded_command_without_token_is_refused(name: str, headers: dict[str, str]) -> None:
    engine = engine_with_settings()
    before = engine.trace_mask

    error = refusal(pages(engine), f"/commands/{name}?traceMask=5", "POST", **headers)

    assert (error.status, error.headers) == (401, (("WWW-Authenticate", "Bearer"),))
    assert engine.trace_mask == before


def test_stat_reset_clears_refusal_counters() -> None:
    engine = engine_with_settings(max_multi_operations=1)
    peer = connect_peer(engine)
    peer.create("/a")
    multi(peer, set_op("/a"), set_op("/a"))
    assert engine.metrics.refused["multi_operations"] == 1

    execute_command(pages(engine), "stat_reset", **BEARER)

    assert engine.metrics.refused["multi_operations"] == 0


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("", "setTraceMask requires long traceMask argument"),
        ("?traceMask=abc", "setTraceMask requires long traceMask argument, got abc"),
        ("?traceMask=%D9%A1_0", "setTraceMask requires long traceMask argument, got \u0661_0"),
        ("?traceMask=9223372036854775808", "setTraceMask requires long traceMask argument, got 9223372036854775808"),
    ],
)
def test_invalid_trace_mask_is_refused(query: str, error: str) -> None:
    assert execute_command(pages(), f"stmk{query}", **BEARER) == {"error": error, "command": "set_trace_mask"}


def test_first_value_of_repeated_parameter_applies() -> None:
    assert execute_command(pages(), "stmk?traceMask=1&traceMask=2", **BEARER)["tracemask"] == 1


# --- methods, hosts and origins ---


@pytest.mark.parametrize(
    ("target", "method", "allow"),
    [
        ("/commands/ruok", "POST", "GET, HEAD"),
        ("/commands", "DELETE", "GET, HEAD"),
        ("/commands/srst", "PUT", "GET, HEAD, POST"),
        ("/metrics", "POST", "GET, HEAD"),
        ("/readyz", "TRACE", "GET, HEAD"),
    ],
)
def test_refusal_of_method_lists_allowed_methods(target: str, method: str, allow: str) -> None:
    error = refusal(pages(), target, method, **BEARER)

    assert (error.status, error.headers) == (405, (("Allow", allow),))


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:8080"},
        {"host": "127.0.0.1.evil.example"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-dest": "document"},
    ],
)
def test_request_from_foreign_page_is_refused(headers: dict[str, str]) -> None:
    assert refusal(pages(), "/commands/ruok", **headers).status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "localhost:8080"},
        {"host": "[::1]:8080"},
        {"host": "10.1.2.3:8080"},
        {"origin": "http://127.0.0.1:8080"},
        {"sec-fetch-site": "none", "sec-fetch-dest": "document"},
        {"sec-fetch-site": "same-origin"},
    ],
)
def test_request_by_address_or_from_own_page_is_served(headers: dict[str, str]) -> None:
    assert ask(pages(), "/commands/ruok", **headers).status == 200


def test_guarded_commands_are_audited(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "zoolet.audit")
    headers = {"host": "127.0.0.1:8080", **BEARER}
    of = pages()

    asyncio.run(answer(of.router, HttpRequest("GET", "/commands/stat_reset", headers, host="10.0.0.7")))
    asyncio.run(answer(of.router, HttpRequest("GET", "/commands/stats", headers, host="10.0.0.7")))
    with pytest.raises(HttpError):  # unknown, because these pages have no transfer
        asyncio.run(answer(of.router, HttpRequest("POST", "/commands/restore", headers, b"x", "10.0.0.7")))

    known = "session=0x0\tuser=admin\tip=10.0.0.7\toperation="
    assert caplog.messages == [f"{known}stat_reset\tresult=success", f"{known}restore\tresult=failure"]


@pytest.mark.parametrize("level", ["DEBUG", "ERROR"])
def test_log_level_change_is_logged_with_address(level: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "zoolet")
    caplog.handler.setLevel(logging.NOTSET)
    headers = {"host": "127.0.0.1:8080", **BEARER}

    asyncio.run(
        answer(pages().router, HttpRequest("GET", f"/commands/log_level?level={level}", headers, host="10.0.0.7"))
    )

    assert caplog.messages == [f"the log level was set to {level} on the admin port by 10.0.0.7"]


@pytest.mark.parametrize("target", ["/metrics", "/healthz", "/commands", "/console/api/about", "/"])
def test_foreign_page_cannot_embed_any_answer(target: str) -> None:
    assert refusal(pages(), target, **{"sec-fetch-site": "cross-site", "sec-fetch-dest": "image"}).status == 403


def test_link_on_foreign_page_opens_only_console() -> None:
    link = {"host": "127.0.0.1", "sec-fetch-site": "cross-site", "sec-fetch-dest": "document"}

    check_browser(HttpRequest("GET", "/?a=1", link), ())
    with pytest.raises(HttpError):
        check_browser(HttpRequest("GET", "/metrics", link), ())


def test_command_list_has_strict_security_headers() -> None:
    headers = dict(ask(pages(), "/commands").headers)

    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert (headers["X-Frame-Options"], headers["Referrer-Policy"]) == ("DENY", "no-referrer")


def test_wildcard_server_accepts_only_known_host_names() -> None:
    of = AdminPages(MonitoredServer(engine_with_settings()), TOKEN, {"zk.example.org"}, is_local=False)

    for host in ("zookeeper-0.zookeeper.svc:8080", "zookeeper:8080", "zk.example.org", "10.0.0.7", ""):
        assert ask(of, "/healthz", host=host).body == b"ok\n"
    assert refusal(of, "/healthz", host="zookeeper-0:8080", origin="http://evil.example").status == 403
    assert "zoolet.adminHosts" in str(refusal(of, "/healthz", host="evil.example:8080"))


@pytest.mark.parametrize("target", ["//[", "//x/commands/ruok", "http://[::1/nothing", "/%00", "//healthz"])
def test_malformed_targets_return_404(target: str) -> None:
    assert refusal(pages(), target).status == 404


@pytest.mark.parametrize("target", ["http://127.0.0.1:8080/commands/ruok", "/commands/ruok?x=1#y", "/commands/ruok/"])
def test_target_may_have_scheme_host_query_and_slash(target: str) -> None:
    assert ask(pages(), target).status == 200


def test_malformed_origin_is_refused() -> None:
    assert refusal(pages(), "/healthz", origin="http://[").status == 403


def test_query_with_thousand_parameters_is_refused() -> None:
    assert refusal(pages(), "/commands/stmk?" + "a=1&" * 1000, **BEARER).status == 400


def test_unknown_path_is_not_found() -> None:
    error = refusal(pages(), "/nothing")

    assert (error.status, str(error)) == (
        404,
        "no page at /nothing; use /commands, /metrics, /healthz or /readyz",
    )


def test_error_for_unknown_path_names_console() -> None:
    error = refusal(pages(console=lambda guard: []), "/console")

    assert str(error) == "no page at /console; use / (the console), /commands, /metrics, /healthz or /readyz"


# --- health ---


def test_server_refusing_writes_is_alive_but_not_ready() -> None:
    engine = engine_with_settings()
    assert ask(pages(engine), "/readyz").body == b"ok\n"

    engine.refuse_writes("no space for 64 kilobytes more of the log", frozen=False)

    ready = ask(pages(engine), "/readyz")
    assert (ready.status, ready.body) == (503, b"writes are refused: no space for 64 kilobytes more of the log\n")
    assert ask(pages(engine), "/healthz").status == 200
    assert execute_command(pages(engine), "isro")["read_only"] is True
    assert b"\nzoolet_writes_refused 1.0\n" in ask(pages(engine), "/metrics").body
    engine.refuse_writes("", frozen=False)
    assert ask(pages(engine), "/readyz").status == 200


def test_read_only_server_is_not_ready() -> None:
    engine = engine_with_settings()
    engine.set_read_only(True)

    assert ask(pages(engine), "/readyz").body == b"writes are refused: the server is in read-only mode\n"
    assert execute_command(pages(engine), "srvr")["server_stats"]["server_state"] == "read-only"


# --- metrics ---


def series(text: str) -> dict[str, float]:
    """Parse the metrics like Prometheus: each series with its value."""
    samples = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            samples[name] = float(value)
    return samples


def test_every_monitor_metric_is_in_metrics() -> None:
    of = pages()
    names = {re.sub(r"^(avg|min|max|cnt|sum|p50|p95|p99|p999)_", "", name) for name in execute_command(of, "monitor")}
    text = ask(of, "/metrics").body.decode()

    shown = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    latencies = {"latency", "client_response_size", "file_descriptor_count"}
    assert names - {"version", "server_state", "command", "error"} - latencies <= shown


def test_every_metric_has_description() -> None:
    text = ask(pages(), "/metrics").body.decode()
    shown = dict(line.removeprefix("# HELP ").split(" ", 1) for line in text.splitlines() if line.startswith("# HELP"))

    assert len(shown) == text.count("# TYPE ")
    assert shown["avg_latency"] == "Average time to answer a request, in milliseconds"
    assert shown["zoolet_refused_watches"] == "Requests or connections that the limit watches rejected"
    assert shown["election_time"] == "Exists for dashboards for ZooKeeper; this server does not measure it"
    assert not [name for name, description in shown.items() if name in description]


def test_name_parameter_of_metrics_page_selects_metrics() -> None:
    text = ask(pages(), "/metrics?name[]=znode_count&name[]=readlatency").body.decode()

    assert {line.split()[2] for line in text.splitlines() if line.startswith("#")} == {"znode_count", "readlatency"}


def test_summary_metric_has_quantiles_count_and_sum() -> None:
    engine = engine_with_settings()
    engine.metrics.summaries["readlatency"].observe(2.0, 6)
    engine.metrics.summaries["updatelatency"].observe(2.0, 3)

    found = series(ask(pages(engine), "/metrics?name[]=readlatency&name[]=updatelatency").body.decode())

    assert (found["readlatency_count"], found["readlatency_sum"]) == (6, 12)
    assert (found["updatelatency_count"], found["updatelatency_sum"]) == (3, 6)
    assert found['readlatency{quantile="0.99",}'] == 2.0


def test_metric_label_is_escaped() -> None:
    observed = MonitoredServer(engine_with_settings())
    observed.samples = {"path": {'/a"\\\n': Summary()}}
    of = AdminPages(observed, TOKEN)

    assert b'zoolet_request_time_ms_by_path_count{path="/a\\"\\\\\\n",} 0.0\n' in ask(of, "/metrics").body


# --- numbers in Java's format ---


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.0"), (5, "5.0"), (-1, "-1.0"), (0.25, "0.25"), (9_999_999, "9999999.0"), (10_000_000, "1.0E7"),
        (123_456_789, "1.23456789E8"), (0.0005, "5.0E-4"), (float("nan"), "NaN"), (float("inf"), "+Inf"),
    ],
)  # fmt: skip
def test_doubles_are_formatted_as_in_java(value: float, text: str) -> None:
    assert double(value) == text


def test_json_is_formatted_as_by_jackson() -> None:
    value = {"a": [], "b": {}, "c": [1, "x"], "d": {"e": None}, "f": [{"g": 1}]}

    assert pretty_json(value) == (
        '{\n  "a" : [ ],\n  "b" : { },\n  "c" : [ 1, "x" ],\n  "d" : {\n    "e" : null\n  },\n'
        '  "f" : [ {\n    "g" : 1\n  } ]\n}'
    )


def test_answer_above_eight_megabytes_returns_503() -> None:
    engine = engine_with_settings()
    peer = connect_peer(engine)
    for number in range(10):
        peer.create(f"/{number}{'x' * 900_000}", b"", 1)

    with pytest.raises(HttpError, match="more than 8 MB; use the console") as caught:
        ask(pages(engine), "/commands/dump")
    peer.delete(f"/9{'x' * 900_000}")

    assert caught.value.status == 503
    assert len(execute_command(pages(engine), "dump")["session_id_to_ephemeral_paths"].popitem()[1]) == 9


def test_large_json_is_encoded_in_small_pieces() -> None:
    value = {"a": [{"b": [str(number) for number in range(10_000)]}], "c": {"d": list(range(20_000))}, "e": []}

    parts = list(json_pieces(value["c"]))

    assert json.loads(pretty_json(value)) == value
    assert max(map(len, parts)) < PIECE_CHARACTERS + 30_000
    assert len(parts) > 5
