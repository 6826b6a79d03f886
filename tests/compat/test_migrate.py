"""docs/migrate.md: its commands run in order, with three servers of Debian's ZooKeeper."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from support.apache import free_port, require_apache

PAGE: Final = Path(__file__).parents[2] / "docs" / "migrate.md"


def blocks(language: str) -> list[str]:
    """Return the code blocks of the page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def use_free_ports(script: str) -> str:
    """Replace the ports on the page by free ports; 219$n is the port of server n."""
    script = script.replace("clientPort=219$n", "clientPort=$((2190 + n))")
    ports: dict[str, str] = {}
    for port in re.findall(r"\b(?:2181|219[123]|[23]88[123])\b", script):
        ports.setdefault(port, str(free_port()))
    script = script.replace(
        "$((2190 + n))", f"$(echo {ports['2191']} {ports['2192']} {ports['2193']} | cut -d' ' -f$n)"
    )
    return re.sub(r"\b(?:2181|219[123]|[23]88[123])\b", lambda match: ports[match[0]], script)


@pytest.mark.slow
def test_commands_of_migration_page_run_in_order(tmp_path: Path) -> None:
    require_apache()
    script = use_free_ports("\n".join(["set -e -m", "trap 'echo END $?' EXIT", *blocks("bash")]))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    (tmp_path / "page.sh").write_text(script)

    with subprocess.Popen(
        ["bash", "page.sh"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            seen = []
            for line in process.stdout:
                seen.append(line)
                # Reading to the end would hang, because the running servers keep this pipe open.
                if line.startswith("END "):
                    break
            output = "".join(seen)
        finally:
            subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)

    assert "\nEND 0\n" in output, output
    assert "\nthe same\n" in output, output
    assert "would be 4 created, 0 changed, 0 unchanged" in output, output
    assert ": 0 created, 0 changed, 4 unchanged" in output, output
    after = json.loads((tmp_path / "after.json").read_text())
    assert after["/app/jobs"] == {"$data": "", "$children_created": 41}
    assert after["/app/secret"]["$data"] == "s3cret"

    (program,) = blocks("python")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
