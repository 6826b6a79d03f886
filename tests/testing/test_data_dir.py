"""A test server with persistent data, and a test server with TLS."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from support.kazoo_clients import connected_client
from support.stored import recover_state
from support.tls_clients import client_context

from zoolet.client import Client, ConnectionLossError
from zoolet.server.storage.errors import StorageError
from zoolet.testing import Server


def test_data_outlives_server(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    with Server(data_dir=folder) as server:
        kazoo = KazooClient(server.hosts)
        kazoo.start()
        kazoo.create("/a", b"1")
        kazoo.create("/mine", ephemeral=True)
        shutil.copytree(folder, tmp_path / "killed")  # the files if the process were killed now
        with pytest.raises(StorageError, match="is using this directory"), Server(data_dir=folder):
            pass
    with Server(port=server._runner._port, data_dir=folder) as again:
        assert set(again.tree()) == {"/a", "/mine"}
        again.wait_for(lambda: kazoo.connected and kazoo.exists("/mine"))
        kazoo.stop()
        kazoo.close()
        again.wait_for(lambda: "/mine" not in again.tree())

    assert recover_state(tmp_path / "killed").tree.find("/a").data == b"1"
    assert recover_state(folder).tree.get("/mine") is None


def test_restored_and_reset_state_outlives_server(tmp_path: Path) -> None:
    with Server(data_dir=tmp_path) as server:
        server.populate({"/a": "1"})
        snapshot = server.snapshot()
        server.populate({"/b": "2"})
        server.restore(snapshot)
    assert [path for path, _ in recover_state(tmp_path).tree.walk() if "zookeeper" not in path] == ["/", "/a"]
    with server:
        server.populate({"/b": "2"})
        server.reset()  # to its initial state
        server.create("/c")
    with server:
        assert set(server.tree()) == {"/a", "/c"}


async def test_initial_data_is_loaded_and_not_written(tmp_path: Path) -> None:
    with Server(data_dir=tmp_path) as server:
        server.populate({"/a": "1"})
    before = {path.name: path.read_bytes() for path in (tmp_path / "version-2").iterdir()}

    async with Server(initial_data=tmp_path) as server, Client(server.hosts) as zk:
        await zk.create("/b")
        assert set(server.tree()) == {"/a", "/b"}
        server.reset()
        assert set(server.tree()) == {"/a"}

    assert {path.name: path.read_bytes() for path in (tmp_path / "version-2").iterdir()} == before
    with pytest.raises(ValueError, match="cannot be combined"):
        Server(data_dir=tmp_path, initial_data=tmp_path)


def test_ephemeral_created_by_server_is_not_a_leak() -> None:
    with Server() as server:
        held = server.create("/lock/n-", b"they", ephemeral=True, sequential=True)
        assert held == "/lock/n-0000000000"
        owner = server.tree()[held].ephemeral_owner
        assert owner
        server.wait_for_sessions(0)
        assert server.leaks() == []
        server.expire(owner)
        assert held not in server.tree()
        assert server.create("/lock/n-", ephemeral=True, sequential=True) == "/lock/n-0000000001"


async def test_server_serves_tls_with_generated_certificate() -> None:
    pytest.importorskip("cryptography")
    async with Server(tls=True) as server:
        context = client_context(server.tls_ca)
        async with Client(server.hosts, tls=context) as zk:
            await zk.create("/a", b"1")
            server.refuse_connections()
            server.drop(zk)
            server.accept_connections()
            assert (await zk.get("/a"))[0] == b"1"
        with pytest.raises(ConnectionLossError, match="no server was reached"):
            await Client(server.hosts, timeout=0.5).start()


def test_kazoo_connects_over_tls() -> None:
    pytest.importorskip("cryptography")
    with Server(tls=True) as server:
        with connected_client(server.hosts, use_ssl=True, ca=server.tls_ca) as kazoo:
            kazoo.create("/a", b"1")
