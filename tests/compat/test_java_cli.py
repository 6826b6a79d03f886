"""The Java client and its command line, unmodified, against the daemon."""

from __future__ import annotations

import subprocess

import pytest
from support.apache import JARS, NEEDED_JARS, require_apache
from support.daemon import DaemonProcess
from support.waiting import DEADLINE_S

COMMANDS = """\
create /app one
create -e /app/live two
create -s /app/seq- three
create -c /box
create -t 100000 /app/ttl four
set -s /app five
get -s /app
ls /app
stat /app/live
setAcl /app/live world:anyone:cdrwa
getAcl /app/live
addauth digest u:p
whoami
getAllChildrenNumber /app
getEphemerals
addWatch -m PERSISTENT /app
set /app six
delete /app/ttl
deleteall /box
sync /app
quit
"""


@pytest.mark.slow
def test_java_command_line_prints_expected_output_on_zoolet() -> None:
    require_apache()
    jars = ":".join(str(jar) for pattern in (*NEEDED_JARS, "jline*.jar") for jar in sorted(JARS.glob(pattern)))

    with DaemonProcess("-Dzookeeper.maxClientCnxns=0") as daemon:
        done = subprocess.run(
            ["java", "-cp", jars, "org.apache.zookeeper.ZooKeeperMain", "-server", daemon.hosts],
            input=COMMANDS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            timeout=DEADLINE_S,
        )  # fmt: skip

    output = done.stdout
    expected = [
        "Created /app",
        "Created /app/live",
        "Created /app/seq-0000000001",
        "Created /box",
        "Created /app/ttl",
        "five",
        "dataVersion = 1",
        "numChildren = 3",
        "[live, seq-0000000001, ttl]",
        "'world,'anyone",
        "digest: u",
        "/app/live",
        "type:NodeDataChanged path:/app",
        "type:NodeChildrenChanged path:/app",
        "Sync is OK",
    ]
    assert [line for line in expected if line not in output] == [], output
    assert "Exception" not in output
