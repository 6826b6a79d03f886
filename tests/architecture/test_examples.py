"""Complete programs in README.md and in the client's pages run unchanged, except for the address of the server."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from support.type_checker import UNTYPED_OPTIONS, errors_of_both_checkers
from support.waiting import DEADLINE_S, PROMPT_S

from zoolet.client import blocking, serializers
from zoolet.client.blocking.recipes import LockingQueue
from zoolet.testing import Server

ROOT: Final = Path(__file__).parents[2]
ADDRESS: Final = "127.0.0.1:2181"
PAGES: Final = (
    *("client", "connections", "threads", "access", "observability"),
    *("coming-from-kazoo", "reference/blocking"),
)


def programs() -> list[str]:
    """Find the Python blocks that start with an import."""
    found = []
    for name in ("README.md", *(f"docs/{page}.md" for page in PAGES)):
        text = (ROOT / name).read_text()
        found += [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "import " in block]
    return found


def test_documents_contain_programs() -> None:
    assert len(programs()) >= 4


@pytest.mark.parametrize("program", programs(), ids=lambda program: program.splitlines()[0])
def test_program_of_documents_runs(program: str) -> None:
    if "import opentelemetry" in program or "from opentelemetry" in program:
        pytest.importorskip("opentelemetry", reason="make .venv/.docs installs OpenTelemetry, which this example uses")
    with Server() as server:
        code = program.replace(ADDRESS, server.hosts)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_type_checkers_accept_programs_of_documents(tmp_path: Path) -> None:
    files = {}
    for page in ("tutorial", "client", "connections", "threads", "access", "recipes"):
        text = (ROOT / f"docs/{page}.md").read_text()
        blocks = re.findall(r'^```python(?: title="(.*)")?\n(.*?)^```', text, re.MULTILINE | re.DOTALL)
        files |= {
            title or f"{page}_{number}.py": block for number, (title, block) in enumerate(blocks) if "import " in block
        }
    (service,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/service.md").read_text(), re.DOTALL)

    assert errors_of_both_checkers(tmp_path, files, *UNTYPED_OPTIONS) == {"mypy": {}, "pyright": {}}
    assert errors_of_both_checkers(tmp_path, {"service.py": service}) == {"mypy": {}, "pyright": {}}
    assert len(files) > 25


def start_service(hosts: str) -> subprocess.Popen[str]:
    """Start the service of docs/service.md."""
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/service.md").read_text(), re.DOTALL)
    command = [sys.executable, "-c", program.replace(ADDRESS, hosts)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_documented_service_works_and_stops_on_signal(zoolet: Server) -> None:
    with blocking.Client(zoolet.hosts) as zk:
        LockingQueue(zk.with_serializer(serializers.json), "/printer/jobs").put({"page": 1})
        with start_service(zoolet.hosts) as service:
            zoolet.wait_for_node("/printer/last", b'{"job": {"page": 1}, "pages": 10}', timeout=DEADLINE_S)
            assert any(path.startswith("/services/printer/") for path in zoolet.tree())
            service.terminate()
            output, errors = service.communicate(timeout=DEADLINE_S)

    assert (service.returncode, output.splitlines()[-1]) == (0, '{"ready": true, "leads": false, "done": 1}'), errors
    assert not [path for path, node in zoolet.tree().items() if node.ephemeral_owner]


def test_service_without_server_stops_quietly() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # accepts connections, but never answers
        with start_service(f"127.0.0.1:{listener.getsockname()[1]}") as service:
            listener.accept()[0].close()
            service.terminate()
            output, errors = service.communicate(timeout=DEADLINE_S)

    assert (service.returncode, output) == (0, ""), errors
    assert "ERROR" not in errors


@pytest.mark.slow
def test_documented_service_stops_despite_lost_server() -> None:
    with Server() as server, start_service(server.hosts) as service:
        server.wait_for_contenders("/printer/leader", 1, timeout=DEADLINE_S)
        server.refuse_connections()
        server.drop("all")
        service.terminate()
        _, errors = service.communicate(timeout=2 * PROMPT_S)  # shorter than the session timeout

    assert service.returncode == 0, errors
