"""Transfers while other clients make changes: the source, nodes of the target, unusual nodes, and dry runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from zoolet.__main__ import main
from zoolet.cli.transfer import source as source_module
from zoolet.cli.transfer.source import SourceTree
from zoolet.client import Client as AsyncClient
from zoolet.client import acl
from zoolet.client.blocking import Client
from zoolet.protocol.acl import ACL, Id
from zoolet.protocol.node_json import JsonNode, node_json
from zoolet.testing import Server, Znode, error

AUTH_OPTIONS: Final = ("--auth", "digest:user:secret")


# --- a tree that changes while it is read ---


async def read_during_changes(
    server: Server, changes: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> SourceTree:
    """Read ``/app`` one node at a time. After the root was read, call *changes*. Return the source.

    Its attribute ``read_paths`` contains the paths of the nodes that were read.
    """
    monkeypatch.setattr(source_module, "MAX_IN_FLIGHT", 1)
    async with AsyncClient(server.hosts) as client:
        source = SourceTree(client, "/app")
        await source.count()
        paths: list[str] = []
        async for batch in source.batches():
            if not paths:
                await asyncio.to_thread(changes)
            paths += [node.path for node in batch]
        source.read_paths = paths  # type: ignore[attr-defined]
    return source


async def test_nodes_recreated_during_transfer_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(seed=1) as server:
        server.populate({"/app": {"a": {"x": b"", "y": b""}, "b": b""}})

        def replace() -> None:
            with Client(server.hosts) as client, client.transaction() as transaction:
                for path in ("/app/a/x", "/app/a/y", "/app/a", "/app/b"):
                    transaction.delete(path)
                for path in ("/app/a", "/app/a/x", "/app/a/y", "/app/b"):
                    transaction.create(path, b"new")

        source = await read_during_changes(server, replace, monkeypatch)

    assert sorted(source.read_paths) == ["", "/a", "/a/x", "/a/y", "/b"]
    assert source.deleted == []


async def test_nodes_deleted_during_transfer_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(seed=1) as server:
        server.populate({"/app": {"a": {"x": b""}, "b": b"", "c": b""}})
        looked: list[str] = []
        real = source_module.read_states

        async def look(client: Any, paths: list[str]) -> Any:
            looked.extend(paths)
            if looked.count("/app/b") == 2:  # the second attempt to read the deleted nodes
                server.populate({"/app/c": b"again"})
            return await real(client, paths)

        monkeypatch.setattr(source_module, "read_states", look)

        def delete() -> None:
            for path in ("/app/a", "/app/b", "/app/c"):
                server.delete(path, recursive=True)

        source = await read_during_changes(server, delete, monkeypatch)

    assert sorted(source.read_paths) == ["", "/c"]
    assert sorted(source.deleted) == ["/app/a", "/app/b"]


async def test_node_deleted_before_listing_its_children_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(seed=1) as server:
        server.populate({"/app": {"a": {"x": b""}}})
        with server.fault(error("NO_NODE"), "get_children", "/app/a", times=2):
            source = await read_during_changes(server, lambda: None, monkeypatch)

    assert (source.read_paths, source.deleted) == ([""], ["/app/a"])


def test_dump_reports_deleted_nodes_and_succeeds(
    servers: tuple[Server, Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, _ = servers
    with first.fault(error("NO_NODE"), "get", "/app/a", times=2):
        assert main(["dump", f"{first.hosts}/app", str(tmp_path / "x"), *AUTH_OPTIONS]) == 0
    assert "; 1 ephemeral node left out; 1 node deleted during the transfer: /app/a\n" in capsys.readouterr().out


# --- nodes of the target ---


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_ephemeral_nodes_of_target_are_reported(
    servers: tuple[Server, Server], capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    first, second = servers
    second.populate({"/app": b"root"})
    with Client(second.hosts) as client:
        client.create("/app/a", b"1", ephemeral=True)
        assert main(["push", f"{first.hosts}/app", f"{second.hosts}/app", *AUTH_OPTIONS, *options]) == 1
        session = f"0x{client.session_id:x}"
    err = capsys.readouterr().err
    assert f"/app/a: an ephemeral node of session {session}; " in err
    assert "/app/a/b: N" in err


def test_dry_run_reports_unwritable_nodes(
    servers: tuple[Server, Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, second = servers
    second.populate({"/closed": Znode(b"", acl=acl.READ_ONLY), "/open": b""})
    before = second.tree()
    file = tmp_path / "tree.json"
    file.write_text(json.dumps({"/closed": "changed", "/closed/new/deep": "x", "/open/new/deep": "x"}))

    assert main(["load", second.hosts, str(file), "--dry-run"]) == 1

    out, err = capsys.readouterr()
    assert out.splitlines()[0].endswith("would be 2 created, 0 changed, 2 unchanged")
    assert out.splitlines()[1:] == ["create /open/new", "create /open/new/deep"]
    denied = "permission denied (authenticate with --auth)"
    assert f"/closed: {denied}; /closed/new: {denied}; /closed/new/deep: {denied}" in err
    assert second.tree() == before


def test_dry_run_succeeds_if_target_path_is_created_meanwhile(servers: tuple[Server, Server], tmp_path: Path) -> None:
    _, second = servers
    file = tmp_path / "tree.json"
    file.write_text('{"/a": "x", "/b/c": "y"}')
    with second.fault(error("NO_NODE"), "exists", "/new"), second.fault(error("NO_NODE"), "get", "/new/a", times=1):
        second.populate({"/new/a": b"theirs"})
        assert main(["load", f"{second.hosts}/new", str(file), "--dry-run"]) == 0
    assert set(second.tree("/new")) == {"/new", "/new/a"}


def test_dry_run_of_deep_tree_uses_few_transactions(servers: tuple[Server, Server], tmp_path: Path) -> None:
    _, second = servers
    file = tmp_path / "tree.json"
    file.write_text(json.dumps({"/n" * depth: "" for depth in range(1, 400)}))
    before = second.zxid()

    assert main(["load", f"{second.hosts}/new", str(file), "--dry-run"]) == 0

    assert second.zxid() - before < 5


def test_dry_run_reports_oversized_nodes_in_new_tree(
    servers: tuple[Server, Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tree.json"
    file.write_text(json.dumps({"/new/big": "x" * 1_048_575, "/new/fits": "x" * (1_048_575 - 200)}))
    dry, real = (main(["load", servers[1].hosts, str(file), *options]) for options in (["--dry-run"], []))
    assert (dry, real) == (1, 1)
    first, second = capsys.readouterr().err.splitlines()
    assert first == second


def test_data_of_root_survives_dump_and_load(servers: tuple[Server, Server], tmp_path: Path) -> None:
    first, second = servers
    first.set("/", b"data of the root")
    assert main(["dump", first.hosts, str(tmp_path / "x.json"), *AUTH_OPTIONS]) == 0
    assert main(["load", second.hosts, str(tmp_path / "x.json"), *AUTH_OPTIONS]) == 0
    with Client(second.hosts) as client:
        assert client.get("/")[0] == b"data of the root"


def test_dry_run_checks_permission_to_create_missing_parents(
    servers: tuple[Server, Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = servers[1]
    second.populate({"/closed": Znode(b"", acl=acl.READ_ONLY)})
    file = tmp_path / "tree.json"
    file.write_text('{"/a": "x"}')

    assert main(["load", f"{second.hosts}/open/new/root", str(file), "--dry-run"]) == 0
    assert "would be 2 created" in capsys.readouterr().out
    assert main(["load", f"{second.hosts}/closed/new/root", str(file), "--dry-run"]) == 1
    assert "would be 0 created" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["tree.dump", "tree.json", "export.JSON"])
def test_unusual_acls_survive_dump_and_load(servers: tuple[Server, Server], tmp_path: Path, name: str) -> None:
    first, second = servers
    world = Id("world", "anyone")
    odd = (0, 5, 63, -1, -(1 << 31))
    tree = {f"/n{number}": Znode(b"", acl=(ACL(perms, world), ACL(31, world))) for number, perms in enumerate(odd)}
    first.populate({"/odd": b""} | {f"/odd{path}": node for path, node in tree.items()})
    file = tmp_path / name
    if name.startswith("export"):
        source = {path.removeprefix("/odd"): node for path, node in first.tree("/odd").items() if path != "/odd"}
        file.write_text(json.dumps({path: node_json(JsonNode(node.data, node.acl)) for path, node in source.items()}))
    else:
        assert main(["dump", f"{first.hosts}/odd", str(file)]) == 0

    assert main(["load", f"{second.hosts}/odd", str(file)]) == 0

    for path in tree:
        assert second.tree()[f"/odd{path}"].acl == first.tree()[f"/odd{path}"].acl


def test_max_request_option_allows_large_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(2_000_000)
    config = {"jute.maxbuffer": 4_000_000}
    with Server(config=config) as first, Server(config=config) as second:
        first.populate({"/big": data})
        assert main(["dump", first.hosts, str(tmp_path / "file")]) == 0
        assert main(["load", second.hosts, str(tmp_path / "file")]) == 1
        assert main(["load", second.hosts, str(tmp_path / "file"), "--max-request", "4000000"]) == 0
        assert second.tree()["/big"].data == data
        monkeypatch.setenv("CLIENT_JVMFLAGS", "-Xmx64m -Djute.maxbuffer=0x3d0900")
        assert main(["push", f"{first.hosts}/big", f"{second.hosts}/copy"]) == 0
        assert second.tree()["/copy"].data == data
        monkeypatch.setenv("CLIENT_JVMFLAGS", "-Djute.maxbuffer=4m")
        assert main(["push", f"{first.hosts}/big", f"{second.hosts}/copy"]) == 2
