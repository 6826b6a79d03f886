"""The tree a test begins with, goes back to, and looks at: populate, snapshot, restore, reset, views and wait_for."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zoolet.protocol import multi
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, AclList
from zoolet.protocol.codec import Record, int_at
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.server import Server
from zoolet.server.testing import Znode, hold
from zoolet.server.testing.views import NodeView

DEADLINE_S: Final = 10.0  # only ever reached on failure
EPHEMERAL, SEQUENTIAL = 1, 2
NO_NODE, NO_AUTH, QUOTA_EXCEEDED = -101, -102, -125


# --- what the tests say it with ---


class Wire:
    """A session reduced to its socket.

    Args:
        server: Whom to connect to.
        timeout: The session timeout to ask for.
        session: The id and password of the session to go on with.
    """

    def __init__(self, server: Server, timeout: float = 30.0, session: tuple[int, bytes] = (0, bytes(16))) -> None:
        self.link = socket.create_connection(("127.0.0.1", server.port), DEADLINE_S)
        self.stream = self.link.makefile("rb")
        self.link.sendall(frame(ConnectRequest(0, round(timeout * 1000), *session).encode()))
        self.events: list[tuple[int, str]] = []
        self.xid = 0
        self.id = 0
        self.password = bytes(16)
        self.body = b""

    def welcomed(self) -> Self:
        """Wait for the server's first words."""
        welcome = ConnectResponse.decode(self.payload())
        self.id, self.password = welcome.session_id, welcome.password or b""
        return self

    def payload(self) -> bytes:
        """Wait for one frame; the end of the connection is an EOFError."""
        head = self.stream.read(4)
        if len(head) < 4:
            raise EOFError
        return self.stream.read(int_at(head)[0])

    def send(self, op: OpCode, body: Record | None = None) -> None:
        """Send one request."""
        self.send_raw(op, body.encode() if body else b"")

    def send_raw(self, op: OpCode, body: bytes) -> None:
        """Send one request whose body is bytes."""
        self.xid += 1
        self.link.sendall(frame(r.RequestHeader(self.xid, op).encode() + body))

    def reply(self) -> int:
        """Wait for a reply, and give its error code; events that come before it are kept."""
        while True:
            payload = self.payload()
            header = r.ReplyHeader.decode(payload)
            if header.xid != -1:
                self.body = payload[16:]
                return header.err
            event = r.WatcherEvent.decode(payload[16:])
            self.events.append((event.type, event.path))

    def ask(self, op: OpCode, body: Record | None = None) -> int:
        """Send one request and wait for its reply."""
        self.send(op, body)
        return self.reply()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stream.close()
        self.link.close()


@pytest.fixture
def server() -> Iterator[Server]:
    """A server with the real clock."""
    with Server() as server:
        yield server


@pytest.fixture
def wires() -> Iterator[ExitStack]:
    """Where to enter connections, so that they are closed in the end."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def wire(server: Server, wires: ExitStack) -> Wire:
    """A session reduced to its socket."""
    entered: Wire = wires.enter_context(Wire(server)).welcomed()
    return entered


def everything(server: Server) -> dict[str, NodeView]:
    """Show all nodes, the root and those of ZooKeeper's own too."""
    return {**server.tree(), **server.tree("/zookeeper")}


def data(server: Server) -> dict[str, bytes | None]:
    """Show what the nodes hold."""
    return {path: node.data for path, node in server.tree().items()}


def create(wire: Wire, path: str, flags: int = 0, value: bytes = b"", acl: AclList = OPEN_ACL_UNSAFE) -> int:
    """Make a node; give the error code."""
    return wire.ask(OpCode.CREATE, r.CreateRequest(path, value, acl, flags))


def children(wire: Wire, path: str) -> list[str]:
    """Read the names of a node's children as a client sees them."""
    assert wire.ask(OpCode.GET_CHILDREN, r.GetChildrenRequest(path, False)) == 0
    return sorted(r.GetChildrenResponse.decode(wire.body).children)


def sequential(wire: Wire, path: str) -> str:
    """Make a sequential node; give its name."""
    assert create(wire, path, SEQUENTIAL) == 0
    made: str = r.CreateResponse.decode(wire.body).path
    return made


def set_data(wire: Wire, path: str, value: bytes) -> int:
    """Replace a node's data; give the error code."""
    return wire.ask(OpCode.SET_DATA, r.SetDataRequest(path, value, -1))


def delete(wire: Wire, path: str) -> int:
    """Remove a node; give the error code."""
    return wire.ask(OpCode.DELETE, r.DeleteRequest(path, -1))


# --- snapshot, restore ---


def test_a_restore_undoes_all_kinds_of_changes(server: Server, wire: Wire) -> None:
    server.populate({"/a": {"b": "1", "c": "2"}, "/gone": "x"})
    before = everything(server)
    snapshot = server.snapshot()

    set_data(wire, "/a/b", b"new")
    delete(wire, "/a/c")
    delete(wire, "/gone")
    create(wire, "/made")
    create(wire, "/made/below")
    wire.ask(OpCode.SET_ACL, r.SetACLRequest("/a", READ_ACL_UNSAFE, -1))
    sequential(wire, "/made/s-")
    assert everything(server) != before
    server.restore(snapshot)

    assert everything(server) == before
    assert children(wire, "/") == ["a", "gone", "zookeeper"]
    assert children(wire, "/a") == ["b", "c"]


def test_snapshots_are_reached_backwards_and_forwards(server: Server) -> None:
    snapshots, trees = [], []
    for i in range(5):
        server.populate({f"/n{i}": str(i), "/same": str(i)})
        snapshots.append(server.snapshot())
        trees.append(everything(server))

    for i in (0, 4, 2, 3, 1, 4, 0, 0, 2):
        server.restore(snapshots[i])
        assert everything(server) == trees[i]


def test_branches_of_history_are_all_kept(server: Server) -> None:
    root = server.snapshot()
    server.populate({"/left": "1"})
    left = server.snapshot()
    server.restore(root)
    server.populate({"/right": "1"})
    right = server.snapshot()
    server.populate({"/right": "2"})

    for snapshot, found in [(left, {"/left": b"1"}), (right, {"/right": b"1"}), (root, {}), (left, {"/left": b"1"})]:
        server.restore(snapshot)
        assert data(server) == found


def test_a_sequence_goes_on_where_it_was(server: Server, wire: Wire) -> None:
    create(wire, "/s")
    assert [sequential(wire, "/s/n-") for _ in range(2)] == ["/s/n-0000000000", "/s/n-0000000001"]
    snapshot = server.snapshot()
    assert sequential(wire, "/s/n-") == "/s/n-0000000002"

    server.restore(snapshot)

    assert sequential(wire, "/s/n-") == "/s/n-0000000002"


def test_zxids_do_not_go_back(server: Server, wire: Wire) -> None:
    snapshot = server.snapshot()
    create(wire, "/a")
    first = server.tree()["/a"].czxid

    server.restore(snapshot)
    create(wire, "/a")

    assert server.tree()["/a"].czxid > first


def test_nobody_is_told_of_a_restore_and_watches_stay(server: Server, wire: Wire) -> None:
    snapshot = server.snapshot()
    server.populate({"/a": ""})
    wire.ask(OpCode.EXISTS, r.ExistsRequest("/a", True))
    watches = server.watches()

    server.restore(snapshot)
    wire.ask(OpCode.PING)
    assert (wire.events, server.watches()) == ([], watches)
    create(wire, "/a")

    assert wire.events == [(1, "/a")]


def test_ephemerals_of_sessions_that_live_come_back(server: Server, wire: Wire) -> None:
    create(wire, "/e", EPHEMERAL)
    snapshot = server.snapshot()
    delete(wire, "/e")

    server.restore(snapshot)

    assert server.tree()["/e"].ephemeral_owner == wire.id
    assert server.sessions()[wire.id].ephemerals == ("/e",)
    server.expire(wire.id)
    assert dict(server.tree()) == {}


def test_ephemerals_of_dead_sessions_do_not_come_back(server: Server, wire: Wire, wires: ExitStack) -> None:
    dead = wires.enter_context(Wire(server)).welcomed()
    create(wire, "/p")
    create(dead, "/p/e", EPHEMERAL)
    create(wire, "/p/stays", EPHEMERAL)
    snapshot = server.snapshot()
    server.expire(dead.id)

    for _ in range(2):
        server.restore(snapshot)
        assert set(server.tree()) == {"/p", "/p/stays"}
        assert server.tree()["/p"].num_children == 1
        assert children(wire, "/p") == ["stays"]


def test_what_was_made_ephemeral_since_leaves_its_session(server: Server, wire: Wire) -> None:
    snapshot = server.snapshot()
    create(wire, "/e", EPHEMERAL)

    server.restore(snapshot)

    assert server.sessions()[wire.id].ephemerals == ()
    assert create(wire, "/e", EPHEMERAL) == 0
    server.expire(wire.id)
    assert dict(server.tree()) == {}


def test_a_container_and_a_ttl_come_back_and_end() -> None:
    with Server(clock="manual") as server, Wire(server, 1000).welcomed() as wire:
        server.populate({"/c": Znode(container=True, children={"x": ""}), "/t": Znode(ttl=5)})
        snapshot = server.snapshot()
        delete(wire, "/c/x")
        server.advance(100)
        assert dict(server.tree()) == {}

        server.restore(snapshot)
        assert set(server.tree()) == {"/c", "/c/x", "/t"}
        assert server.tree()["/c"].container
        delete(wire, "/c/x")
        server.advance(100)

        assert dict(server.tree()) == {}


def test_quotas_are_restored() -> None:
    with Server(config={"enforceQuota": "true"}) as server, Wire(server).welcomed() as wire:
        server.populate({"/q": {}})
        create(wire, "/zookeeper/quota/q")
        create(wire, "/zookeeper/quota/q/zookeeper_limits", value=b"count=-1,bytes=-1,countHardLimit=3")
        create(wire, "/zookeeper/quota/q/zookeeper_stats", value=b"count=1,bytes=0")
        assert create(wire, "/q/1") == 0
        before = everything(server)
        snapshot = server.snapshot()
        assert [create(wire, f"/q/{i}") for i in (2, 3)] == [0, QUOTA_EXCEEDED]

        server.restore(snapshot)

        assert everything(server) == before
        assert [create(wire, f"/q/{i}") for i in (2, 3)] == [0, QUOTA_EXCEEDED]


def test_a_quota_that_was_set_since_is_gone() -> None:
    with Server(config={"enforceQuota": "true"}) as server, Wire(server).welcomed() as wire:
        server.populate({"/q": {}})
        snapshot = server.snapshot()
        create(wire, "/zookeeper/quota/q")
        create(wire, "/zookeeper/quota/q/zookeeper_limits", value=b"count=-1,bytes=-1,countHardLimit=1")
        create(wire, "/zookeeper/quota/q/zookeeper_stats", value=b"count=1,bytes=0")
        assert create(wire, "/q/1") == QUOTA_EXCEEDED

        server.restore(snapshot)

        assert [create(wire, f"/q/{i}") for i in range(3)] == [0, 0, 0]


def test_a_transaction_that_fails_leaves_no_trace_while_there_are_snapshots(server: Server, wire: Wire) -> None:
    server.populate({"/a": {"b": "1"}})
    first = server.snapshot()
    before = everything(server)

    parts = [
        (OpCode.CREATE, r.CreateRequest("/new", b"", OPEN_ACL_UNSAFE, 0)),
        (OpCode.SET_DATA, r.SetDataRequest("/a/b", b"2", -1)),
        (OpCode.CREATE, r.CreateRequest("/a/s-", b"", OPEN_ACL_UNSAFE, SEQUENTIAL)),
        (OpCode.DELETE, r.DeleteRequest("/nowhere", -1)),
    ]
    wire.send_raw(OpCode.MULTI, multi.encode_operations(parts))
    wire.reply()
    assert everything(server) == before
    server.populate({"/later": ""})
    server.restore(first)

    assert everything(server) == before
    assert sequential(wire, "/a/s-") == "/a/s-0000000001"


def test_a_transaction_is_undone_whole(server: Server, wire: Wire) -> None:
    server.populate({"/a": {"b": "1"}})
    before = everything(server)
    snapshot = server.snapshot()
    parts = [
        (OpCode.CREATE, r.CreateRequest("/new", b"", OPEN_ACL_UNSAFE, 0)),
        (OpCode.CREATE, r.CreateRequest("/new/below", b"", OPEN_ACL_UNSAFE, 0)),
        (OpCode.SET_DATA, r.SetDataRequest("/a/b", b"2", -1)),
        (OpCode.DELETE, r.DeleteRequest("/a/b", -1)),
    ]
    wire.send_raw(OpCode.MULTI, multi.encode_operations(parts))
    assert wire.reply() == 0
    assert set(server.tree()) == {"/a", "/new", "/new/below"}

    server.restore(snapshot)

    assert everything(server) == before


def test_a_snapshot_of_another_server_is_refused(server: Server) -> None:
    with Server() as other, pytest.raises(ValueError):
        server.restore(other.snapshot())


def test_a_snapshot_of_an_earlier_run_is_refused() -> None:
    server = Server()
    with server:
        snapshot = server.snapshot()
    with server, pytest.raises(ValueError):
        server.restore(snapshot)


@pytest.mark.parametrize("nonsense", [None, 3, {}])
def test_what_is_no_snapshot_is_refused(server: Server, nonsense: Any) -> None:
    with pytest.raises(ValueError):
        server.restore(nonsense)


@pytest.mark.slow
async def test_going_back_among_10_000_nodes_after_100_writes_takes_a_millisecond() -> None:
    async with Server() as server:  # in this thread, so that no hand-over is measured
        server.populate({f"/d{i}": {f"n{j}": "x" for j in range(99)} for i in range(100)})
        assert len(server.tree()) == 10_000
        snapshot = server.snapshot()
        took = []
        for turn in range(15):
            server.populate({f"/d{i}/n{turn}": "changed" for i in range(100)})
            began = time.perf_counter()
            server.restore(snapshot)
            took.append(time.perf_counter() - began)
        assert server.tree()["/d7/n7"].data == b"x"

    assert statistics.median(took) <= 0.001, took


# --- a model ---

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
    """What the tree should be: data, versions and sequence counters by path.

    Attributes:
        nodes: For each path its data, version, ACL version, the number of children ever made, and its owner.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int, int, int, int]] = {"": (b"", 0, 0, 0, 0)}

    def makes(self, path: str, owner: int = 0) -> bool:
        """Make a node if that can be done."""
        above = path.rpartition("/")[0]
        if path in self.nodes or above not in self.nodes or self.nodes[above][4]:
            return False
        value, version, aversion, made, its_owner = self.nodes[above]
        self.nodes[above] = value, version, aversion, made + 1, its_owner
        self.nodes[path] = b"", 0, 0, 0, owner
        return True

    def drops(self, path: str) -> bool:
        """Remove a node if that can be done."""
        if path not in self.nodes or any(other.startswith(path + "/") for other in self.nodes):
            return False
        del self.nodes[path]
        return True

    def agrees(self, server: Server, wire: Wire) -> None:
        """Compare."""
        tree = server.tree()
        expected = {path: node for path, node in self.nodes.items() if path}
        assert {p: (n.data, n.version, n.aversion, n.ephemeral_owner) for p, n in tree.items()} == {
            path: (value, version, aversion, owner) for path, (value, version, aversion, _, owner) in expected.items()
        }
        for path in expected:
            below = sorted(other[len(path) + 1 :] for other in expected if other.rpartition("/")[0] == path)
            assert children(wire, path) == below
            assert tree[path].num_children == len(below)


@given(STEPS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_histories_of_all_kinds_agree_with_a_model(steps: list[tuple[str, Any]]) -> None:
    kept: list[tuple[Any, dict[str, NodeView], dict[str, tuple[bytes, int, int, int, int]]]] = []
    model = Model()
    with Server() as server, Wire(server).welcomed() as reader, ExitStack() as wires:
        wire = wires.enter_context(Wire(server)).welcomed()
        dead: set[int] = set()
        for number, (what, where) in enumerate(steps):
            if what == "create":
                assert (create(wire, where) == 0) == model.makes(where)
            elif what == "ephemeral":
                assert (create(wire, where, EPHEMERAL) == 0) == model.makes(where, wire.id)
            elif what == "sequential" and where in model.nodes and not model.nodes[where][4]:
                name = f"{where}/s{model.nodes[where][3]:010d}"
                assert sequential(wire, f"{where}/s") == name
                assert model.makes(name)
            elif what == "set" and where in model.nodes:
                value = b"%d" % number
                assert set_data(wire, where, value) == 0
                _, version, *others = model.nodes[where]
                model.nodes[where] = (value, version + 1, *others)  # type: ignore[assignment]
            elif what == "set_acl" and where in model.nodes:
                assert wire.ask(OpCode.SET_ACL, r.SetACLRequest(where, OPEN_ACL_UNSAFE, -1)) == 0
                value, version, aversion, *others = model.nodes[where]
                model.nodes[where] = (value, version, aversion + 1, *others)  # type: ignore[assignment]
            elif what == "delete":
                assert (delete(wire, where) == 0) == model.drops(where)
            elif what == "failing":
                parts = [
                    (OpCode.CREATE, r.CreateRequest("/t", b"", OPEN_ACL_UNSAFE, SEQUENTIAL)),
                    (OpCode.SET_DATA, r.SetDataRequest(where, b"never", -1)),
                    (OpCode.DELETE, r.DeleteRequest("/nowhere", -1)),
                ]
                wire.send_raw(OpCode.MULTI, multi.encode_operations(parts))
                wire.reply()
            elif what == "reconnect":
                dead.add(wire.id)
                server.expire(wire.id)
                model.nodes = {path: node for path, node in model.nodes.items() if node[4] not in dead}
                wire = wires.enter_context(Wire(server)).welcomed()
            elif what == "snapshot":
                kept.append((server.snapshot(), everything(server), dict(model.nodes)))
            elif what == "restore" and kept:
                snapshot, tree, nodes = kept[where % len(kept)]
                server.restore(snapshot)
                model.nodes = {path: node for path, node in nodes.items() if node[4] not in dead}
                if len(model.nodes) == len(nodes):
                    assert everything(server) == tree
            model.agrees(server, reader)


# --- reset ---


def test_a_reset_leaves_nothing(server: Server, wire: Wire) -> None:
    fresh = everything(server)
    server.populate({"/a": {"b": "x"}})
    create(wire, "/e", EPHEMERAL)
    wire.ask(OpCode.EXISTS, r.ExistsRequest("/a", True))
    server.fault(action=hold())
    server.pause(wire.id)

    server.reset()

    assert {path: node.data for path, node in everything(server).items()} == {p: n.data for p, n in fresh.items()}
    assert (dict(server.sessions()), server.watches(), server.ops()) == ({}, (), ())


def test_a_reset_cuts_connections_and_clients_are_told_of_their_expiry(server: Server, wires: ExitStack) -> None:
    wire = wires.enter_context(Wire(server)).welcomed()

    server.reset()

    with pytest.raises(EOFError):
        wire.payload()
    again = wires.enter_context(Wire(server, session=(wire.id, wire.password))).welcomed()
    assert again.id == 0


def test_sessions_and_zxids_go_on_after_a_reset(server: Server, wires: ExitStack) -> None:
    first = wires.enter_context(Wire(server)).welcomed()
    create(first, "/a")
    zxid = server.tree()["/a"].czxid

    server.reset()
    second = wires.enter_context(Wire(server)).welcomed()
    create(second, "/a")

    assert second.id != first.id
    assert server.tree()["/a"].czxid > zxid


def test_a_reset_server_counts_its_sequences_from_0(server: Server, wires: ExitStack) -> None:
    first = wires.enter_context(Wire(server)).welcomed()
    assert [sequential(first, "/n-") for _ in range(3)][-1].endswith("2")

    server.reset()
    second = wires.enter_context(Wire(server)).welcomed()

    assert sequential(second, "/n-") == "/n-0000000000"


def test_a_server_that_refused_connections_accepts_them_after_a_reset(server: Server, wires: ExitStack) -> None:
    server.refuse_connections()

    server.reset()

    assert wires.enter_context(Wire(server)).welcomed().id


# --- populate ---


def test_values_are_bytes_text_nothing_dicts_and_znodes(server: Server) -> None:
    server.populate(
        {
            "/bytes": b"\x00\xff",
            "/text": "grün",
            "/none": None,
            "/dict": {"x": "1", "y": {"z": b"2"}},
            "/znode": Znode("data", children={"c": None}),
            "relative": "r",
            "/deep/er/still": "d",
        }
    )

    assert data(server) == {
        "/bytes": b"\x00\xff",
        "/text": "grün".encode(),
        "/none": None,
        "/dict": b"",
        "/dict/x": b"1",
        "/dict/y": b"",
        "/dict/y/z": b"2",
        "/znode": b"data",
        "/znode/c": None,
        "/relative": b"r",
        "/deep": b"",
        "/deep/er": b"",
        "/deep/er/still": b"d",
    }


def test_znodes_have_acls_and_kinds(server: Server, wire: Wire) -> None:
    server.populate({"/locked": Znode("x", acl=READ_ACL_UNSAFE), "/c": Znode(container=True), "/t": Znode(ttl=2.5)})

    tree = server.tree()
    assert tree["/locked"].acl == READ_ACL_UNSAFE
    assert (tree["/c"].container, tree["/c"].ttl) == (True, None)
    assert (tree["/t"].container, tree["/t"].ttl) == (False, 2.5)
    assert set_data(wire, "/locked", b"") == NO_AUTH


def test_a_node_that_is_there_gets_the_data(server: Server) -> None:
    server.populate({"/a": "1", "/a/b": "2"})
    server.populate({"/a": "new"})

    assert data(server) == {"/a": b"new", "/a/b": b"2"}
    assert server.tree()["/a"].version == 1


def test_a_population_fires_watches(server: Server, wire: Wire) -> None:
    wire.ask(OpCode.EXISTS, r.ExistsRequest("/a", True))

    server.populate({"/a": ""})
    wire.ask(OpCode.PING)

    assert wire.events == [(1, "/a")]


def test_nothing_to_make_is_fine(server: Server) -> None:
    server.populate({})

    assert dict(server.tree()) == {}


@pytest.mark.parametrize(
    ("nodes", "named"),
    [
        ({"/bad": 3}, "/bad"),
        ({"/bad": ["x"]}, "/bad"),
        ({"/bad": bytearray(b"x")}, "/bad"),
        ({"/a": {"b": {"bad": 1.5}}}, "/a/b/bad"),
        ({"/a//bad": "x"}, "/a//bad"),
        ({"/.": "x"}, "/."),
        ({"/a": {"..": "x"}}, r"\.\."),
        ({"/bad\0": "x"}, "bad"),
        ({"/bad": Znode(ttl=-1)}, "/bad"),
        ({"/bad": Znode(ttl=0)}, "/bad"),
        ({"/bad": Znode(ttl=1, container=True)}, "/bad"),
        ({"/bad": Znode(children=3)}, "/bad"),  # type: ignore[arg-type]
        (None, "None"),
        (3, "3"),
    ],
    ids=str,
)
def test_what_is_no_node_is_named_and_nothing_is_made(server: Server, nodes: Any, named: str) -> None:
    both = {"/fine": "x", **nodes} if isinstance(nodes, dict) else nodes

    with pytest.raises(ValueError, match=named):
        server.populate(both)

    assert dict(server.tree()) == {}


@pytest.mark.parametrize(
    ("nodes", "named"),
    [
        ({3: "x"}, "3"),
        ({"/bad": Znode(data=3)}, "/bad"),  # type: ignore[arg-type]
        ({"/bad": Znode(ttl="x")}, "/bad"),  # type: ignore[arg-type]
        ({"/bad": Znode(acl="x")}, "/bad"),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_more_that_is_no_node_is_named(server: Server, nodes: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        server.populate(nodes)


def test_a_bad_ttl_that_is_found_late_leaves_nothing(server: Server) -> None:
    with pytest.raises((ValueError, TypeError)):
        server.populate({"/fine": "x", "/bad": Znode(ttl="x")})  # type: ignore[arg-type]

    assert dict(server.tree()) == {}


def test_bad_data_that_is_found_late_leaves_nothing(server: Server) -> None:
    with pytest.raises((ValueError, TypeError)):
        server.populate({"/fine": "x", "/bad": Znode(data=3)})  # type: ignore[arg-type]

    assert dict(server.tree()) == {}


# --- views ---


def test_views_do_not_change_with_the_server(server: Server, wire: Wire) -> None:
    server.populate({"/a": "1"})
    wire.ask(OpCode.EXISTS, r.ExistsRequest("/a", True))
    views = server.tree(), server.sessions(), server.watches(), server.ops()
    before = dict(views[0]), dict(views[1]), tuple(views[2]), tuple(views[3])

    server.populate({"/a": "2", "/b": ""})
    server.expire("all")

    assert (dict(views[0]), dict(views[1]), tuple(views[2]), tuple(views[3])) == before
    assert dict(server.tree()) != before[0]


def test_views_cannot_be_changed(server: Server, wire: Wire) -> None:
    server.populate({"/a": "1"})
    wire.ask(OpCode.EXISTS, r.ExistsRequest("/a", True))

    with pytest.raises(TypeError):
        server.tree()["/b"] = server.tree()["/a"]  # type: ignore[index]
    with pytest.raises(TypeError):
        del server.sessions()[wire.id]  # type: ignore[attr-defined]
    for view in (server.tree()["/a"], server.sessions()[wire.id], server.watches()[0], server.ops()[0]):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(view, dataclasses.fields(view)[0].name, "other")  # type: ignore[arg-type]


def test_a_tree_is_a_node_and_all_below_it(server: Server) -> None:
    server.populate({"/a": {"b": {"c": ""}}, "/ab": ""})

    assert list(server.tree()) == ["/a", "/a/b", "/a/b/c", "/ab"]
    assert list(server.tree("/a")) == ["/a", "/a/b", "/a/b/c"]
    assert list(server.tree("/a/b/c")) == ["/a/b/c"]
    assert list(server.tree("/none")) == []
    assert "/zookeeper/quota" in server.tree("/zookeeper")


def test_sessions_show_what_they_have(server: Server, wires: ExitStack) -> None:
    wire = wires.enter_context(Wire(server, 12.5)).welcomed()
    create(wire, "/z", EPHEMERAL)
    create(wire, "/a", EPHEMERAL)
    wire.ask(OpCode.EXISTS, r.ExistsRequest("/a", True))

    view = server.sessions()[wire.id]
    assert (view.id, view.timeout, view.ephemerals, view.watches) == (wire.id, 12.5, ("/z", "/a"), 1)
    assert view.connected
    assert view.client is not None
    assert str(wire.link.getsockname()[1]) in view.client
    assert 12 < view.expires_in <= 12.7  # deadlines are rounded up to a whole tick


def test_watches_show_their_kinds(server: Server, wire: Wire) -> None:
    server.populate({"/a": ""})
    wire.ask(OpCode.GET_DATA, r.GetDataRequest("/a", True))
    wire.ask(OpCode.GET_CHILDREN, r.GetChildrenRequest("/a", True))
    wire.ask(OpCode.ADD_WATCH, r.AddWatchRequest("/p", 0))
    wire.ask(OpCode.ADD_WATCH, r.AddWatchRequest("/q", 1))

    assert {(watch.path, watch.kind, watch.session) for watch in server.watches()} == {
        ("/a", "data", wire.id),
        ("/a", "child", wire.id),
        ("/p", "persistent", wire.id),
        ("/q", "recursive", wire.id),
    }


def test_operations_are_shown_oldest_first_and_the_last_1000(server: Server, wire: Wire) -> None:
    create(wire, "/a")
    wire.ask(OpCode.GET_DATA, r.GetDataRequest("/none", False))

    assert [(op.op, op.path, op.error) for op in server.ops()] == [
        ("connect", None, 0),
        ("create", "/a", 0),
        ("getData", "/none", NO_NODE),
    ]
    assert [op.op for op in server.ops(1)] == ["getData"]
    for _ in range(1010):
        wire.send(OpCode.PING)
    for _ in range(1010):
        wire.reply()
    assert [op.op for op in server.ops()] == ["ping"] * 1000


def test_the_last_none_are_none(server: Server, wire: Wire) -> None:
    create(wire, "/a")

    assert server.ops(0) == ()


# --- wait_for ---


def test_wait_for_gives_what_the_predicate_returned(server: Server) -> None:
    server.populate({"/a": "x"})

    assert server.wait_for(lambda: "yes") == "yes"
    assert server.wait_for(lambda one: one.tree().get("/a")).data == b"x"


def test_wait_for_waits_for_what_others_do(server: Server, wire: Wire) -> None:
    looked = threading.Event()

    def there() -> bool:
        found = "/a" in server.tree()
        looked.set()
        return found

    def make() -> None:
        looked.wait(DEADLINE_S)
        create(wire, "/a")

    maker = threading.Thread(target=make)
    maker.start()

    assert server.wait_for(there, DEADLINE_S) is True
    maker.join(DEADLINE_S)


def test_too_late_is_a_timeout_error_with_the_last_operations(server: Server, wire: Wire) -> None:
    create(wire, "/some/where")

    def never() -> bool:
        return False

    with pytest.raises(TimeoutError) as failure:
        server.wait_for(never, 0.01)

    text = str(failure.value)
    assert "never" in text
    assert "0.01 s" in text
    assert "create /some/where" in text
    assert "NO_NODE" in text


def test_an_error_of_the_predicate_goes_through(server: Server) -> None:
    with pytest.raises(ZeroDivisionError):
        server.wait_for(lambda: 1 / 0)


async def test_in_its_own_loop_it_is_awaited_and_the_loop_goes_on() -> None:
    async with Server() as server:
        turns = 0

        def third() -> bool:
            nonlocal turns
            turns += 1
            return turns >= 3

        assert await server.wait_for(third) is True
        asyncio.get_running_loop().call_later(0.01, server.populate, {"/a": ""})
        assert await server.wait_for(lambda one: "/a" in one.tree(), DEADLINE_S) is True
        with pytest.raises(TimeoutError, match="the last operations"):
            await server.wait_for(lambda: False, 0.01)


async def test_an_await_can_be_cancelled() -> None:
    async with Server() as server:
        waiting = asyncio.ensure_future(server.wait_for(lambda: False))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
