"""The files for operators: image, unit, compose file, manifests; checked as far as that goes without an engine."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from zoolet.server.admin.figures import GAUGES, OURS
from zoolet.server.config import KEYS

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "operations"


def documents(name: str) -> list[Any]:
    """Read the documents of a file of YAML."""
    yaml = pytest.importorskip("yaml")
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def test_the_image_runs_as_a_user_with_a_health_check_and_an_entry_point() -> None:
    steps = re.findall(r"^([A-Z]+) (.*)$", (ROOT / "Dockerfile").read_text(), re.M)
    last = dict(steps)

    assert last["USER"] == "zookeeper"
    assert last["ENTRYPOINT"] == '["zoolet", "container"]'
    assert last["HEALTHCHECK"].endswith('CMD ["zoolet", "container", "status"]')
    assert [step for step, _ in steps].index("USER") > [step for step, _ in steps].index("COPY")


def test_the_unit_is_one_that_systemd_takes() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    command = ["systemd-analyze", "verify", "--man=no", str(FOLDER / "zoolet.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    problems = [line for line in done.stderr.splitlines() if "is not executable" not in line]

    assert not problems, done.stderr


def test_the_manifests_probe_what_the_admin_port_has() -> None:
    service, stateful = documents("kubernetes.yml")
    container = stateful["spec"]["template"]["spec"]["containers"][0]
    probes = {container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}

    assert probes == {"/healthz", "/readyz"}
    assert {port["port"] for port in service["spec"]["ports"]} == {2181, 8080}
    assert {port["containerPort"] for port in container["ports"]} == {2181, 8080}


def test_the_compose_file_sets_known_variables() -> None:
    from zoolet.server.cli.container import BITNAMI, OFFICIAL

    [compose] = documents("compose.yml")

    assert set(compose["services"]["zookeeper"]["environment"]) <= OFFICIAL.keys() | BITNAMI.keys()


def test_the_alerts_ask_for_figures_that_there_are() -> None:
    from zoolet.server.admin.figures import ADVANCED, BASIC, COUNTERS, NO_COUNTERS

    [rules] = documents("alerts.yml")
    known = {*GAUGES, *COUNTERS, *NO_COUNTERS, *BASIC, *ADVANCED, *OURS, "up"}
    for rule in rules["groups"][0]["rules"]:
        expression = re.sub(r"\{[^}]*\}|\[[^]]*\]", "", rule["expr"])
        names = set(re.findall(r"[a-z_]{2,}", expression)) - {"rate", "increase", "or", "and", "time"}
        unknown = {name for name in names if not {name, re.sub("_(sum|count)$", "", name)} & known}
        assert not unknown, rule["alert"]


def test_the_page_names_keys_that_there_are() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    names = {key.name for key in KEYS}
    used = set(re.findall(r"\b((?:admin|zoolet|ssl|metricsProvider|audit|autopurge)\.[A-Za-z.]+)\b", page))

    unknown = {name for name in used if name not in names and not name.startswith(("zoolet.server", "zoolet.http"))}
    assert unknown <= {"zoolet.audit", "zoolet.service", "admin.token"}
