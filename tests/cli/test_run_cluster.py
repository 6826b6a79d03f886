"""``zoolet run --cluster N``: N members for a command, and their control over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

import pytest
from support.command import ZOOLET, zoolet
from support.script_client import ScriptClient
from support.waiting import DEADLINE_S

RUN_CLUSTER = [*ZOOLET, "run", "--cluster", "3"]
SHOW_PROGRAM = "import os; print(os.environ['ZOOLET_HOSTS'], os.environ.get('ZOOLET_ADMIN', ''), flush=True); input()"


class ClusterRun:
    """A command that prints its environment and exits at the end of its input."""

    def __init__(self, *options: str) -> None:
        command = [*RUN_CLUSTER, *options, "--", sys.executable, "-c", SHOW_PROGRAM]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        hosts, _, self.admin = self.process.stdout.readline().strip().partition(" ")
        self.hosts = hosts.split(",")

    def __enter__(self) -> ClusterRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate("\n", timeout=DEADLINE_S)

    def call(self, name: str, **parameters: object) -> Any:
        """Execute a command of the control API."""
        request = urllib.request.Request(
            f"{self.admin}/commands/{name}", json.dumps(parameters).encode(), method="POST"
        )
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
            return json.load(response)["result"]


def test_command_of_run_gets_addresses_of_three_cluster_members() -> None:
    client = ScriptClient()
    with ClusterRun() as run:
        assert (len(run.hosts), run.admin) == (3, "")
        assert client.connect(int(run.hosts[0].partition(":")[2])) == "new"
        assert client.create("/a") == "/a"
        client.drop()


def test_cluster_members_are_controlled_over_http() -> None:
    pytest.importorskip("h11")
    with ClusterRun("--admin") as run:
        assert [member["status"] for member in run.call("members")] == ["follower", "follower", "leader"]
        assert run.call("stop_leader") == 2
        assert [member["status"] for member in run.call("members")] == ["follower", "leader", "down"]
        run.call("start_member", member=2)
        assert run.call("kill_leader") == 1
        run.call("start_member", member=1)
        run.call("partition", groups=[[0], [1, 2]])
        assert run.call("members")[0]["status"] == "looking"
        run.call("heal")
        run.call("lag", member=0, seconds=1000)
        run.call("populate", nodes={"/a": "1"})
        assert "behind by 1 transaction" in run.call("report")
        late = run.call("members")[0]
        assert (late["behind"], late["lag"], late["paused"]) == (1, 1000, False)
        run.call("lag", member=0, seconds=0)
        number = run.call("snapshot")
        run.call("set", path="/a", data="2")
        run.call("restore", snapshot=number)
        assert run.call("tree")["/a"]["data"] == "1"
        for name in ("kill_member", "start_member", "pause_member", "resume_member", "transfer_leadership"):
            run.call(name, member=0)
        run.call("rolling_restart")
        run.call("remove_member", member=run.call("add_member", role="observer"))


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("stop_member", {"member": 9}, "member must be an index from 0 to 2, not 9"),
        ("stop_member", {"member": "0"}, "member must be the index of a member"),
        ("partition", {"groups": [0, 1]}, "list of lists"),
        ("lag", {"member": 0, "seconds": -1}, "seconds"),
        ("add_member", {"role": "leader"}, "role must be one of participant, observer, not 'leader'"),
    ],
)
def test_invalid_parameters_of_cluster_operations_are_refused(
    name: str, parameters: dict[str, object], message: str, admin: ClusterRun
) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        admin.call(name, **parameters)
    assert caught.value.code == 400
    assert message in caught.value.read().decode()
    caught.value.close()


@pytest.fixture(scope="module")
def admin() -> Any:
    """A run with the control API."""
    pytest.importorskip("h11")
    with ClusterRun("--admin") as run:
        yield run


@pytest.mark.parametrize("number", ["0", "16", "x"])
def test_cluster_size_must_be_one_to_fifteen(number: str) -> None:
    done = zoolet("run", "--cluster", number, "--", "true")
    assert done.returncode == 2
    assert "--cluster" in done.stderr
    assert "Traceback" not in done.stderr
