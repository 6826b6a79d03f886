"""The tree of nodes compared with a dictionary: the same requests, the same errors, names, Stats, data and zxids.

The model has no encodings and no caches, only the rules for the effect of each change on a node and its parent.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from support.engine import make_engine
from support.peer import Peer

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import Record
from zoolet.protocol.operations import OpCode

NOW = 1_700_000_000_000
OK = 0
BAD_ARGUMENTS, NO_NODE, BAD_VERSION, NO_CHILDREN_FOR_EPHEMERALS, NODE_EXISTS, NOT_EMPTY = (
    -8,
    -101,
    -103,
    -108,
    -110,
    -111,
)
EPHEMERAL, SEQUENTIAL, CONTAINER, TTL = (1, 3), (2, 3, 6), 4, (5, 6)
INITIAL_NODES = [  # path, cversion, aversion, numChildren
    ("/", -1, 0, 1),
    ("/zookeeper", -2, 0, 2),
    ("/zookeeper/quota", 0, 0, 0),
    ("/zookeeper/config", 0, -1, 0),
]


@dataclass
class Node:
    """The model's facts about a node: the facts that a client sees, and the number of children ever created."""

    data: bytes | None
    stat: r.Stat
    creates: int = 0


class Model:
    """A dictionary of nodes; every attempted write consumes a zxid, and the first broken rule determines the error."""

    def __init__(self, zxid: int) -> None:
        self.nodes = {
            path: Node(b"", r.Stat(*[0] * 5, *versions, 0, 0, count, 0)) for path, *versions, count in INITIAL_NODES
        }
        self.zxid = zxid
        self.now = NOW

    def create(self, path: str, data: bytes | None, flags: int, session: int) -> tuple[int, str]:
        self.zxid += 1
        above, _, name = path.rpartition("/")
        parent = self.nodes.get(above or "/")
        if parent is None:
            return NO_NODE, ""
        name += f"{parent.creates:010d}" * (flags in SEQUENTIAL)
        path = f"{above}/{name}"
        if path in self.nodes:
            return NODE_EXISTS, ""
        if name in ("", "."):
            return BAD_ARGUMENTS, ""
        if parent.stat.ephemeralOwner:
            return NO_CHILDREN_FOR_EPHEMERALS, ""
        z, t, owner = self.zxid, self.now, session * (flags in EPHEMERAL)
        self.nodes[path] = Node(data, r.Stat(z, z, t, t, 0, 0, 0, owner, len(data or b""), 0, z))
        parent.creates += 1
        self._change_children(parent.stat, +1)
        return OK, path

    def delete(self, path: str, version: int) -> int:
        self.zxid += 1
        if path in [boot[0] for boot in INITIAL_NODES]:
            return BAD_ARGUMENTS
        if path not in self.nodes:
            return NO_NODE
        if version not in (-1, self.nodes[path].stat.version):
            return BAD_VERSION
        if self.nodes[path].stat.numChildren:
            return NOT_EMPTY
        self._remove(path)
        return OK

    def set(self, path: str, data: bytes | None, version: int) -> int:
        self.zxid += 1
        if (node := self.nodes.get(path)) is None:
            return NO_NODE
        if version not in (-1, node.stat.version):
            return BAD_VERSION
        node.data, node.stat.dataLength, node.stat.version = data, len(data or b""), node.stat.version + 1
        node.stat.mzxid, node.stat.mtime = self.zxid, self.now
        return OK

    def end(self, session: int) -> None:
        self.zxid += 1
        for path in self.owned(session):
            self._remove(path)

    def owned(self, session: int) -> list[str]:
        return sorted(path for path, node in self.nodes.items() if node.stat.ephemeralOwner == session)

    def children(self, path: str) -> list[str]:
        splits = [one.rpartition("/") for one in self.nodes if one != "/"]
        return sorted(name for above, _, name in splits if (above or "/") == path)

    def _remove(self, path: str) -> None:
        del self.nodes[path]
        self._change_children(self.nodes[path.rpartition("/")[0] or "/"].stat, -1)

    def _change_children(self, parent: r.Stat, by: int) -> None:
        parent.cversion, parent.numChildren, parent.pzxid = parent.cversion + 1, parent.numChildren + by, self.zxid


names = st.sampled_from(["a", "a", "b", "c", "", "."])
place = st.integers(0, 11)
datas = st.sampled_from([None, b"", b"x", b"data"])
versions = st.sampled_from([-1, -1, -1, 0, 1, 2, -2])
flags = st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5, 6])
who = st.integers(0, 1)


class TreeMachine(RuleBasedStateMachine):
    """A state machine of two sessions that change one tree."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = make_engine(now=NOW)
        self.peers = [self.connected(), self.connected()]
        self.model = Model(zxid=2)

    def connected(self) -> Peer:
        peer = Peer(self.engine)
        assert peer.connect(timeout=40_000) is not None
        return peer

    def write(self, at: int, op: OpCode, body: Record) -> tuple[int, bytes]:
        """Send a write. Return its error code and body. Even a failed write must use the next zxid."""
        (reply,) = self.peers[at].send(op, body.encode())
        assert reply.zxid == self.model.zxid
        assert reply.err == OK or reply.body == b""
        return reply.err, reply.body

    def node(self, place: int) -> str:
        """Return a path, usually of an existing node that can be deleted."""
        changeable = sorted(set(self.model.nodes) - {boot[0] for boot in INITIAL_NODES})
        return [*changeable, "/", "/zookeeper", "/none/x"][place % (len(changeable) + 3)]

    def session(self, at: int) -> int:
        welcome = self.peers[at].welcome
        assert welcome is not None
        return welcome.session_id

    @rule(at=who, below=place, name=names, data=datas, flags=flags, stat=st.booleans())
    def create(self, at: int, below: int, name: str, data: bytes | None, flags: int, stat: bool) -> None:
        path = f"{self.node(below).rstrip('/')}/{name}"
        expected, final = self.model.create(path, data, flags, self.session(at))

        if flags in TTL:
            body: Record = r.CreateTTLRequest(path, data, OPEN_ACL_UNSAFE, flags, 1000)
            err, raw = self.write(at, OpCode.CREATE_TTL, body)
        else:
            op = OpCode.CREATE_CONTAINER if flags == CONTAINER else OpCode.CREATE2 if stat else OpCode.CREATE
            err, raw = self.write(at, op, r.CreateRequest(path, data, OPEN_ACL_UNSAFE, flags))

        assert err == expected
        if err == OK:
            assert r.CreateResponse.decode(raw).path == final
        if err == OK and (stat or flags >= CONTAINER):
            assert r.Create2Response.decode(raw).stat == self.model.nodes[final].stat

    @rule(at=who, place=place, version=versions)
    def delete(self, at: int, place: int, version: int) -> None:
        path = self.node(place)
        expected = self.model.delete(path, version)

        assert self.write(at, OpCode.DELETE, r.DeleteRequest(path, version)) == (expected, b"")

    @rule(at=who, place=place, data=datas, version=versions)
    def set_data(self, at: int, place: int, data: bytes | None, version: int) -> None:
        path = self.node(place)
        expected = self.model.set(path, data, version)

        err, raw = self.write(at, OpCode.SET_DATA, r.SetDataRequest(path, data, version))

        assert err == expected
        if err == OK:
            assert r.StatResponse.decode(raw).stat == self.model.nodes[path].stat

    @rule(at=who)
    def end_a_session(self, at: int) -> None:
        self.model.end(self.session(at))

        (reply,) = self.peers[at].close()

        assert (reply.err, reply.zxid) == (OK, self.model.zxid)
        self.peers[at] = self.connected()
        self.model.zxid += 1

    @rule(milliseconds=st.sampled_from([-1, 1, 1000]))
    def let_the_wall_clock_move(self, milliseconds: int) -> None:
        self.model.now += milliseconds
        self.engine.set_time(self.model.now, self.engine.monotonic_ms)

    @invariant()
    def everything_a_client_can_read_is_as_in_the_model(self) -> None:
        model, peer = self.model, self.peers[0]
        for path, node in model.nodes.items():
            assert peer.get(path) == (node.data, node.stat), path
            assert peer.children(path) == model.children(path), path
            assert peer.exists(path) == node.stat, path

    @invariant()
    def what_is_not_in_the_model_does_not_exist(self) -> None:
        peer = self.peers[1]
        request = r.GetAllChildrenNumberRequest("/")
        (reply,) = peer.send(OpCode.GET_ALL_CHILDREN_NUMBER, request.encode())
        (missing,) = peer.send(OpCode.EXISTS, r.ExistsRequest("/none", False).encode())

        assert r.GetAllChildrenNumberResponse.decode(reply.body).totalNumber == len(self.model.nodes) - 1
        assert (missing.err, missing.zxid) == (NO_NODE, self.model.zxid)

    @invariant()
    def each_session_has_its_ephemerals(self) -> None:
        for at in (0, 1):
            (reply,) = self.peers[at].send(OpCode.GET_EPHEMERALS, r.GetEphemeralsRequest("/").encode())
            assert sorted(r.GetEphemeralsResponse.decode(reply.body).ephemerals) == self.model.owned(self.session(at))


@pytest.mark.slow
def test_tree_behaves_like_dictionary() -> None:
    run_state_machine_as_test(TreeMachine, settings=settings(max_examples=50, stateful_step_count=25, deadline=None))
