"""A server on a Unix socket: clients and commands, the identity of clients, the file, and a socket in use."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.engine import assemble_daemon

from zoolet.client import Client
from zoolet.client import acl as acls
from zoolet.client.four_letters import send_command
from zoolet.client.wire.hosts import Hosts
from zoolet.protocol.errors import NoAuthError
from zoolet.server.config import ServerConfig
from zoolet.server.net.daemon import Daemon


@pytest.fixture
async def daemon() -> AsyncIterator[Daemon]:
    """A daemon that does not listen yet."""
    daemon = assemble_daemon(ServerConfig(whitelist=("*",)))
    yield daemon
    await daemon.stop(gracefully=False)


async def test_client_works_over_unix_socket(daemon: Daemon, tmp_path: Path) -> None:
    path = f"{tmp_path}/zoolet.sock"
    await daemon.start_unix(path)

    async with Client(f"unix:{path}") as zk:
        async with zk.watch("/a") as events:
            await zk.create("/a", b"1")
            assert (await anext(aiter(events))).path == "/a"


async def test_client_on_unix_socket_has_no_address(daemon: Daemon, tmp_path: Path) -> None:
    path = f"{tmp_path}/zoolet.sock"
    await daemon.start_unix(path)

    async with Client(f"unix:{path}") as zk:
        await zk.create("/a", b"", acl=acls.ip("0.0.0.0/0"))
        with pytest.raises(NoAuthError):
            await zk.get("/a")
        assert "unix:0" in await send_command(Hosts.parse(f"unix:{path}").addresses[0], "cons", 5)


async def test_socket_file_follows_umask_and_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "zoolet.sock"
    daemon = assemble_daemon(ServerConfig())
    before = os.umask(0o027)
    try:
        await daemon.start_unix(str(path))
    finally:
        os.umask(before)
    mode = os.stat(path).st_mode

    await daemon.stop(gracefully=False)

    assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o750)
    assert not path.exists()


async def test_socket_of_killed_server_is_replaced(daemon: Daemon, tmp_path: Path) -> None:
    path = f"{tmp_path}/zoolet.sock"
    left = assemble_daemon(ServerConfig())
    await left.start_unix(path)
    await daemon.start(None, 0)

    with pytest.raises(OSError, match="in use"):
        await daemon.start_unix(path)
    os.rename(path, f"{path}.kept")  # as after a kill, which leaves the socket file
    await left.stop(gracefully=False)
    os.rename(f"{path}.kept", path)
    await daemon.start_unix(path)

    async with Client(f"unix:{path}") as zk:
        await zk.create("/a", b"")


async def test_datagram_socket_is_not_replaced(daemon: Daemon, tmp_path: Path) -> None:
    path = f"{tmp_path}/datagrams"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(path)

        with pytest.raises(OSError, match="in use"):
            await daemon.start_unix(path)

        assert stat.S_ISSOCK(os.lstat(path).st_mode)


async def test_socket_with_full_backlog_is_not_replaced(daemon: Daemon, tmp_path: Path) -> None:
    path = f"{tmp_path}/stopped"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other, ExitStack() as waiting:
        other.bind(path)
        other.listen(0)
        for _ in range(3):
            client = waiting.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            client.setblocking(False)
            client.connect_ex(path)

        with pytest.raises(OSError, match="in use"):
            await daemon.start_unix(path)


async def test_stop_keeps_socket_file_of_next_server(daemon: Daemon, tmp_path: Path) -> None:
    path = f"{tmp_path}/zoolet.sock"
    first = assemble_daemon(ServerConfig())
    await first.start_unix(path)
    os.unlink(path)
    await daemon.start_unix(path)

    await first.stop(gracefully=False)

    assert stat.S_ISSOCK(os.lstat(path).st_mode)


async def test_host_limit_does_not_apply_to_unix_socket(tmp_path: Path) -> None:
    path = f"{tmp_path}/zoolet.sock"
    daemon = assemble_daemon(ServerConfig(max_client_cnxns=1, whitelist=("*",)))
    await daemon.start_unix(path)

    async with Client(f"unix:{path}") as one, Client(f"unix:{path}") as two:
        await one.create("/a", b"")
        assert await two.exists("/a")
    await daemon.stop(gracefully=False)


async def test_regular_file_is_not_replaced(daemon: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")

    with pytest.raises(OSError, match="in use"):
        await daemon.start_unix(str(path))

    assert path.read_text() == "mine"


def test_path_of_unix_socket_may_contain_comma() -> None:
    (address,) = Hosts.parse("unix:/run/a,b.sock").addresses

    assert (address.path, str(address)) == ("/run/a,b.sock", "unix:/run/a,b.sock")
    assert Hosts.parse("unix:2181").addresses[0].path == ""  # no path: here unix is the name of a host
