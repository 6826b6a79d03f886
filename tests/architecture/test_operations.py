"""The files for operators: image, unit, compose file and manifests, checked without a container engine."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from support.daemon import running_daemon

from zoolet import __version__
from zoolet.server.admin.figures import GAUGES, OWN_SUMMARIES
from zoolet.server.admin.metric_help import DECLARED_ELSEWHERE, SLOW_METRICS
from zoolet.server.config import KEYS
from zoolet.server.core.metrics import LIMITS

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "operations"
NODE_EXPORTER: Final = ("node_systemd_timer_last_trigger_seconds", "node_systemd_unit_state")
PAGES: Final = ("deploy", "durability", "monitoring", "security", "troubleshooting")
VERIFIED_CERTIFICATES: Final = (("cert", "cert"), ("clients", "shop"))  # authority, certificate


def documents(name: str) -> list[Any]:
    """Read the documents in a YAML file."""
    yaml = pytest.importorskip("yaml")
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def test_image_has_user_health_check_and_entry_point() -> None:
    steps = re.findall(r"^([A-Z]+) (.*)$", (ROOT / "Dockerfile").read_text(), re.M)
    last = dict(steps)

    assert last["USER"] == "zookeeper"
    assert last["ENTRYPOINT"] == '["zoolet", "container"]'
    assert last["HEALTHCHECK"].endswith('CMD ["zoolet", "container", "status"]')
    assert [step for step, _ in steps].index("USER") > [step for step, _ in steps].index("COPY")


def test_dockerfile_has_labels_constraints_and_ports() -> None:
    text = (ROOT / "Dockerfile").read_text()

    assert f'org.opencontainers.image.version="{__version__}"' in text
    assert 'org.opencontainers.image.source="$SOURCE"' in text
    assert 'org.opencontainers.image.licenses="Apache-2.0 AND MIT"' in text
    assert "-c /src/constraints.txt" in text
    assert "EXPOSE 2181 2281 7000 8080" in text


def test_systemd_unit_creates_folder_of_documented_socket() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    unit = (FOLDER / "zoolet.service").read_text()

    named = re.findall(r"zoolet\.unixSocket=/run/(\w+)/socket", page)
    assert named == re.findall("^RuntimeDirectory=(.*)$", unit, re.M)


def test_deployment_page_gives_systemd_unit_access_to_key() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    tls = page[page.index("## TLS") : page.index("## Unix socket")]

    credentials = re.findall(r"^LoadCredential=(\w+\.pem):", tls, re.M)
    assert {f"/run/credentials/zoolet.service/{name}" for name in credentials} == set(
        re.findall(r"^ssl\.\w+Store\.location=(.*)$", tls, re.M)
    )


def test_systemd_accepts_the_units() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    units = [str(path) for path in sorted(FOLDER.iterdir()) if path.suffix in (".service", ".timer")]
    command = ["systemd-analyze", "verify", "--man=no", *units]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    problems = [line for line in done.stderr.splitlines() if "is not executable" not in line]

    assert not problems, done.stderr


def test_manifests_probe_existing_pages_and_ports() -> None:
    service, stateful = documents("kubernetes.yml")
    container = stateful["spec"]["template"]["spec"]["containers"][0]
    probes = {container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}

    assert probes == {"/healthz", "/readyz"}
    assert {port["port"] for port in service["spec"]["ports"]} == {2181, 8080}
    assert {port["containerPort"] for port in container["ports"]} == {2181, 8080}


def test_pod_meets_restricted_policy() -> None:
    _, stateful = documents("kubernetes.yml")
    pod = stateful["spec"]["template"]["spec"]
    [container] = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {*pod["volumes"][0]} <= {"name", "emptyDir"}


def test_manifests_pin_image_and_have_headless_service() -> None:
    service, stateful = documents("kubernetes.yml")
    [container] = stateful["spec"]["template"]["spec"]["containers"]
    [compose] = documents("compose.yml")

    assert container["image"] == compose["services"]["zookeeper"]["image"] == f"zoolet:{__version__}"
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert service["metadata"]["name"] == stateful["spec"]["serviceName"]
    assert service["spec"]["clusterIP"] == "None"


def test_compose_file_sets_known_variables() -> None:
    from zoolet.cli.images import BITNAMI_KEYS, OFFICIAL_KEYS

    [compose] = documents("compose.yml")

    assert set(compose["services"]["zookeeper"]["environment"]) <= OFFICIAL_KEYS.keys() | BITNAMI_KEYS.keys()


def test_alerts_use_existing_metrics() -> None:
    from zoolet.server.admin.figures import ADVANCED_SUMMARIES, BASIC_SUMMARIES, COUNTERS, UNUSED_COUNTERS

    [rules] = documents("alerts.yml")
    refused = {f"zoolet_refused_{limit}" for limit in LIMITS}
    known = {
        *GAUGES,
        *COUNTERS,
        *UNUSED_COUNTERS,
        *BASIC_SUMMARIES,
        *ADVANCED_SUMMARIES,
        *OWN_SUMMARIES,
        *SLOW_METRICS,
        *refused,
        *NODE_EXPORTER,
        "up",
    }
    for rule in rules["groups"][0]["rules"]:
        expression = re.sub(r"\{[^}]*\}|\[[^]]*\]", "", rule["expr"])
        names = set(re.findall(r"[a-z_]{2,}", expression)) - {"rate", "increase", "predict_linear", "or", "and", "time"}
        unknown = {name for name in names if not {name, re.sub("_(sum|count)$", "", name)} & known}
        assert not unknown, rule["alert"]


def test_each_metric_of_zoolet_is_on_a_page() -> None:
    from zoolet.server.admin.figures import COUNTERS

    docs = FOLDER.parent
    pages = (docs / "reference" / "metrics.md").read_text() + (docs / "observer.md").read_text()
    own = {
        name
        for name in (*GAUGES, *COUNTERS, *OWN_SUMMARIES, *SLOW_METRICS, *DECLARED_ELSEWHERE)
        if name.startswith("zoolet_")
    }

    assert {name for name in own if f"`{name}`" not in pages} == set()


@pytest.mark.parametrize(
    ("alert", "series", "values"),
    [
        ("ZooKeeperDeadlock", "zoolet_deadlocks", "1+0x20"),
        ("ZooKeeperLockWaits", 'zoolet_lock_longest_wait_seconds{naming="kazoo", kind="lock"}', "540+60x20"),
        ("ZooKeeperDiskFills", "zoolet_disk_free_bytes", "1000000000+0x20"),
        ("ZooKeeperDiskFills", "zoolet_disk_free_bytes", "100000000000-1000000000x20"),
        ("", 'zoolet_lock_longest_wait_seconds{naming="curator", kind="election"}', "540+60x20"),
        ("", "zoolet_disk_free_bytes", "100000000000-10000000x20"),
    ],
    ids=["deadlock", "wait", "full disk", "disk that fills", "standby", "large disk"],
)
def test_alert_fires_only_for_its_series(tmp_path: Path, alert: str, series: str, values: str) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool here")
    firing = 'count by (alertname) (ALERTS{alertstate="firing"})'
    expected = [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if alert else []
    queried = [{"expr": firing, "eval_time": "15m", "exp_samples": expected}]
    given = {"interval": "1m", "input_series": [{"series": series, "values": values}], "promql_expr_test": queried}
    file = tmp_path / "test.yml"
    file.write_text(json.dumps({"rule_files": [str(FOLDER / "alerts.yml")], "tests": [given]}))

    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_refusing_limit_has_alert() -> None:
    [rules] = documents("alerts.yml")
    expressions = " ".join(rule["expr"] for rule in rules["groups"][0]["rules"])

    watched = set(re.findall(r"increase\((?:zoolet_refused_)?(\w+)\[", expressions))
    assert {*LIMITS} - {"connections"} | {"connection_rejected"} <= watched


@pytest.mark.slow
def test_certificates_of_page_are_strict_and_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    section = (ROOT / "docs" / "deploy.md").read_text().partition("## TLS")[2]
    commands, checks = re.findall(r"^```sh\n(.*?)^```$", section, re.M | re.S)
    (settings,) = re.findall(r"^```properties\n(.*?)^```$", section, re.M | re.S)
    verify = [f"openssl verify -x509_strict -CAfile {root}.pem {leaf}.pem\n" for root, leaf in VERIFIED_CERTIFICATES]
    monkeypatch.chdir(tmp_path)
    Path("zoo.cfg").write_text(settings.replace("/run/credentials/zoolet.service", ".").replace("2281", "0"))

    script = commands.replace("/etc/zoolet", ".") + "".join(verify)
    done = subprocess.run(["sh", "-e"], input=script, capture_output=True, text=True, check=False)
    assert done.stdout == "cert.pem: OK\nshop.pem: OK\n", done.stderr

    with running_daemon("zoo.cfg") as daemon:
        lines = checks.replace("localhost:2281", f"localhost:{daemon.port()}").splitlines()
        calls = [[sys.executable, "-m", *shlex.split(line, comments=True)] for line in lines]
        results = [subprocess.run(call, capture_output=True, text=True, check=False) for call in calls]

    assert [result.returncode for result in results] == [0, 1], results


@pytest.mark.parametrize("name", PAGES)
def test_operations_page_names_only_existing_keys(name: str) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text()
    names = {key.name for key in KEYS}
    used = set(re.findall(r"\b((?:admin|zoolet|ssl|metricsProvider|audit|autopurge)\.[A-Za-z.]+)\b", page))

    unknown = {name for name in used if name not in names and not name.startswith(("zoolet.server", "zoolet.http"))}
    assert unknown <= {
        "zoolet.testing.Server",
        "zoolet.audit",
        "zoolet.logs",
        "zoolet.lock",
        "zoolet.service",
        "admin.token",
    }
