"""HTTP commands to zoolet and to a real server in the same state return the same keys and equal facts."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from typing import Any, Final

import pytest
from differential.lockstep import Lockstep
from differential.pair import Pair, Step
from differential.script import children, create, read, request_on
from support.apache import RELEASES, admin_jars, skip_unless_required
from support.engine import make_engine
from support.waiting import DEADLINE_S

from zoolet.server.admin.commands import COMMANDS, execute
from zoolet.server.admin.observed import MonitoredServer
from zoolet.server.storage.transfer import StateTransfer, encode_snapshot

pytestmark = pytest.mark.slow
COMPARED_COMMANDS: Final = [
    command for command in COMMANDS if command.answer is not None and command.name != "system_properties"
]
STEPS: Final[list[Step]] = [
    request_on(0, create("/a", b"1")),
    request_on(1, create("/a/b", b"", 1)),
    request_on(0, read("/a", True)),
    request_on(0, children("/a", True)),
]
EQUAL_COMMANDS: Final = {
    "dump": ("session_id_to_ephemeral_paths",),
    "get_trace_mask": ("tracemask",),
    "hash": (),
    "is_read_only": ("read_only",),
    "leader": ("error",),
    "observers": ("synced_observers", "observers"),
    "set_trace_mask": ("error",),
    "voting_view": ("current_config",),
    "watch_summary": ("num_connections", "num_paths", "num_total_watches"),
    "zabstate": ("voting", "zabstate"),
}
"""Commands whose answers must be equal; session ids differ."""


@pytest.fixture(scope="module", params=RELEASES)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Both sides, with a tree and two watches."""
    if not admin_jars():
        skip_unless_required("no Jetty for the admin server of a real ZooKeeper (apt-get install libjetty9-java)")
    lockstep = Lockstep(request.param, admin=True)
    pair = lockstep.start()
    try:
        for step in STEPS:
            pair.do(step)
        yield pair
    finally:
        lockstep.stop()


def real_answer(pair: Pair, name: str) -> dict[str, Any]:
    with urllib.request.urlopen(
        f"http://127.0.0.1:{pair.apache.admin_port}/commands/{name}", timeout=DEADLINE_S
    ) as response:
        answer: dict[str, Any] = json.loads(response.read())
        return answer


def shape(value: Any) -> Any:
    """Return the names in an answer at every depth; tables by session or path are blanked."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items() if not name.startswith(("/", *"0123456789"))}
    return [shape(value[0])] if isinstance(value, list) and value else type(value).__name__


@pytest.mark.parametrize("command", COMPARED_COMMANDS, ids=lambda command: command.name)
def test_admin_command_has_keys_of_real_server(pair: Pair, command: Any) -> None:
    theirs, ours = real_answer(pair, command.name), execute(command, MonitoredServer(pair.engine, zoo_cfg_text=""), {})
    if command.name == "monitor":
        theirs = {name: value for name, value in theirs.items() if "_per_namespace" not in name}
        ours = {name: value for name, value in ours.items() if "zoolet_" not in name}

    if pair.apache.release == "3.8" and command.name in ("server_stats", "stats"):
        assert shape(ours).keys() == shape(theirs).keys()
    else:
        assert shape(ours) == shape(theirs)
    for name in EQUAL_COMMANDS.get(command.name, ()):
        if not isinstance(theirs[name], dict) or command.name != "dump":
            assert ours[name] == theirs[name], name


def test_every_admin_command_of_real_server_is_supported(pair: Pair) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{pair.apache.admin_port}/commands", timeout=DEADLINE_S) as response:
        text = response.read().decode()
    theirs = {line.partition(">")[2].partition("<")[0] for line in text.splitlines() if line.startswith("<a")}

    assert theirs <= {command.name for command in COMMANDS}


def test_snapshots_are_interchangeable_with_apache(pair: Pair) -> None:
    if pair.apache.release == "3.8":
        pytest.skip("3.8 has no such commands")
    theirs = _request(pair, "snapshot")
    engine = make_engine()
    asyncio.run(StateTransfer(engine, None, lambda: None, lambda: None).restore(theirs))

    assert engine.tree.find("/a").data == b"1"
    assert engine.tree.get("/a/b") is not None  # its session is in the snapshot

    ours = b"".join(encode_snapshot(pair.engine))
    answer = json.loads(_request(pair, "restore", ours))

    assert (answer["error"], answer["last_zxid"]) == (None, pair.engine.zxid)


def _request(pair: Pair, command: str, body: bytes | None = None) -> bytes:
    headers = {"Authorization": "digest any:one", "Content-Type": "application/octet-stream"}
    url = f"http://127.0.0.1:{pair.apache.admin_port}/commands/{command}"
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=DEADLINE_S) as response:
        data: bytes = response.read()
        return data
