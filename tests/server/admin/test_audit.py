"""The audit log: a line for each write, with who, where, what and whether it was done."""

from __future__ import annotations

from contextlib import suppress

import pytest
from support.calls import connected, deleting, engine_with, multi, setting
from support.peer import Peer

from zoolet.protocol.errors import NodeExistsError, NoNodeError, NotReadOnlyError
from zoolet.server.admin.audit import audited
from zoolet.server.core.engine import Engine


def audit(engine: Engine) -> list[dict[str, str]]:
    """Audit an engine; return where its lines go, read into fields."""
    lines: list[dict[str, str]] = []

    def write(line: str) -> None:
        lines.append(dict(field.split("=", 1) for field in line.split("\t")))  # type: ignore[misc] # two parts

    engine.wrap_dispatch(lambda table: audited(table, write))
    return lines


def audited_peer() -> tuple[Peer, list[dict[str, str]]]:
    """Return a peer of an audited engine, and the lines."""
    engine = engine_with()
    lines = audit(engine)
    return connected(engine), lines


def test_a_write_has_a_line_and_a_read_has_none() -> None:
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


def test_what_is_refused_has_a_line_too() -> None:
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


def test_a_transaction_has_a_line_for_each_operation() -> None:
    peer, lines = audited_peer()
    peer.create("/a")
    multi(peer, setting("/a"), deleting("/a"))
    multi(peer, setting("/a"), deleting("/b"))

    assert [(line["operation"], line["znode"], line["result"]) for line in lines[1:]] == [
        ("setData", "/a", "success"),
        ("delete", "/a", "success"),
        ("setData", "/a", "failure"),
        ("delete", "/b", "failure"),
    ]


def test_a_path_adds_neither_a_field_nor_a_line() -> None:
    peer, lines = audited_peer()
    try:
        peer.create("/a\tresult=success\n")
    except Exception:
        pass

    assert lines[-1]["znode"] == r"/a\tresult=success\n"
    assert lines[-1]["result"] == "failure"


def test_a_user_is_named_without_the_hash_of_the_password() -> None:
    peer, lines = audited_peer()
    peer.auth("digest", b"bob:secret")

    peer.create("/a")

    assert lines[-1]["user"] == "bob"


@pytest.mark.parametrize("operation", ["create", "delete", "setData", "multi"])
def test_what_is_refused_while_nothing_can_be_logged_has_its_path(operation: str) -> None:
    peer, lines = audited_peer()
    peer.engine.refuse_writes("the disk is full", frozen=False)
    do = {
        "create": lambda: peer.create("/a"),
        "delete": lambda: peer.delete("/a"),
        "setData": lambda: peer.set("/a", b""),
        "multi": lambda: multi(peer, setting("/a")),
    }[operation]

    with suppress(NotReadOnlyError):  # a multi answers it
        do()

    named = "setData" if operation == "multi" else operation
    assert [(line["operation"], line["znode"], line["result"]) for line in lines] == [(named, "/a", "failure")]
    assert not peer.client.closing


def test_it_goes_on_after_read_only_mode() -> None:
    engine = engine_with()
    lines = audit(engine)
    engine.set_read_only(True)
    engine.set_read_only(False)

    connected(engine).create("/a")

    assert len(lines) == 1
