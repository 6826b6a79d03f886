"""The admin port of a daemon: its address, permission for changes, health while the disk is full, Prometheus."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from kazoo.client import KazooClient
from support.apache import free_port, skip_unless_required
from support.command import zoolet
from support.daemon import DaemonProcess, RunningDaemon, running_daemon, startup_error
from support.embedded import ask
from support.engine import make_engine
from support.waiting import DEADLINE_S, wait_until

from zoolet.cli.admin_ports import AdminPorts
from zoolet.client.blocking import Client
from zoolet.client.blocking.recipes import Lock, TryLock
from zoolet.protocol.errors import ConnectionLossError, ZooKeeperError
from zoolet.server.admin.observed import MonitoredServer
from zoolet.server.config.config import AdminSettings
from zoolet.server.storage.group_commit import RETRY
from zoolet.server.storage.snapshot import Snapshot, StoredNode, encode

pytest.importorskip("h11")
ROOT_NODE: Final = StoredNode("", b"", -1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
OPERATIONS: Final = Path(__file__).parents[2] / "docs" / "operations"
ALERT_RULES: Final = OPERATIONS / "alerts.yml"
DASHBOARD: Final = json.loads((OPERATIONS / "grafana.json").read_text())


def get(url: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    """Request a page. Return its status and text."""
    request = urllib.request.Request(url, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def admin(daemon: RunningDaemon) -> str:
    """Read the line with the URL of the admin port. Return the URL without the trailing slash."""
    line = daemon.read_line(1)
    assert line.startswith("zoolet admin on http://"), line
    return line.rpartition(" ")[2].rstrip("/")


# --- the address and the token ---


def test_generated_admin_token_is_printed_and_allows_changes() -> None:
    with running_daemon("--port", "0", "--admin-port", "0") as daemon:
        daemon.port()
        url, line = admin(daemon), daemon.read_line(1)
        token = line.removeprefix("zoolet admin token ")

        assert get(f"{url}/readyz") == (200, "ok\n")
        assert get(f"{url}/commands/srst", "POST")[0] == 401
        assert get(f"{url}/commands/srst", "POST", Authorization=f"Bearer {token}")[0] == 200


def test_admin_token_is_read_from_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    with running_daemon("--port", "0", "--admin-port", "0", "--admin-token-file", str(file)) as daemon:
        daemon.port()
        url = admin(daemon)

        assert get(f"{url}/commands/srst", Authorization="Bearer 0123456789abcdef")[0] == 200


def test_config_page_hides_secrets(tmp_path: Path) -> None:
    file = tmp_path / "zoo.cfg"
    file.write_text(
        "# password=OLD\nclientPort=0\nadmin.serverPort=0\nmy.apiKey=KEY\n"
        "DigestAuthenticationProvider.superDigest=super:\\\n  abcdef\n"
    )
    with running_daemon(str(file)) as daemon:
        daemon.port()
        shown = json.loads(get(f"{admin(daemon)}/commands/icfg")[1])["initial_configuration"]

    assert shown.splitlines() == [
        "clientPort=0",
        "admin.serverPort=0",
        "my.apiKey=***",
        "DigestAuthenticationProvider.superDigest=***",
    ]


def test_metrics_can_have_separate_port() -> None:
    provider = "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider"
    options = (f"-DmetricsProvider.className={provider}", "-DmetricsProvider.httpPort=0")
    with running_daemon("--port", "0", *options, "-DmetricsProvider.httpHost=127.0.0.1") as daemon:
        daemon.port()
        url = daemon.read_line(1).removeprefix("zoolet metrics on ")

        assert "\nznode_count 5.0\n" in get(url)[1]
        assert get(url.replace("/metrics", "/commands"))[0] == 404


def test_admin_port_reports_progress_until_server_is_ready() -> None:
    async def ask(url: str) -> tuple[int, str]:
        return await asyncio.to_thread(get, url)

    async def main() -> None:
        async with AdminPorts(AdminSettings(port=0, metrics=True, metrics_port=0)) as ports:
            admin, metrics = (re.search(r"http://[^/]+", line)[0] for line in ports.lines if "http" in line)
            ports.activity = "recovering: 5 of 9 nodes"

            assert await ask(f"{admin}/healthz") == (200, "ok\n")
            assert await ask(f"{admin}/readyz") == (503, "recovering: 5 of 9 nodes\n")
            for url in (f"{admin}/commands/ruok", f"{admin}/metrics", f"{admin}/", f"{metrics}/metrics"):
                assert await ask(url) == (503, '{"error": "not ready: recovering: 5 of 9 nodes"}\n')

            ports.serve(MonitoredServer(make_engine()), None)
            assert await ask(f"{admin}/readyz") == (200, "ok\n")
            assert (await ask(f"{metrics}/metrics"))[0] == 200
            ports.end()
            assert await ask(f"{admin}/readyz") == (503, "stopping\n")

    asyncio.run(main())


def test_recovering_daemon_reports_progress(tmp_path: Path) -> None:
    many = Snapshot(1, [ROOT_NODE, *(ROOT_NODE._replace(path=f"/n{number}", czxid=1) for number in range(300_000))])
    (tmp_path / "version-2").mkdir()
    (tmp_path / "version-2" / "snapshot.1").write_bytes(b"".join(encode(many)))
    port = free_port()
    seen: set[str] = set()

    with running_daemon("--port", "0", "--admin-port", str(port), "--data-dir", str(tmp_path)) as daemon:
        while "ok\n" not in seen:
            with suppress(OSError):
                seen.add(get(f"http://127.0.0.1:{port}/readyz")[1])
        daemon.port()

    assert any(re.fullmatch(r"recovering: [\d,]+ of [\d,]+ (nodes|bytes of the snapshot)\n", text) for text in seen), (
        seen
    )


def retry_while_busy(request: urllib.request.Request) -> bytes:
    """Return the answer to a request. The request is repeated while the server is busy with a different one."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
                answer: bytes = response.read()
                return answer
        except urllib.error.HTTPError as error:
            if error.code != 429 or time.monotonic() > deadline:
                raise


def test_state_restored_over_admin_port_survives_restart(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    data = tmp_path / "data"
    token = {"Authorization": "Bearer 0123456789abcdef"}
    first = DaemonProcess("--admin-port", "0", "--admin-token-file", str(file), "--data-dir", str(data))
    with first.start() as process, ExitStack() as stack:
        stack.callback(process.kill)  # otherwise an error would wait for the daemon
        assert process.stdout is not None
        url = process.stdout.readline().rpartition(" ")[2].rstrip("/\n")
        with Client(first.hosts) as zk:
            zk.create("/a", b"1")
            request = urllib.request.Request(f"{url}/commands/snapshot", headers=token)
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
                snapshot, size = response.read(), int(response.headers["snapshot_size"])
            zk.set("/a", b"2")
            zxid = zk.exists(zk.create("/token", b"")).czxid
            answer = urllib.request.Request(f"{url}/commands/restore", snapshot, token, method="POST")
            restored = json.loads(retry_while_busy(answer))["last_zxid"]

    assert len(snapshot) == size
    assert restored > zxid
    with running_daemon("--port", "0", "--data-dir", str(data)) as daemon, Client(f"127.0.0.1:{daemon.port()}") as zk:
        assert (zk.get("/a")[0], zk.exists("/token")) == (b"1", None)


def test_occupied_admin_port_stops_daemon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = zoolet("serve", "--port", "0", "--admin-port", port)

    line = f"zoolet serve: cannot listen on 127.0.0.1:{port} for HTTP: address already in use\n"
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith(line)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("-Dadmin.serverPort=70000", "must be a whole number from 0 to 65535"),
        ("-Dadmin.commandURL=commands", "must be a path that starts with /"),
        ("-DmetricsProvider.className=Mine", "must be org.apache.zookeeper.metrics.prometheus"),
        ("-Dzoolet.adminTokenFile=/dev/null", "must be a file with a token of at least 16 ASCII characters"),
    ],
)
def test_invalid_admin_property_is_refused_in_one_line(option: str, message: str) -> None:
    assert message in startup_error(option)


def test_status_works_over_unix_socket(tmp_path: Path) -> None:
    path = f"{tmp_path}/zoolet.sock"
    with running_daemon("--port", "0", f"-Dzoolet.unixSocket={path}", "-D4lw.commands.whitelist=*") as daemon:
        daemon.port()
        assert daemon.read_line(1) == f"zoolet ready on unix:{path}"

        assert " serves as " in _check_status(f"unix:{path}", 0)


def test_metrics_contain_request_times_by_operation_and_path() -> None:
    with running_daemon("--port", "0", "--admin-port", "0") as daemon:
        port = daemon.port()
        url = admin(daemon)
        with Client(f"127.0.0.1:{port}") as zk:
            zk.create("/app", b"")
            for _ in range(1_000):
                zk.get("/app")
        text = get(f"{url}/metrics")[1]

    times = dict(re.findall(r'^zoolet_request_time_ms_by_\w+_count\{\w+="([^"]+)",\} (\S+)$', text, re.M))
    assert float(times["getData"]) >= 3  # about 15 on average
    assert float(times["/app"]) >= 3
    assert re.search(r'^readlatency\{quantile="0.5",\} 0\.\d+$', text, re.M)


# --- a full disk ---


@contextmanager
def small_disk(folder: Path) -> Iterator[Callable[[str], None]]:
    """Mount three megabytes of memory, and yield a function that resizes the disk."""
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("may not mount a file system")

    def resize(size: str) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", folder], check=True)

    try:
        yield resize
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.slow
def test_full_disk_and_recovery_are_reported(tmp_path: Path) -> None:
    with small_disk(tmp_path) as resize:
        options = ("--port", "0", "--admin-port", "0", "--data-dir", str(tmp_path), "-DpreAllocSize=64")
        with running_daemon(*options, "-D4lw.commands.whitelist=*") as daemon:
            port = daemon.port()
            url, hosts = admin(daemon), f"127.0.0.1:{port}"
            acknowledged = _fill_disk(hosts)

            wait_until(lambda: get(f"{url}/readyz")[0] == 503)
            _, reason = get(f"{url}/readyz")
            assert reason.startswith("writes are refused: less than 64 kB free for the log")
            assert get(f"{url}/healthz")[0] == 200
            assert "\nzoolet_writes_refused 1.0\n" in get(f"{url}/metrics")[1]
            assert ask(port, b"isro") == b"ro"
            assert "refuses writes: less than 64 kB free" in _check_status(hosts, 1)

            resize("64m")
            wait_until(lambda: get(f"{url}/readyz")[0] == 200)

            assert RETRY <= 1.0  # the disk is checked each second
            assert "\nzoolet_writes_refused 0.0\n" in get(f"{url}/metrics")[1]
            assert ask(port, b"isro") == b"rw"
            assert "serves as standalone" in _check_status(hosts, 0)
        with running_daemon(*options) as daemon:
            with Client(f"127.0.0.1:{daemon.port()}") as zk:
                assert acknowledged <= set(zk.children("/"))


def _fill_disk(hosts: str) -> set[str]:
    """Create nodes until the server refuses one. Return the names of the acknowledged nodes."""
    created: set[str] = set()
    with Client(hosts) as zk:
        with suppress(ZooKeeperError):
            while True:
                try:
                    zk.create(f"/n{len(created)}", bytes(20_000))
                except ConnectionLossError:  # the server does not answer until it can write to the disk
                    break
                created.add(f"n{len(created)}")
    return created


def _check_status(hosts: str, code: int) -> str:
    done = zoolet("status", hosts)
    assert done.returncode == code, done.stdout
    return done.stdout


# --- Prometheus ---


@pytest.mark.slow
def test_prometheus_scrapes_daemon_and_evaluates_rules(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        skip_unless_required("no Prometheus here (apt-get install prometheus)")
    with ExitStack() as stack:
        daemon = stack.enter_context(
            running_daemon("--port", "0", "--admin-port", "0", "--data-dir", str(tmp_path / "data"))
        )
        hosts, url = f"127.0.0.1:{daemon.port()}", admin(daemon)
        hold_locks_of_all_kinds(stack, hosts)
        with _prometheus(tmp_path, url.removeprefix("http://")) as api:
            wait_until(lambda: _query(api, "up") == ["1"])
            for name in ("readlatency", "zoolet_writes_refused", "num_alive_connections", "election_time_count"):
                assert _query(api, name), name
            for kind, label in (("kazoo", "lock"), ("curator", "lock"), ("zoolet", "lock"), ("kazoo", "semaphore")):
                assert _query(api, f'zoolet_locks{{naming="{kind}",kind="{label}"}}') not in (["0"], []), (kind, label)
            assert _query(api, "zoolet_deadlocks") == ["1"]
            wait_until(lambda: _health_of_rules(api) == {"ok"})
            wait_until(lambda: "ZooKeeperDeadlock" in _alerts(api))
            for query in _queries_of_board():
                wait_until(lambda query=query: bool(_query(api, query)))


def hold_locks_of_all_kinds(stack: ExitStack, hosts: str) -> None:
    """Hold locks of kazoo, Curator and zoolet, wait for some in a circle, and make sampled requests."""
    one, two = [stack.enter_context(Client(hosts)) for _ in range(2)]
    kazoo = KazooClient(hosts)
    kazoo.start()
    stack.callback(kazoo.close)
    stack.callback(kazoo.stop)
    kazoo.Lock("/kazoo").acquire()
    kazoo.Semaphore("/pool").acquire()
    stack.enter_context(Lock(one, "/curator", naming="curator"))
    stack.enter_context(TryLock(one, "/try"))
    for path, clients in (("/a", (one, two)), ("/b", (two, one))):
        one.create(path)
        for zk in clients:
            zk.create(f"{path}/{'0' * 32}__lock__", ephemeral=True, sequential=True)
    for _ in range(1_000):
        one.get("/a")


def _queries_of_board() -> list[str]:
    """Return the queries of all panels, with the values that Grafana inserts."""
    queries = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    return [query.replace("$instance", ".*").replace("$__rate_interval", "10s") for query in queries]


def test_grafana_panels_use_variable_data_source_without_overlap() -> None:
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    parts = [*DASHBOARD["panels"], *(target for panel in DASHBOARD["panels"] for target in panel["targets"])]
    cells = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]

    assert variables == {"datasource", "instance"}
    assert {part["datasource"]["uid"] for part in parts} == {"${datasource}"}
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@contextmanager
def _prometheus(folder: Path, target: str) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    config = folder / "prometheus.yml"
    config.write_text(
        f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{ALERT_RULES}]\n"
        f"scrape_configs:\n- job_name: zookeeper\n  static_configs: [{{targets: ['{target}']}}]\n"
    )
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/tsdb"]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}/api/v1"
    finally:
        process.kill()
        process.wait()


def _api(api: str, page: str) -> Any:
    try:
        return json.loads(get(f"{api}/{page}")[1])["data"]
    except (OSError, ValueError):
        return {"result": [], "groups": [], "alerts": []}


def _health_of_rules(api: str) -> set[str]:
    return {rule["health"] for group in _api(api, "rules")["groups"] for rule in group["rules"]}


def _alerts(api: str) -> set[str]:
    return {alert["labels"]["alertname"] for alert in _api(api, "alerts")["alerts"]}


def _query(api: str, query: str) -> list[str]:
    return [sample["value"][1] for sample in _api(api, f"query?query={quote(query)}")["result"]]
