"""``zoolet run --admin``, ``--load``, and ``zoolet proxy``, for tests in other languages."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Final

import pytest
from support.answering import answering_server
from support.apache import require_apache, server_jars
from support.command import ZOOLET, zoolet
from support.waiting import DEADLINE_S

from zoolet.cli import fault
from zoolet.cli.program import main
from zoolet.cli.run import _make_test_server
from zoolet.client import blocking
from zoolet.server.config import ConfigError, Setting, build
from zoolet.testing import Recording, Server
from zoolet.testing.control.control import Control
from zoolet.testing.frames.actions import ACTIONS

EXPIRE_PROGRAM: Final = """
import json, os, urllib.request
from kazoo.client import KazooClient

def command(name, **parameters):
    url = os.environ["ZOOLET_ADMIN"] + "/commands/" + name
    with urllib.request.urlopen(url, json.dumps(parameters).encode()) as response:
        return json.load(response)["result"]

zk = KazooClient(os.environ["ZOOKEEPER_HOSTS"])
zk.start()
zk.create("/e", ephemeral=True)
command("expire", who=hex(zk.client_id[0]))
print(sorted(command("tree")))
zk.stop()
"""

pytestmark = pytest.mark.slow  # each test starts one or two Python processes


def test_command_of_run_controls_server_over_control_api(tmp_path: Path) -> None:
    pytest.importorskip("h11")
    tree = tmp_path / "tree.json"
    tree.write_text('{"/app": {"$data": "1", "config": "x"}}')

    ran = zoolet("run", "--admin", "--load", tree, "--", sys.executable, "-c", EXPIRE_PROGRAM)

    assert (ran.stdout, ran.returncode) == ("['/app', '/app/config']\n", 0), ran.stderr


@pytest.mark.parametrize("tick", [{}, {"tickTime": Setting("500", "command line")}])
def test_run_with_control_api_keeps_session_timeout_limit(tick: dict[str, Setting]) -> None:
    options = Namespace(cluster=None, host="127.0.0.1", port=0, clock="real", seed=None)

    with _make_test_server(options, tick) as server, blocking.Client(server.hosts, timeout=100) as zk:
        assert round(zk.session_timeout * 1000) == build(tick).settings.max_session_timeout


def test_run_loads_tree_without_control_api(tmp_path: Path) -> None:
    tree = tmp_path / "tree.json"
    tree.write_text('{"/a": "1"}')
    code = "import os\nfrom kazoo.client import KazooClient as K\nz=K(os.environ['ZOOKEEPER_HOSTS'])\nz.start()\n"

    ran = zoolet("run", "--load", tree, "--", sys.executable, "-c", f"{code}print(z.get('/a')[0])\nz.stop()")

    assert (ran.stdout, ran.stderr) == ("b'1'\n", "")


FAULTS: Final = """
set -e
zoolet() { "$PYTHON" -m zoolet "$@"; }
zoolet fault lose_reply op=create times=1 -- "$PYTHON" -c '
import os
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
zk = KazooClient(os.environ["ZOOLET_HOSTS"]); zk.start()
try: zk.create("/lost", b"")
except ConnectionLoss: print("lost")
zk.stop()'
number=$(zoolet fault delay seconds=0.5 jitter=0 path=/x)
zoolet fault end_fault fault=$number
zoolet fault populate nodes='{"/a": "1"}'
zoolet fault set path=/a data=2
zoolet fault wait_for_node path=/a data=2
zoolet fault set path=/a data=null
zoolet fault tree | grep -c '"/lost"'
zoolet fault expire who=all
zoolet fault | grep -c '^  delay, '
zoolet fault delay seconds=1 -- sh -c 'kill -TERM $PPID; exec sleep 20' || echo $?
zoolet fault report | grep -c 'active faults' || true
zoolet fault teleport || echo $?
zoolet fault delay speed=9 || echo $?
zoolet fault expire who=0x5 || echo $?
"""


def test_faults_are_set_on_command_line() -> None:
    pytest.importorskip("h11")
    ran = zoolet("run", "--admin", "--", "sh", "-c", FAULTS, PYTHON=sys.executable)

    assert ran.returncode == 0, ran.stderr
    words = ran.stdout.split()
    assert words[:3] == ["lost", "{", '"hits":']
    assert words[-7:] == ["2", "1", "143", "0", "2", "2", "1"]
    applied, ended, *refused = [line for line in ran.stderr.splitlines() if line.startswith("zoolet fault: ")]
    assert applied == "zoolet fault: lose_reply was applied 1 time"
    assert ended == "zoolet fault: delay was applied 0 times"
    assert "unknown fault or command 'teleport'; did you mean" in refused[0]
    assert "delay has no parameter 'speed'; its parameters are seconds, jitter" in refused[1]
    assert "0x5" in refused[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no server given; pass --admin URL"),
        (("--admin", "nowhere"), "--admin must be a URL such as http://127.0.0.1:8080/TOKEN, not 'nowhere'"),
        (("--admin", "http://127.0.0.1:1/x"), "cannot connect to 127.0.0.1:1: connection refused"),
        (("-Da=1",), "-D is not supported by this command: -Da"),
    ],
)
def test_missing_control_api_is_reported_in_one_line(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ZOOLET_ADMIN", raising=False)
    assert main(["fault", *words]) in (1, 2)
    [line] = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--load", "/nowhere", "--", "true"], "cannot read /nowhere: no such file or directory"),
        (["run", "--load", "/dev/null", "--", "true"], "/dev/null is not valid JSON: "),
        (["run", "--clock", "manual", "--", "true"], "--clock manual requires --admin"),
        (
            ["run", "--cluster", "3", "--port", "65535"],
            "--port must be a whole number from 0 to 65533 with ",
        ),
        (["run", "--seed", "x"], "--seed must be a whole number, not 'x'; see 'zoolet run --help'"),
        (["run", "--clock", "fast"], "--clock must be one of real, manual, not 'fast'; see 'zoolet run --help'"),
        (["run", "--port", "65536"], "--port must be a whole number from 0 to 65535, not '65536'"),
        (["run", "--port"], "--port needs a value; see 'zoolet run --help'"),
        (["run", "-Dfoo=1", "true"], "command line: unknown key -Dfoo"),
        (["run", "--seed", "5", "true"], "--seed requires --admin"),
        (
            ["proxy", "a:1", "--record", "/nowhere/x", "--", "true"],
            "cannot write /nowhere/x: no such file or directory",
        ),
        (["proxy", "a:1", "--", "no-such-command"], "cannot run no-such-command: no such file or directory"),
        (["proxy", "nowhere"], "server must be host:port or [IPv6]:port, with a port from 1 to 65535, not 'nowhere'"),
        (["proxy", "-Dtick=1", "a:1"], "-D is not supported by this command: -Dtick"),
        (["proxy", "a:1", "--port", "TAKEN"], "cannot listen on 127.0.0.1:TAKEN: address already in use"),
        (["run", "--admin-port", "TAKEN"], "cannot listen on 127.0.0.1:TAKEN for HTTP: address already in use"),
    ],
)
def test_invalid_command_is_reported_in_one_line(words: list[str], message: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = zoolet(*(port if word == "TAKEN" else word for word in words))

    assert ran.returncode == (1 if "TAKEN" in words else 127 if "no-such-command" in words else 2)
    assert ran.stderr.startswith(f"zoolet {words[0]}: {message.replace('TAKEN', port)}")
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            b'HTTP/1.1 404 Not Found\r\nContent-Length: 14\r\n\r\n{"error":"no"}',
            "cannot use URL: 404 Not Found: no",
        ),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "URL is not a control API: 404 Not Found"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "URL is not a control API: the answer is not JSON"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
            "URL is not a control API: the answer has a different form",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "URL is not a control API: the answer is not JSON"),
        (b"", "cannot connect to SERVER: the server "),
    ],
)
def test_fault_command_explains_url_without_control_api(
    answer: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering_server(answer) as server:
        assert main(["fault", "--admin", f"http://{server}", "hold"]) == 1

    expected = message.replace("URL", f"http://{server}/commands").replace("SERVER", server)
    assert capsys.readouterr().err.startswith(f"zoolet fault: {expected}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["times=1", "times=2"], "times= is given twice"),
        (["=1"], "expected PARAMETER=VALUE, found '=1'"),
    ],
)
def test_wrong_parameter_of_fault_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("h11")
    with Server(admin=True) as server:
        assert server.admin_url is not None
        assert main(["fault", "--admin", server.admin_url.rstrip("/"), "lose_reply", *words]) == 2

    assert capsys.readouterr().err == f"zoolet fault: {message}\n"


def test_invalid_tree_is_reported_in_one_line(tmp_path: Path) -> None:
    tree = tmp_path / "tree.json"
    tree.write_text('{"/a": 7}')

    ran = zoolet("run", "--load", tree, "true")

    assert (ran.returncode, ran.stderr) == (
        2,
        f'zoolet run: {tree} is invalid: /a: data must be text, null, or {{"base64": "..."}}, not 7\n',
    )


def test_proxy_records_requests_of_command(tmp_path: Path) -> None:
    code = "import os\nfrom kazoo.client import KazooClient as K\nz=K(os.environ['ZOOKEEPER_HOSTS'])\nz.start()\n"
    file = tmp_path / "recording"
    with Server() as server:
        ran = zoolet(
            "proxy", server.hosts, "--record", file, "--", sys.executable, "-c", f"{code}z.create('/a', b'1')\nz.stop()"
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        assert server.tree()["/a"].data == b"1"

    Recording.load(file).assert_ops("connect", "create /a", "closeSession")


def test_proxy_runs_until_terminated(tmp_path: Path) -> None:
    file = tmp_path / "recording"
    with Server() as server:
        words = [*ZOOLET, "proxy", server.hosts, "--record", file]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready.startswith("zoolet ready on 127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
        process.stdout.close()

    assert len(Recording.load(file)) == 0


def test_proxy_is_controlled_over_http() -> None:
    pytest.importorskip("h11")
    script = """
import json, os, urllib.request
body = json.dumps({"action": "lose_reply", "op": "create"}).encode()
url = os.environ["ZOOLET_ADMIN"] + "/commands/fault"
print(json.load(urllib.request.urlopen(url, body)))
"""
    with Server() as server:
        ran = zoolet("proxy", server.hosts, "--admin", "--", sys.executable, "-c", script)

    assert (ran.stdout, ran.stderr) == ("{'result': 1}\n", "")


# --- the examples of the documentation ---

PAGE: Final = Path(__file__).parents[2] / "docs" / "testing-other-languages.md"


def example(language: str) -> str:
    """Return the example in a language."""
    return PAGE.read_text().partition(f"```{language}\n")[2].partition("```")[0]


def test_java_example_passes(tmp_path: Path) -> None:
    pytest.importorskip("h11")
    if shutil.which("javac") is None:
        reason = "needs a JDK: apt-get install default-jdk-headless"
        pytest.fail(reason) if os.environ.get("ZOOLET_REQUIRE_APACHE") == "1" else pytest.skip(reason)
    require_apache()  # needed for the jar of the client
    (tmp_path / "ExpireTest.java").write_text(example("java"))
    jars = ":".join(map(str, server_jars("3.8")))

    ran = zoolet("run", "--admin", "--", "java", "-cp", jars, tmp_path / "ExpireTest.java")

    assert ran.stdout.splitlines()[-1:] == ["the node is there: false"], ran.stderr


def test_node_example_passes(tmp_path: Path) -> None:
    pytest.importorskip("h11")
    if shutil.which("npm") is None:
        pytest.skip("needs Node.js 18 or newer, and npm")
    npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(tmp_path), "node-zookeeper-client"]
    try:
        subprocess.run(npm, capture_output=True, check=True, timeout=DEADLINE_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):  # offline, npm tries for minutes
        pytest.skip("npm cannot install node-zookeeper-client")
    (tmp_path / "expire.test.mjs").write_text(example("javascript"))

    ran = zoolet("run", "--admin", "--", "node", tmp_path / "expire.test.mjs")

    assert (ran.stdout, ran.returncode) == ("the node is there: false\n", 0), ran.stderr


def test_go_example_passes(tmp_path: Path) -> None:
    pytest.importorskip("h11")
    if shutil.which("go") is None:
        pytest.skip("needs Go")
    (tmp_path / "expire_test.go").write_text(example("go"))
    (tmp_path / "go.mod").write_text("module expire\n\ngo 1.20\n\nrequire github.com/go-zookeeper/zk v1.0.4\n")
    if subprocess.run(["go", "mod", "tidy"], cwd=tmp_path, capture_output=True, check=False).returncode:
        pytest.skip("go cannot download github.com/go-zookeeper/zk")

    ran = zoolet("run", "--admin", "--", "go", "test", "-C", tmp_path)

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_index_of_control_api_matches_documented_example() -> None:
    assert json.loads(example("json")) == Control(Server()).index()["wait_for_sessions"]


def test_fault_command_has_help_of_each_fault_action() -> None:
    assert list(fault.FAULTS) == list(ACTIONS)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("foo=1", "lose_reply has no parameter 'foo'; its parameters are op, path, client, nth, probability, times"),
        ("seconds=1", "lose_reply has no parameter 'seconds'; its parameters are op, path, client, nth, "),
        ("op", "op needs a value: op=VALUE"),
    ],
)
def test_parameter_that_fault_does_not_have_is_reported(word: str, message: str) -> None:
    known = fault._fault_parameters("lose_reply", Control(Server()).index()["fault"]["parameters"])
    with pytest.raises(ConfigError) as caught:
        fault._parse_parameter("lose_reply", word, known)
    assert str(caught.value).startswith(message)
