"""``zoolet serve --observe``: the daemon as an observer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from support.calls import create
from support.fake_leader import FakeLeader, LeaderPort
from support.waiting import DEADLINE_S

from zoolet.cli.program import main
from zoolet.client import Client
from zoolet.client.four_letters import send_command
from zoolet.client.wire.hosts import Address

SERVE_OBSERVER = (sys.executable, "-m", "zoolet", "serve", "--port", "0", "--observe-read-only")


async def start_observer(*options: str) -> asyncio.subprocess.Process:
    """Start a daemon."""
    pipe = subprocess.PIPE
    return await asyncio.create_subprocess_exec(*SERVE_OBSERVER, *options, stdout=pipe, stderr=pipe, env=os.environ)


async def test_daemon_serves_reads_of_the_ensemble() -> None:
    leader = FakeLeader()
    create(leader.peer, "/config", data=b"v1")
    leader.commit()
    async with LeaderPort(leader) as port, asyncio.timeout(DEADLINE_S):
        process = await start_observer("--observe", port.address, "--sid", "101", "-D4lw.commands.whitelist=*")
        assert process.stdout is not None
        assert process.stderr is not None
        hosts = (await process.stdout.readline()).decode().split()[-1]
        async with Client(hosts, read_only=True) as client:
            assert (await client.get("/config"))[0] == b"v1"
        host, _, number = hosts.partition(":")
        answer = await send_command(Address(host, int(number)), "srvr", 10.0)
        process.send_signal(signal.SIGUSR2)
        while b"an observer is always read-only" not in (await process.stderr.readline()):
            pass
        process.terminate()
        await process.communicate()

    assert "Mode: observer" in answer
    assert process.returncode == 0


async def test_console_shows_history_without_client_port() -> None:
    leader = FakeLeader()
    create(leader.peer, "/config", data=b"v1")
    leader.commit()
    command = (sys.executable, "-m", "zoolet", "console", "--observe")
    async with LeaderPort(leader) as port, asyncio.timeout(DEADLINE_S):
        process = await asyncio.create_subprocess_exec(*command, port.address, stdout=subprocess.PIPE)
        assert process.stdout is not None
        url, token = [(await process.stdout.readline()).decode().split()[-1] for _ in range(2)]

        async def facts(name: str, body: bytes | None = None) -> Any:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            request = urllib.request.Request(f"{url}console/api/{name}", body, headers)
            answer = await asyncio.to_thread(urllib.request.urlopen, request, timeout=DEADLINE_S)
            with answer:
                return json.load(answer)

        while (await facts("overview"))["health"]:
            await asyncio.sleep(0.01)
        create(leader.peer, "/by-someone")
        port.push()
        while not (entries := (await facts("history"))["entries"]):
            await asyncio.sleep(0.01)
        about = await facts("about")
        with pytest.raises(urllib.error.HTTPError) as refused:
            await facts("change/create", b'{"path": "/x", "base64": ""}')
        refused.value.close()
        name = f"observer of {port.address}"
        process.terminate()
        await process.communicate()

    assert entries[0]["changes"][0][:2] == ["create", "/by-someone"]
    assert (about["name"], about["changes"]) == (name, [])


async def test_observer_with_sid_of_voting_member_is_refused() -> None:
    leader = FakeLeader(config=b"server.100=a:1:2:participant;3\nversion=0")
    async with LeaderPort(leader) as port, asyncio.timeout(DEADLINE_S):
        process = await start_observer("--observe", port.address, "--log-level", "error")
        _, err = await process.communicate()

    assert process.returncode == 2
    assert err.decode() == (
        "zoolet serve: --observe: sid 100 is the number of a voting member of the ensemble; choose a number that no "
        "member has, such as 101\n"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--observe zk1:2888", "--observe requires --observe-read-only: forwarding writes"),
        ("--sid 5", "--sid requires --observe"),
        ("--observe-read-only", "--observe-read-only requires --observe"),
        ("--observe zk1 --observe-read-only", "--observe: server must be host:port or [IPv6]:port"),
        ("--observe zk1:2888 --observe-read-only --sid 200", "--sid must be a whole number from 1 to 127"),
        ("--observe zk1:2888 --observe-read-only --sid x", "--sid must be a whole number, not 'x'"),
    ],
)
def test_observer_with_invalid_usage_exits_with_2(
    options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["serve", *options.split()])
    except SystemExit as exit_:
        code = exit_.code

    [line] = capsys.readouterr().err.splitlines()
    assert code == 2
    assert message in line


def test_data_directory_of_observer_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["serve", "--observe", "zk1:2888", "--observe-read-only", "--data-dir", str(tmp_path)])

    assert code == 2
    assert "an observer keeps its data in memory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("zk1:2181 --observe zk1:2888", "--observe replaces HOSTS: remove 'zk1:2181'"),
        ("--sid 5", "--sid requires --observe"),
        ("--observe zk1", "--observe: server must be host:port"),
        ("--observe zk1:2888 --sid 0", "--sid must be a whole number from 1 to 127, not 0"),
        ("--observe zk1:2888 --auth digest:u:p", "without --auth and --tls-...: remove those options"),
    ],
)
def test_console_explains_invalid_options_of_observer(
    options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["console", *options.split()]) == 2
    assert message in capsys.readouterr().err
