"""The audit log: a line for each write, with the user, address, operation and result."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest
from support.calls import connect_peer, create_op, delete_op, engine_with_settings, multi, set_op
from support.peer import Peer

from zoolet.protocol.errors import BadArgumentsError, NodeExistsError, NoNodeError, NotReadOnlyError
from zoolet.server.admin import audit as module
from zoolet.server.admin.audit import EPHEMERAL_DELETED, audit_sessions, audited_table, server_line
from zoolet.server.core.engine import Engine


def audit(engine: Engine) -> list[dict[str, str]]:
    """Enable the audit log of an engine. Return a list that receives its lines, split into fields."""
    lines: list[dict[str, str]] = []

    def write(text: str) -> None:
        found = [[field.split("=", 1) for field in line.split("\t")] for line in text.split("\n")]
        lines.extend(map(dict, found))  # type: ignore[arg-type] # each has two parts

    engine.wrap_dispatch(lambda table: audited_table(table, write))
    audit_sessions(engine, write)
    return lines


def audited_peer() -> tuple[Peer, list[dict[str, str]]]:
    """Return a client of an audited engine, and the list of audit lines."""
    engine = engine_with_settings()
    lines = audit(engine)
    return connect_peer(engine), lines


def test_audit_log_has_writes_but_not_reads() -> None:
    peer, lines = audited_peer()
    assert peer.welcome is not None

    peer.create("/a", b"secret", 1)
    peer.get("/a")

    session = f"0x{peer.welcome.session_id:x}"
    assert lines == [
        {
            "session": session,
            "user": "127.0.0.1",
            "ip": "127.0.0.1",
            "operation": "create",
            "znode": "/a",
            "znode_type": "ephemeral",
            "result": "success",
        }
    ]


def test_refused_request_is_audited() -> None:
    peer, lines = audited_peer()
    peer.create("/a")
    with pytest.raises(NodeExistsError):
        peer.create("/a")
    with pytest.raises(NoNodeError):
        peer.delete("/none")

    assert [(line["operation"], line["znode"], line["result"]) for line in lines] == [
        ("create", "/a", "success"),
        ("create", "/a", "failure"),
        ("delete", "/none", "failure"),
    ]


def test_audit_log_has_line_for_each_operation_of_transaction() -> None:
    peer, lines = audited_peer()
    peer.create("/a")
    multi(peer, set_op("/a"), delete_op("/a"))
    multi(peer, set_op("/a"), delete_op("/b"))

    assert [(line["operation"], line["znode"], line["result"]) for line in lines[1:]] == [
        ("setData", "/a", "success"),
        ("delete", "/a", "success"),
        ("setData", "/a", "failure"),
        ("delete", "/b", "failure"),
    ]


def test_audit_lines_of_one_request_are_written_together() -> None:
    engine, written = engine_with_settings(), []
    engine.wrap_dispatch(lambda table: audited_table(table, written.append))
    audit_sessions(engine, written.append)
    peer = connect_peer(engine)

    multi(peer, *[create_op(f"/{number}", flags=1) for number in range(700)])
    peer.close()

    assert sum(text.count("\toperation=") for text in written) == 2 * 700
    assert sum(text.count("\n") + 1 for text in written) == 2 * 700
    assert len(written) < 10
    assert max(map(len, written)) < 32_000


def test_transaction_above_limit_has_one_audit_line() -> None:
    engine = engine_with_settings(max_multi_operations=2)
    lines = audit(engine)

    multi(connect_peer(engine), *[create_op(f"/{number}") for number in range(3)])

    assert [(line["operation"], line["result"]) for line in lines] == [("multiOperation", "failure")]


def test_audit_field_is_escaped_before_it_is_truncated() -> None:
    peer, lines = audited_peer()

    with suppress(BadArgumentsError):
        peer.create("/" + "\U000e0001" * 500)

    assert lines[-1]["znode"].startswith("/\\U000e0001\\U000e0001")
    assert len(lines[-1]["znode"]) == 1003


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_failed_transaction_is_audited_as_failure(failing: int) -> None:
    peer, lines = audited_peer()
    for path in ("/0", "/1", "/2"):
        peer.create(path)
    lines.clear()

    multi(peer, *(set_op(f"/{number}", 7 if number == failing else -1) for number in range(3)))

    assert [(line["znode"], line["result"]) for line in lines] == [(f"/{number}", "failure") for number in range(3)]


def test_path_cannot_forge_audit_field_or_line() -> None:
    peer, lines = audited_peer()
    try:
        peer.create("/a\tresult=success\n")
    except Exception:
        pass

    assert lines[-1]["znode"] == r"/a\tresult=success\n"
    assert lines[-1]["result"] == "failure"


def test_audit_line_hides_password_hash() -> None:
    peer, lines = audited_peer()
    peer.auth("digest", b"bob:secret")

    peer.create("/a")

    assert lines[-1]["user"] == "bob"


def test_audit_line_has_complete_certificate_subject() -> None:
    peer, lines = audited_peer()
    peer.client.add_id("x509", "CN=alice:x")

    peer.create("/a")

    assert lines[-1]["user"] == "CN=alice:x"


@pytest.mark.parametrize("expires", [False, True])
def test_deletion_of_ephemeral_with_session_is_audited(monkeypatch: pytest.MonkeyPatch, expires: bool) -> None:
    monkeypatch.setattr(module, "_own_user", lambda: "zoolet")
    peer, lines = audited_peer()
    (session,) = peer.engine.sessions.alive.values()
    for path, mode in (("/a", 1), ("/b", 1), ("/stays", 0)):
        peer.create(path, b"", mode)
    lines.clear()

    if expires:
        peer.engine.expire(session)
    else:
        peer.close()

    known = {"session": f"0x{session.id:x}", "user": "zoolet", "operation": EPHEMERAL_DELETED}
    assert sorted(lines, key=lambda line: line["znode"]) == [
        known | {"znode": "/a", "result": "success"},
        known | {"znode": "/b", "result": "success"},
    ]
    assert list(lines[0]) == ["session", "user", "operation", "znode", "result"]


def test_audit_keeps_existing_session_listener() -> None:
    engine, heard = engine_with_settings(), []
    engine.on_session = lambda what, session_id, client: heard.append(what)
    audit(engine)

    connect_peer(engine).close()

    assert heard == ["opened", "closed"]


def test_audit_line_has_uid_if_user_name_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise OSError("no username set in the environment")

    module._own_user.cache_clear()
    monkeypatch.setattr(module.getpass, "getuser", nameless)
    line = server_line("serverStop", "invoked")
    module._own_user.cache_clear()

    assert line == f"user={os.getuid()}\toperation=serverStop\tresult=invoked"


@pytest.mark.parametrize("operation", ["create", "delete", "setData", "multi"])
def test_audit_line_has_path_of_write_refused_by_full_disk(operation: str) -> None:
    peer, lines = audited_peer()
    peer.engine.refuse_writes("the disk is full", frozen=False)
    do = {
        "create": lambda: peer.create("/a"),
        "delete": lambda: peer.delete("/a"),
        "setData": lambda: peer.set("/a", b""),
        "multi": lambda: multi(peer, set_op("/a")),
    }[operation]

    with suppress(NotReadOnlyError):  # a multi returns the error instead of raising it
        do()

    named = "setData" if operation == "multi" else operation
    assert [(line["operation"], line["znode"], line["result"]) for line in lines] == [(named, "/a", "failure")]
    assert not peer.client.closing


def test_audit_continues_after_read_only_mode() -> None:
    engine = engine_with_settings()
    lines = audit(engine)
    engine.set_read_only(True)
    engine.set_read_only(False)

    connect_peer(engine).create("/a")

    assert len(lines) == 1
