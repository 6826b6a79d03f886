"""Watches compared with a set: two connections set one-shot, persistent and recursive watches and receive exactly the
events in the table of triggers, in its order.

The model is a set of (store, path, mode) for each connection. No event may be extra, missing, repeated or misplaced.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from support.engine import make_engine
from support.peer import Peer

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import Record
from zoolet.protocol.operations import OpCode

OK, NO_WATCHER = 0, -121
CREATED, DELETED, CHANGED, CHILDREN = 1, 2, 3, 4
DATA, CHILD = "data", "child"
ONCE, PERSISTENT, RECURSIVE = "once", "persistent", "recursive"
BOOT = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"]
Watch = tuple[str, str, str]
Event = tuple[int, str]
Change = tuple[str, str]

TYPES: dict[int, list[tuple[str, str]]] = {
    1: [(CHILD, ONCE)],
    2: [(DATA, ONCE)],
    3: [(store, mode) for store in (DATA, CHILD) for mode in (ONCE, PERSISTENT, RECURSIVE)],
    4: [(DATA, PERSISTENT), (CHILD, PERSISTENT)],
    5: [(DATA, RECURSIVE)],
}
"""The types of watches that can be checked and removed, as stores and modes."""


def parent_path(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def ancestors(path: str) -> list[str]:
    """Return all ancestors of *path*, including the root."""
    return [] if path == "/" else [parent_path(path), *ancestors(parent_path(path))]


class Model:
    """The existing nodes, and the watches of each connection."""

    def __init__(self, connections: int) -> None:
        self.nodes = set(BOOT)
        self.watches: list[set[Watch]] = [set() for _ in range(connections)]

    def possible(self, kind: str, path: str) -> bool:
        if kind == "create":
            return path not in self.nodes and parent_path(path) in self.nodes
        if kind == "delete":
            return path in self.nodes and path not in BOOT and path not in map(parent_path, self.nodes - {"/"})
        return path in self.nodes

    def change(self, kind: str, path: str) -> None:
        self.nodes = self.nodes - {path} if kind == "delete" else self.nodes | {path}

    def events(self, at: int, kind: str, path: str) -> list[Event]:
        """Return the events that a change sends to one connection, and remove the standard watches that they use up."""
        if kind == "create":
            return self._fire(at, DATA, path, CREATED) + self._fire(at, CHILD, parent_path(path), CHILDREN)
        if kind == "set":
            return self._fire(at, DATA, path, CHANGED)
        gone = self._fire(at, DATA, path, DELETED) + self._fire(at, CHILD, path, DELETED)
        return gone[:1] + self._fire(at, CHILD, parent_path(path), CHILDREN)

    def _fire(self, at: int, store: str, path: str, event: int) -> list[Event]:
        mine = {(store, path, mode) for mode in (ONCE, PERSISTENT, RECURSIVE)}
        mine |= {(store, one, RECURSIVE) for one in ancestors(path)}
        heard = bool(mine & self.watches[at])
        self.watches[at].discard((store, path, ONCE))
        return [(event, path)] * heard


who = st.integers(0, 1)
known = ["/a", "/a/b", "/a/b", "/a/b/c", "/ab"]
paths = st.sampled_from([*known, "/", "/zookeeper"])
nodes = st.sampled_from(known)
changes = st.tuples(st.sampled_from(["create", "create", "set", "delete"]), nodes)


def operation(kind: str, path: str) -> tuple[OpCode, Record]:
    if kind == "create":
        return OpCode.CREATE, r.CreateRequest(path, b"", OPEN_ACL_UNSAFE, 0)
    return {
        "set": (OpCode.SET_DATA, r.SetDataRequest(path, b"", -1)),
        "delete": (OpCode.DELETE, r.DeleteRequest(path, -1)),
    }[kind]


class WatchMachine(RuleBasedStateMachine):
    """A state machine of two connections that watch and write."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = make_engine()
        self.peers = [self.connected() for _ in range(2)]
        self.model = Model(len(self.peers))
        for path in ("/a", "/a/b"):
            self.peers[0].create(path)
            self.model.change("create", path)

    def connected(self, session: int = 0, password: bytes = bytes(16)) -> Peer:
        peer = Peer(self.engine)
        assert peer.connect(40_000, session, password) is not None
        return peer

    def ask(self, at: int, op: OpCode, body: Record | bytes) -> int:
        """Send a request, and return its error code. All events that it causes must arrive before the reply."""
        replies = self.peers[at].send(op, body if isinstance(body, bytes) else body.encode())
        assert [reply.xid == -1 for reply in replies] == [True] * (len(replies) - 1) + [False]
        return replies[-1].err

    def heard(self, at: int) -> list[Event]:
        """Return the events of one connection since the last call. All must have the zxid of the last change."""
        peer = self.peers[at]
        peer._sort(peer.pop_output())
        assert all(reply.zxid == self.engine.zxid for reply in peer.inbox)
        return peer.receive()

    def everybody_hears(self, done: list[Change], ordered: bool = True) -> None:
        for at in range(len(self.peers)):
            expected = [event for change in done for event in self.model.events(at, *change)]
            heard = self.heard(at)
            assert (heard if ordered else sorted(heard)) == (expected if ordered else sorted(expected)), at

    # --- steps that set and remove watches ---

    @rule(at=who, path=paths)
    def watch_with_exists(self, at: int, path: str) -> None:
        self.ask(at, OpCode.EXISTS, r.ExistsRequest(path, True))
        self.model.watches[at].add((DATA, path, ONCE))

    @rule(at=who, path=paths)
    def watch_with_get_data(self, at: int, path: str) -> None:
        self.ask(at, OpCode.GET_DATA, r.GetDataRequest(path, True))
        if path in self.model.nodes:
            self.model.watches[at].add((DATA, path, ONCE))

    @rule(at=who, path=paths, op=st.sampled_from([OpCode.GET_CHILDREN, OpCode.GET_CHILDREN2]))
    def watch_with_get_children(self, at: int, path: str, op: OpCode) -> None:
        self.ask(at, op, r.GetChildrenRequest(path, True))
        if path in self.model.nodes:
            self.model.watches[at].add((CHILD, path, ONCE))

    @rule(at=who, path=paths)
    def watch_persistently(self, at: int, path: str) -> None:
        assert self.ask(at, OpCode.ADD_WATCH, r.AddWatchRequest(path, 0)) == OK
        self.model.watches[at] |= {(DATA, path, PERSISTENT), (CHILD, path, PERSISTENT)}

    @rule(at=who, path=paths)
    def watch_recursively(self, at: int, path: str) -> None:
        assert self.ask(at, OpCode.ADD_WATCH, r.AddWatchRequest(path, 1)) == OK
        self.model.watches[at].add((DATA, path, RECURSIVE))

    @rule(at=who, path=nodes, other=st.sampled_from(["persistently", "recursively", "with_get_children"]))
    def watch_in_two_ways(self, at: int, path: str, other: str) -> None:
        self.watch_with_exists(at=at, path=path)
        if other == "persistently":
            self.watch_persistently(at=at, path=path)
        elif other == "recursively":
            self.watch_recursively(at=at, path=path)
        else:
            self.watch_with_get_children(at=at, path=path, op=OpCode.GET_CHILDREN)

    @rule(at=who, path=paths, kind=st.integers(1, 5))
    def remove(self, at: int, path: str, kind: int) -> None:
        gone = {(store, path, mode) for store, mode in TYPES[kind]} & self.model.watches[at]

        assert self.ask(at, OpCode.REMOVE_WATCHES, r.RemoveWatchesRequest(path, kind)) == (OK if gone else NO_WATCHER)

        self.model.watches[at] -= gone

    @rule(at=who)
    def lose_the_connection_and_come_back(self, at: int) -> None:
        welcome = self.peers[at].welcome
        assert welcome is not None
        assert welcome.password is not None
        self.engine.disconnect(self.peers[at].client)
        self.peers[at] = self.connected(welcome.session_id, welcome.password)
        self.model.watches[at].clear()

    # --- steps that change the tree ---

    @rule(at=who, change=changes)
    def change_one_thing(self, at: int, change: Change) -> None:
        done = [change] if self.model.possible(*change) else []

        err = self.ask(at, *operation(*change))

        assert (err == OK) == bool(done)
        self.everybody_hears(done)
        for one in done:
            self.model.change(*one)

    @rule(at=who, wanted=st.lists(changes, min_size=1, max_size=4))
    def change_several_things_or_none(self, at: int, wanted: list[Change]) -> None:
        nodes, possible = self.model.nodes, True
        for change in wanted:
            possible = possible and self.model.possible(*change)
            self.model.change(*change)

        self.ask(at, OpCode.MULTI, wire.encode_operations([operation(*change) for change in wanted]))

        self.everybody_hears(wanted if possible else [])
        if not possible:
            self.model.nodes = nodes

    @rule(chosen=st.sets(nodes, min_size=1, max_size=3))
    def end_a_session_that_has_ephemerals(self, chosen: set[str]) -> None:
        owner = self.connected()
        made = []
        for path in sorted(chosen):
            if self.model.possible("create", path) and not any(one in made for one in ancestors(path)):
                owner.create(path, flags=1)
                self.everybody_hears([("create", path)])
                made.append(path)
        self.model.nodes |= set(made)

        owner.close()

        self.everybody_hears([("delete", path) for path in made], ordered=False)
        self.model.nodes -= set(made)

    # --- invariants ---

    @invariant()
    def each_connection_has_the_watches_of_the_model_and_no_others(self) -> None:
        for at, mine in enumerate(self.model.watches):
            for path in {*known, "/", "/zookeeper"}:
                for kind, wanted in TYPES.items():
                    there = bool({(store, path, mode) for store, mode in wanted} & mine)
                    err = self.ask(at, OpCode.CHECK_WATCHES, r.CheckWatchesRequest(path, kind))
                    assert err == (OK if there else NO_WATCHER), (at, path, kind)

    @invariant()
    def nobody_hears_of_nothing(self) -> None:
        assert [peer.receive() for peer in self.peers] == [[], []]


@pytest.mark.slow
def test_connections_get_same_events_as_in_model() -> None:
    run_state_machine_as_test(WatchMachine, settings=settings(max_examples=60, stateful_step_count=30, deadline=None))
