"""``zoolet dump``, ``load`` and ``push``: transferred data, omitted data, and errors on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from support.daemon import running_daemon
from support.tls_clients import AUTHORITY_OPTIONS, CERTIFICATE_OPTIONS, FILES
from support.transfers import SECRET
from support.waiting import DEADLINE_S

from zoolet.__main__ import main
from zoolet.cli.transfer import files
from zoolet.client import acl
from zoolet.client.blocking import Client
from zoolet.testing import Server, Znode, error, lose_reply


def read_tree(server: Server, root: str) -> dict[str, Any]:
    """Return data and ACL lists below a path."""
    tree = server.tree(root)
    return {
        path.removeprefix(root.rstrip("/")): (node.data, node.acl)
        for path, node in tree.items()
        if not node.ephemeral_owner
    }


AUTH_OPTIONS: Final = ("--auth", "digest:user:secret")


def test_push_copies_all_but_ephemeral_nodes(
    servers: tuple[Server, Server], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = servers

    assert main(["push", f"{first.hosts}/app", f"{second.hosts}/deep/copy", *AUTH_OPTIONS]) == 0

    assert capsys.readouterr().out == (
        f"{second.hosts}/deep/copy: 7 created, 0 changed, 0 unchanged, counters of 1 node raised; "
        "1 ephemeral node left out\n"
    )
    assert read_tree(second, "/deep/copy") == read_tree(first, "/app")
    with Client(first.hosts) as one, Client(second.hosts) as other:
        numbers = [
            one.create("/app/n-", b"", sequential=True)[-10:],
            other.create("/deep/copy/n-", b"", sequential=True)[-10:],
        ]
    assert numbers[0] == numbers[1]
    assert "/other" not in second.tree()


def test_second_push_writes_no_node(servers: tuple[Server, Server], capsys: pytest.CaptureFixture[str]) -> None:
    first, second = servers
    main(["push", f"{first.hosts}/app", f"{second.hosts}/deep/copy", *AUTH_OPTIONS])
    with second.recording() as recording:
        assert main(["push", f"{first.hosts}/app", f"{second.hosts}/deep/copy", *AUTH_OPTIONS]) == 0
    assert "0 created, 0 changed, 7 unchanged; 1" in capsys.readouterr().out
    assert {entry.op for entry in recording} == {"connect", "auth", "exists", "getData", "getACL", "closeSession"}


def test_dry_run_does_not_change_target(servers: tuple[Server, Server], capsys: pytest.CaptureFixture[str]) -> None:
    first, second = servers
    before = set(second.tree())
    assert main(["push", f"{first.hosts}/app", f"{second.hosts}/copy", "--dry-run", *AUTH_OPTIONS]) == 0
    assert ": would be 7 created, 0 changed, 0 unchanged" in capsys.readouterr().out
    assert set(second.tree()) == before


def test_push_overwrites_only_changed_nodes(servers: tuple[Server, Server], capsys: pytest.CaptureFixture[str]) -> None:
    first, second = servers
    main(["push", f"{first.hosts}/app", f"{second.hosts}/app", *AUTH_OPTIONS])
    first.set("/app/a", b"2")
    second.set("/app/binary", b"changed there")
    with Client(second.hosts) as client:
        client.set_acl("/app/ä", acl.READ_ONLY)
        client.create("/app/more", b"kept")
    assert main(["push", f"{first.hosts}/app", f"{second.hosts}/app", *AUTH_OPTIONS]) == 1
    out, err = capsys.readouterr()
    assert "0 created, 2 changed, 4 unchanged" in out
    assert "/app/ä: permission denied" in err  # the ACL that was set above does not allow push to restore it
    assert second.tree()["/app/a"].data == b"2"
    assert second.tree()["/app/binary"].data == b"\xff\xfe"
    assert second.tree()["/app/more"].data == b"kept"


@pytest.mark.parametrize("name", ["tree.dump", "tree.json"])
def test_load_of_dumped_file_restores_tree(
    servers: tuple[Server, Server], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    first, second = servers
    file = tmp_path / name

    assert main(["dump", f"{first.hosts}/app", str(file), *AUTH_OPTIONS]) == 0
    assert capsys.readouterr().out == f"{file}: 7 nodes of /app; 1 ephemeral node left out\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]
    assert main(["load", f"{second.hosts}/app", str(file), *AUTH_OPTIONS]) == 0
    assert "7 created" in capsys.readouterr().out
    assert main(["load", f"{second.hosts}/app", str(file), *AUTH_OPTIONS]) == 0
    assert "0 created, 0 changed, 7 unchanged\n" in capsys.readouterr().out

    assert read_tree(second, "/app") == read_tree(first, "/app")


def test_load_accepts_handwritten_json(servers: tuple[Server, Server], tmp_path: Path) -> None:
    _, second = servers
    file = tmp_path / "tree.json"
    file.write_text(
        json.dumps({"/a/b": "text", "box": {"$container": True, "in": None}, "/t": {"$ttl": 60, "$data": "x"}})
    )
    assert main(["load", second.hosts, str(file)]) == 0
    tree = second.tree()
    assert (tree["/a/b"].data, tree["/a"].data, tree["/box/in"].data) == (b"text", b"", None)
    assert tree["/box"].container
    assert tree["/t"].ttl == 60


def test_loaded_json_may_start_with_byte_order_mark(servers: tuple[Server, Server], tmp_path: Path) -> None:
    server, _ = servers
    (file := tmp_path / "tree.json").write_text('{"/marked": "one"}', encoding="utf-8-sig")
    (secrets := tmp_path / "secrets").write_text("digest:u:p\n", encoding="utf-8-sig")
    assert main(["load", server.hosts, str(file), "--auth", f"@{secrets}"]) == 0
    assert server.tree()["/marked"].data == b"one"


def test_deceptive_node_names_are_escaped_in_messages(
    servers: tuple[Server, Server], capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = servers
    source.populate({"/deceptive/\u202egnp.exe": b"1"})
    assert main(["push", f"{source.hosts}/deceptive", f"{target.hosts}/deceptive", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "create /deceptive/\\u202egnp.exe\n" in shown
    assert "\u202e" not in shown


def test_load_of_json_changes_only_given_fields_of_nodes(servers: tuple[Server, Server], tmp_path: Path) -> None:
    _, second = servers
    second.populate({"/a": Znode(b"kept", acl=SECRET), "/b": Znode(b"old", acl=SECRET)})
    file = tmp_path / "tree.json"
    file.write_text(json.dumps({"/a/child": "x", "/b": "new"}))
    assert main(["load", second.hosts, str(file), *AUTH_OPTIONS]) == 0
    tree = second.tree()
    assert (tree["/a"].data, tree["/a/child"].data, tree["/b"].data) == (b"kept", b"x", b"new")
    assert (tree["/a"].acl, tree["/b"].acl) == (SECRET, SECRET)


def test_dry_run_lists_planned_writes(
    servers: tuple[Server, Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, second = servers
    second.populate({"/b": b"old"} | {f"/n{number}": b"" for number in range(3)})
    file = tmp_path / "tree.json"
    file.write_text(json.dumps({"/b": "new"} | {f"/c{number:02d}": "" for number in range(30)}))
    assert main(["load", second.hosts, str(file), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("would be 30 created, 1 changed, 1 unchanged")
    assert lines[1:] == [f"create /c{number:02d}" for number in range(20)] + ["create 10 more", "change /b"]


def test_transfer_reports_oversized_node(servers: tuple[Server, Server], capsys: pytest.CaptureFixture[str]) -> None:
    first, second = servers
    first.populate({"/big": bytes(1_100_000), "/small": b""})
    assert main(["push", first.hosts, f"{second.hosts}/copy", *AUTH_OPTIONS]) == 1
    err = capsys.readouterr().err
    assert "/copy/big: the request has" in err
    assert "/copy/small" in second.tree()


def test_incomplete_dump_does_not_replace_file(
    servers: tuple[Server, Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tree.dump"
    assert main(["dump", f"{servers[0].hosts}/app", str(file), *AUTH_OPTIONS]) == 0
    before = file.read_bytes()
    assert main(["dump", f"{servers[0].hosts}/app", str(file)]) == 1
    assert file.read_bytes() == before
    assert f"the nodes that could be read are in {file}.part" in capsys.readouterr().err


def test_dump_writes_to_target_of_link_and_into_named_pipe(servers: tuple[Server, Server], tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target.json", tmp_path / "link.json", tmp_path / "pipe.json"
    target.write_text("")
    link.symlink_to(target)
    os.mkfifo(pipe)
    assert main(["dump", f"{servers[0].hosts}/app", str(link), *AUTH_OPTIONS]) == 0
    assert link.is_symlink()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(pipe.read_text)
        assert main(["dump", f"{servers[0].hosts}/app", str(pipe), *AUTH_OPTIONS]) == 0
        assert reading.result(DEADLINE_S) == target.read_text()


def test_node_with_masked_password_in_acl_is_not_pushed(
    servers: tuple[Server, Server], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = servers
    first.populate({"/app/shared": Znode(b"x", acl=(*acl.READ_ONLY, *acl.digest("owner", "password")))})
    assert main(["push", f"{first.hosts}/app", f"{second.hosts}/app", *AUTH_OPTIONS]) == 1
    assert "/app/shared: permission denied" in capsys.readouterr().err
    assert "/app/shared" not in second.tree()


def test_push_into_its_own_subtree_does_not_copy_the_copy() -> None:
    with Server("0.0.0.0") as server:
        server.populate({"/app/a": b"1"})
        port = server.hosts.rpartition(":")[2]
        assert main(["push", f"127.0.0.1:{port}/app", f"127.0.0.2:{port}/app/a/copy"]) == 0
        assert set(server.tree("/app")) == {"/app", "/app/a", "/app/a/copy", "/app/a/copy/a"}
        server.set("/app/a/copy", b"changed by another client")
        assert main(["push", f"127.0.0.1:{port}/app", f"127.0.0.2:{port}/app/a/copy"]) == 0
        assert set(server.tree("/app")) == {"/app", "/app/a", "/app/a/copy", "/app/a/copy/a"}


def test_concurrently_created_node_is_overwritten(servers: tuple[Server, Server]) -> None:
    first, second = servers
    with second.fault(error("NO_NODE"), "get", "/copy/a", times=1):  # as if the node had appeared after the check
        second.populate({"/copy/a": b"theirs"})
        assert main(["push", f"{first.hosts}/app", f"{second.hosts}/copy", *AUTH_OPTIONS]) == 0
    assert second.tree()["/copy/a"].data == b"1"


def test_load_restores_sequence_counter(servers: tuple[Server, Server], tmp_path: Path) -> None:
    file = tmp_path / "tree.json"
    file.write_text('{"/q": {"$data": "", "$children_created": 601}}')
    assert main(["load", servers[1].hosts, str(file)]) == 0
    with Client(servers[1].hosts) as client:
        assert client.create("/q/n-", b"", sequential=True) == "/q/n-0000000601"


def test_load_creates_missing_target_path(servers: tuple[Server, Server], tmp_path: Path) -> None:
    file = tmp_path / "tree.json"
    file.write_text('{"/a": "x"}')
    assert main(["load", f"{servers[1].hosts}/new/place", str(file)]) == 0
    assert servers[1].tree()["/new/place/a"].data == b"x"


def test_credentials_can_be_read_from_file(servers: tuple[Server, Server], tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("digest:user:secret\n")
    auth = ("--auth", f"@{tmp_path / 'credentials'}")
    assert main(["dump", f"{servers[0].hosts}/app", str(tmp_path / "x"), *auth]) == 0


@pytest.mark.slow
def test_transfer_works_over_tls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client = ("--tls-cert", str(FILES / "client.pem"), "--tls-key", str(FILES / "client-key.pem"))
    (tmp_path / "tree.json").write_text('{"/a": "x"}')
    with running_daemon("--secure-port", "0", *CERTIFICATE_OPTIONS, *AUTHORITY_OPTIONS) as daemon:
        hosts = f"localhost:{daemon.port()}"
        assert main(["load", hosts, str(tmp_path / "tree.json"), *AUTHORITY_OPTIONS, *client]) == 0
        assert main(["dump", f"{hosts}/a", str(tmp_path / "back.json"), *AUTHORITY_OPTIONS, *client]) == 0
        assert json.loads((tmp_path / "back.json").read_text()) == {"/": "x"}
        capsys.readouterr()
        assert hosts in refused(capsys, "dump", hosts, str(tmp_path / "x"), *AUTHORITY_OPTIONS, "--timeout", "1")


def test_unreadable_certificates_are_refused(
    servers: tuple[Server, Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = ("dump", servers[0].hosts, str(tmp_path / "x"))
    assert "nowhere.pem" in refused(capsys, *dump, "--tls-ca", str(tmp_path / "nowhere.pem"), code=2)
    assert "--tls-cert requires --tls-ca" in refused(capsys, *dump, "--tls-cert", "x", code=2)


def test_dump_over_tls_of_plain_port_explains_failure(
    servers: tuple[Server, Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = ("dump", servers[0].hosts, str(tmp_path / "tree"), "--timeout", "0.5", *AUTHORITY_OPTIONS)
    assert "cannot connect to " in (why := refused(capsys, *dump))
    assert "the port is plain" in why


def test_push_reports_unreadable_nodes(servers: tuple[Server, Server], capsys: pytest.CaptureFixture[str]) -> None:
    first, second = servers
    assert main(["push", f"{first.hosts}/app", f"{second.hosts}/app"]) == 1
    assert (
        "1 node and the nodes below could not be read: /app/secret: permission denied (authenticate with --auth"
        in capsys.readouterr().err
    )
    assert "/app/a/b" in second.tree()


@pytest.mark.parametrize("op", ["create", "get", "delete"])
def test_transfer_survives_lost_connection(servers: tuple[Server, Server], op: str) -> None:
    first, second = servers
    with second.fault(lose_reply(), op if op != "delete" else "multi", nth=1) as fault:
        assert main(["push", f"{first.hosts}/app", f"{second.hosts}/copy", *AUTH_OPTIONS]) == 0
        assert fault.hits == 1
    assert read_tree(second, "/copy") == read_tree(first, "/app")


def test_push_reports_unwritable_nodes(servers: tuple[Server, Server], capsys: pytest.CaptureFixture[str]) -> None:
    first, second = servers
    with second.fault(error("QUOTA_EXCEEDED"), "create", "/copy/a"):
        assert main(["push", f"{first.hosts}/app", f"{second.hosts}/copy", *AUTH_OPTIONS]) == 1
    err = capsys.readouterr().err
    assert "/copy/a: QUOTA_EXCEEDED" in err
    assert "/copy/a/b: NO_NODE" in err


# --- errors in one line ---


def refused(capsys: pytest.CaptureFixture[str], *words: str, code: int = 1) -> str:
    """Run a command that fails. Return its error message, which must be one line."""
    assert main(list(words)) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1), err
    return err


@pytest.mark.parametrize("size", [0, 1, 30, -1, -30])
def test_truncated_file_is_refused_before_writing(
    servers: tuple[Server, Server], tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    first, second = servers
    file = tmp_path / "tree.dump"
    main(["dump", f"{first.hosts}/app", str(file), *AUTH_OPTIONS])
    file.write_bytes(file.read_bytes()[:size])
    capsys.readouterr()
    before = set(second.tree())

    assert str(file) in refused(capsys, "load", second.hosts, str(file), code=2)

    assert set(second.tree()) == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "\x93\x01\x02\x03",
        '{"a": 1}',
        '{"/a": {"$unknown": 1}}',
        '{"/a//b": ""}',
        "[" * 100_000,
        '{"/a": {"$children_created": "9"}}',
        '{"/a": {"$acl": []}}',
        '{"/a": "\\ud800"}',
        '{"$data": 1}',
        '{"/a": "1", "/a": "2"}',
        '{"/a": {"b": ""}, "/a/b": ""}',
        '{"/a": {"$acl": "world:anyone:"}}',
        '{"/a": {"$acl": "world:anyone:2147483648"}}',
    ],
)
def test_files_in_unknown_formats_are_refused(
    servers: tuple[Server, Server], tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    for name in ("tree.dump", "tree.json"):
        file = tmp_path / name
        file.write_text(text)
        assert str(file) in refused(capsys, "load", servers[1].hosts, str(file), code=2)


@pytest.mark.parametrize(
    "value",
    [b"\xdc\0\x60" + b"\x90" * 96, b"\xdc\0\x60" + b"\x80" * 96, b"\xdc\0\xff"],
    ids=["lists", "maps", "length"],
)
def test_dump_with_too_many_values_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, value: bytes
) -> None:
    monkeypatch.setattr(files, "MAX_VALUES", 100)
    file = tmp_path / "tree.dump"
    file.write_bytes(b"\x82\xa6format\xabzoolet dump\xa7version\x01" + value)

    assert "is damaged after value 1: " in refused(capsys, "load", "127.0.0.1:1", str(file), code=2)


def test_load_refuses_device_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot read /dev/zero: a device may have no end" in refused(
        capsys, "load", "127.0.0.1:1", "/dev/zero", code=2
    )


def test_newer_dump_version_is_refused(
    servers: tuple[Server, Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tree.dump"
    main(["dump", f"{servers[0].hosts}/app", str(file), *AUTH_OPTIONS])
    file.write_bytes(file.read_bytes().replace(b"version\x01", b"version\x02"))
    capsys.readouterr()
    assert "is a dump of version 2; expected version 1" in refused(capsys, "load", servers[1].hosts, str(file), code=2)


def test_invalid_addresses_and_paths_are_refused(
    servers: tuple[Server, Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = servers
    assert "cannot connect to 127.0.0.1:1: connection refused" in refused(
        capsys, "dump", "127.0.0.1:1", str(tmp_path / "x"), "--timeout", "0.2"
    )
    assert "/nowhere" in refused(capsys, "push", f"{first.hosts}/nowhere", second.hosts)
    assert "copied into itself" in refused(capsys, "push", f"{first.hosts}/app", f"{first.hosts}/app/in")
    assert "hosts must be a string like" in refused(capsys, "dump", "/app", str(tmp_path / "x"), code=2)
    assert "--auth must be SCHEME:CREDENTIALS" in refused(
        capsys, "dump", first.hosts, str(tmp_path / "x"), "--auth", "x", code=2
    )
    assert f"cannot read {tmp_path}/x: no such file" in refused(
        capsys, "load", first.hosts, str(tmp_path / "x"), code=2
    )
    assert "is a directory" in refused(capsys, "load", first.hosts, str(tmp_path), code=2)
    missing = tmp_path / "none" / "x.json"
    assert f"{missing}: no such file" in refused(capsys, "dump", first.hosts, str(missing), code=2)
    assert list(tmp_path.iterdir()) == []


def test_dump_to_stdout_supports_pipes_and_append(servers: tuple[Server, Server], tmp_path: Path) -> None:
    main(["dump", f"{servers[0].hosts}/app", str(tmp_path / "file"), *AUTH_OPTIONS])
    dump = [sys.executable, "-m", "zoolet", "dump", f"{servers[0].hosts}/app", "-", *AUTH_OPTIONS]

    piped = subprocess.run(dump, stdout=subprocess.PIPE, check=True)
    target = tmp_path / "target"
    target.write_bytes(b"before")
    with target.open("ab") as stream:
        subprocess.run(dump, stdout=stream, check=True)
        stream.write(b"after")

    assert piped.stdout == (tmp_path / "file").read_bytes()
    assert target.read_bytes() == b"before" + piped.stdout + b"after"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "target"]

    load = [sys.executable, "-m", "zoolet", "load", f"{servers[1].hosts}/piped", "-", *AUTH_OPTIONS]
    subprocess.run(load, input=piped.stdout, check=True)
    assert read_tree(servers[1], "/piped").keys() == {
        path.replace("/app", "/piped") for path in read_tree(servers[0], "/app")
    }
