"""Descriptions of nodes in JSON, dumps and tests: all of them reject the same input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoolet.cli.transfer.files import FileError, Writer, read
from zoolet.cli.transfer.node import TransferNode
from zoolet.protocol.acl import ACL, Id
from zoolet.protocol.enums import MAX_TTL
from zoolet.protocol.node_json import JsonNode, NodeJsonError, node_json, parse_node
from zoolet.testing import Server, Znode

INVALID_NODES: list[tuple[float | None, bool, int]] = [
    (5.0, True, 0),
    (0.0, False, 0),
    (0.0001, False, 0),
    (-1.0, False, 0),
    (MAX_TTL / 1000 + 1, False, 0),
    (None, False, 1 << 31),
]


@pytest.mark.parametrize(("ttl", "container", "created"), INVALID_NODES)
def test_json_populate_and_dump_refuse_same_input(
    ttl: float | None, container: bool, created: int, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"$ttl": ttl, "$container": container, "$children_created": created}
    with pytest.raises(NodeJsonError) as of_json:
        parse_node(settings, "/a")
    with Server() as server, pytest.raises(ValueError, match="/a: ") as of_populate:
        server.populate({"/a": Znode(ttl=ttl, container=container, children_created=created)})
    assert str(of_json.value) == str(of_populate.value)
    milliseconds = None if ttl is None else int(ttl * 1000)
    with Writer(tmp_path / "dump", "/") as writer:
        writer.write(TransferNode("/a", b"", None, created, milliseconds, container))
    writer.temporary.rename(tmp_path / "dump")
    with pytest.raises(FileError, match="an invalid node"):
        list(read(tmp_path / "dump"))


IDS = st.builds(Id, st.just("x509"), st.text())


@given(st.lists(st.builds(ACL, st.integers(-(1 << 31), (1 << 31) - 1), IDS), min_size=1))
def test_any_acl_survives_json_round_trip(entries: list[ACL]) -> None:
    node = JsonNode(b"", tuple(entries))

    assert parse_node(json.loads(json.dumps(node_json(node))), "/a")[0] == node
