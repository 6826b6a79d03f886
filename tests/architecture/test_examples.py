"""The whole programs in README.md and docs/client.md run as they stand, except for the address of the server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from zoolet.client import blocking, serializers
from zoolet.client.blocking.recipes import LockingQueue
from zoolet.server import Server

ROOT: Final = Path(__file__).parents[2]
ADDRESS: Final = "127.0.0.1:2181"


def programs() -> list[str]:
    """Find the Python blocks that begin with an import."""
    found = []
    for name in ("README.md", "docs/client.md"):
        text = (ROOT / name).read_text()
        found += [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "import " in block]
    return found


def test_there_are_programs() -> None:
    assert len(programs()) >= 4


@pytest.mark.parametrize("program", programs(), ids=lambda program: program.splitlines()[0])
def test_a_program_in_the_documents_runs(program: str) -> None:
    if "import opentelemetry" in program or "from opentelemetry" in program:
        pytest.importorskip("opentelemetry", reason="make .venv/.docs installs OpenTelemetry, which this example uses")
    with Server() as server:
        code = program.replace(ADDRESS, server.hosts)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_the_service_of_the_documents_does_its_work_and_stops_at_a_signal(zoolet: Server) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/service.md").read_text(), re.DOTALL)
    command = [sys.executable, "-c", program.replace(ADDRESS, zoolet.hosts)]
    with blocking.Client(zoolet.hosts) as zk:
        LockingQueue(zk.with_serializer(serializers.json), "/printer/jobs").put({"page": 1})
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as service:
            zoolet.wait_for_node("/printer/last", b'{"job": {"page": 1}, "pages": 10}', timeout=10)
            assert any(path.startswith("/services/printer/") for path in zoolet.tree())
            service.terminate()
            output, errors = service.communicate(timeout=10)

    assert (service.returncode, output.splitlines()[-1]) == (0, '{"ready": true, "leads": false, "done": 1}'), errors
    assert not [path for path, node in zoolet.tree().items() if node.ephemeral_owner]
