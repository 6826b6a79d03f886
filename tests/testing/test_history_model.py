"""Snapshots and restores of all kinds agree with a model."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.embedded import all_nodes
from support.wire import EPHEMERAL, SEQUENTIAL, Wire

from zoolet.protocol import multi
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.operations import OpCode
from zoolet.testing import Server
from zoolet.testing.state.views import NodeView

NAMES: Final = st.sampled_from(["a", "b", "c"])
PATHS: Final = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
STEPS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("create"), PATHS),
        st.tuples(st.just("create"), PATHS),
        st.tuples(st.just("sequential"), PATHS),
        st.tuples(st.just("ephemeral"), PATHS),
        st.tuples(st.just("set"), PATHS),
        st.tuples(st.just("set_acl"), PATHS),
        st.tuples(st.just("delete"), PATHS),
        st.tuples(st.just("failing"), PATHS),
        st.tuples(st.just("snapshot"), PATHS),
        st.tuples(st.just("restore"), st.integers(0, 9)),
        st.tuples(st.just("restore"), st.integers(0, 9)),
        st.tuples(st.just("reconnect"), st.just("")),
    ),
    min_size=5,
    max_size=40,
)


class Model:
    """The expected tree: data, versions and sequence counters by path.

    Attributes:
        nodes: For each path its data, version, ACL version, number of children ever created, and owner.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int, int, int, int]] = {"": (b"", 0, 0, 0, 0)}

    def makes(self, path: str, owner: int = 0) -> bool:
        """Create a node if possible. Return whether the node was created."""
        above = path.rpartition("/")[0]
        if path in self.nodes or above not in self.nodes or self.nodes[above][4]:
            return False
        value, version, aversion, made, its_owner = self.nodes[above]
        self.nodes[above] = value, version, aversion, made + 1, its_owner
        self.nodes[path] = b"", 0, 0, 0, owner
        return True

    def drops(self, path: str) -> bool:
        """Remove a node if possible. Return whether the node was removed."""
        if path not in self.nodes or any(other.startswith(path + "/") for other in self.nodes):
            return False
        del self.nodes[path]
        return True

    def agrees(self, server: Server, wire: Wire) -> None:
        """Compare the model with a server."""
        tree = server.tree()
        expected = {path: node for path, node in self.nodes.items() if path}
        assert {p: (n.data, n.version, n.aversion, n.ephemeral_owner) for p, n in tree.items()} == {
            path: (value, version, aversion, owner) for path, (value, version, aversion, _, owner) in expected.items()
        }
        for path in expected:
            below = sorted(other[len(path) + 1 :] for other in expected if other.rpartition("/")[0] == path)
            assert wire.children(path) == below
            assert tree[path].num_children == len(below)


@given(STEPS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_snapshots_and_restores_agree_with_model(steps: list[tuple[str, Any]]) -> None:
    kept: list[tuple[Any, dict[str, NodeView], dict[str, tuple[bytes, int, int, int, int]]]] = []
    model = Model()
    with Server() as server, Wire(server).welcomed() as reader, ExitStack() as wires:
        wire = wires.enter_context(Wire(server)).welcomed()
        dead: set[int] = set()
        for number, (what, where) in enumerate(steps):
            if what == "create":
                assert (wire.create(where) == 0) == model.makes(where)
            elif what == "ephemeral":
                assert (wire.create(where, EPHEMERAL) == 0) == model.makes(where, wire.id)
            elif what == "sequential" and where in model.nodes and not model.nodes[where][4]:
                name = f"{where}/s{model.nodes[where][3]:010d}"
                assert wire.sequential(f"{where}/s") == name
                assert model.makes(name)
            elif what == "set" and where in model.nodes:
                value = b"%d" % number
                assert wire.set_data(where, value) == 0
                _, version, *others = model.nodes[where]
                model.nodes[where] = (value, version + 1, *others)  # type: ignore[assignment]
            elif what == "set_acl" and where in model.nodes:
                assert wire.ask(OpCode.SET_ACL, r.SetACLRequest(where, OPEN_ACL_UNSAFE, -1)) == 0
                value, version, aversion, *others = model.nodes[where]
                model.nodes[where] = (value, version, aversion + 1, *others)  # type: ignore[assignment]
            elif what == "delete":
                assert (wire.delete(where) == 0) == model.drops(where)
            elif what == "failing":
                parts = [
                    (OpCode.CREATE, r.CreateRequest("/t", b"", OPEN_ACL_UNSAFE, SEQUENTIAL)),
                    (OpCode.SET_DATA, r.SetDataRequest(where, b"never", -1)),
                    (OpCode.DELETE, r.DeleteRequest("/nowhere", -1)),
                ]
                wire.send(OpCode.MULTI, multi.encode_operations(parts))
                wire.reply()
            elif what == "reconnect":
                dead.add(wire.id)
                server.expire(wire.id)
                model.nodes = {path: node for path, node in model.nodes.items() if node[4] not in dead}
                wire = wires.enter_context(Wire(server)).welcomed()
            elif what == "snapshot":
                kept.append((server.snapshot(), all_nodes(server), dict(model.nodes)))
            elif what == "restore" and kept:
                snapshot, tree, nodes = kept[where % len(kept)]
                server.restore(snapshot)
                model.nodes = {path: node for path, node in nodes.items() if node[4] not in dead}
                if len(model.nodes) == len(nodes):
                    assert all_nodes(server) == tree
            model.agrees(server, reader)
