"""Transactions: a failed one leaves no trace, a successful one equals the same operations one by one, and neither leaks
or loses an ACL list.

The model is the server itself: the result of a transaction is compared with a twin that runs the operations singly.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.engine import make_engine
from support.peer import Peer

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Id
from zoolet.protocol.codec import Record
from zoolet.protocol.operations import OPERATIONS, OpCode
from zoolet.server.core.engine import Engine
from zoolet.server.core.settings import EngineSettings

NOW = 1_700_000_000_000
DATA, CHILD = 0, 1
MARSHALLING_ERROR, NOT_TRIED, QUOTA_EXCEEDED = -5, -2, -125
Operation = tuple[OpCode, Record]

LIMITS, STATS = "/zookeeper/quota/a/zookeeper_limits", "/zookeeper/quota/a/zookeeper_stats"
paths = st.sampled_from(["/a", "/a", "/b", "/a/x", "/a/x", "/a/y", "/a/x/p", "/b/z", "/e", "/", LIMITS, STATS])
some_acls = [
    OPEN_ACL_UNSAFE,
    READ_ACL_UNSAFE,
    CREATOR_ALL_ACL,
    (ACL(31, Id("digest", "v:hash")), *OPEN_ACL_UNSAFE),
    (*OPEN_ACL_UNSAFE, *OPEN_ACL_UNSAFE),
    (ACL(29, Id("world", "anyone")),),
    (),
]
acls = st.sampled_from([OPEN_ACL_UNSAFE, *some_acls])
datas = st.sampled_from([None, b"", b"x", b"count=2,bytes=9"])
versions = st.sampled_from([-1, -1, -1, -1, 0, 1])
plain = st.builds(r.CreateRequest, paths, datas, acls, st.sampled_from([0, 0, 0, 1, 2, 3]))
container = st.builds(r.CreateRequest, paths, datas, acls, st.just(4))
ttl = st.builds(r.CreateTTLRequest, paths, datas, acls, st.sampled_from([5, 6]), st.just(1000))
MAY_HOLD = {
    OpCode.CREATE: plain,
    OpCode.CREATE2: plain,
    OpCode.CREATE_CONTAINER: container,
    OpCode.CREATE_TTL: ttl,
    OpCode.DELETE: st.builds(r.DeleteRequest, paths, versions),
    OpCode.SET_DATA: st.builds(r.SetDataRequest, paths, datas, versions),
    OpCode.CHECK: st.builds(r.CheckVersionRequest, paths, versions),
}
OPERATION_WEIGHTS = [
    OpCode.CREATE,
    OpCode.CREATE,
    OpCode.CREATE,
    OpCode.DELETE,
    OpCode.DELETE,
    OpCode.SET_DATA,
    *MAY_HOLD,
]
inside = st.sampled_from(OPERATION_WEIGHTS).flatmap(lambda op: st.tuples(st.just(op), MAY_HOLD[op]))
acl_changes = st.tuples(st.just(OpCode.SET_ACL), st.builds(r.SetACLRequest, paths, acls, versions))
writes = st.one_of(inside, inside, inside, acl_changes)
many, few = st.lists(inside, min_size=1, max_size=8), st.lists(writes, max_size=12)
moderate = settings(max_examples=60, deadline=None)


@dataclass
class World:
    """A server with some nodes, a client that writes, and a client that watches everything."""

    engine: Engine
    writer: Peer
    watcher: Peer

    def do(self, op: OpCode, body: Record) -> Record | int:
        """Run a single operation. Return the record of its reply, or its error code."""
        if op == OpCode.CHECK:
            return self.together([(op, body)])[0]
        (reply,) = self.writer.send(op, body.encode())
        response = OPERATIONS[op].response
        assert response is not None
        return reply.err or response.decode(reply.body)

    def together(self, operations: list[Operation]) -> list[Record | int]:
        """Run operations in a transaction. Return the record or the error code of each.

        Only a quota with unparsable limits makes the whole request fail here, as if its bytes were malformed.
        """
        (reply,) = self.writer.send(OpCode.MULTI, wire.encode_operations(operations))
        assert reply.zxid == self.engine.zxid
        if reply.err:
            assert (reply.err, reply.body) == (MARSHALLING_ERROR, b"")
            return [reply.err] * len(operations)
        results = wire.decode_results(reply.body)
        return [body.err if isinstance(body, r.ErrorResponse) else body for _, body in results]

    def watch(self) -> None:
        """Set watches of every kind. Setting them again later does no harm."""
        for path in ("/a", "/b", "/a/x", "/a/x/p", "/e", "/"):
            self.watcher.send(OpCode.EXISTS, r.ExistsRequest(path, True).encode())
            self.watcher.send(OpCode.GET_CHILDREN, r.GetChildrenRequest(path, True).encode())
        self.watcher.call(OpCode.ADD_WATCH, r.AddWatchRequest("/a", 0))
        self.watcher.call(OpCode.ADD_WATCH, r.AddWatchRequest("/b", 1))

    def picture(self) -> dict[str, Any]:
        """Return everything that a client can see of the server."""
        engine = self.engine
        return {
            "nodes": {
                path: (node.data, node.stat(), engine.acls.list(node.acl), node.is_container(), node.ttl())
                for path, node in engine.tree.walk()
            },
            "sizes": (engine.tree.size, engine.tree.data_size, engine.quota.active),
            "ephemerals": {owner: sorted(paths) for owner, paths in engine.tree.ephemerals.items()},
            "some day deleted": sorted(engine.tree.expiring),
            "watches": [
                {path: sorted(one.port for one in who) for path, who in engine.watches.by_path(store).items()}
                for store in (DATA, CHILD)
            ],
            "modes": [dict(modes) for modes in self.watcher.client.modes],
            "unread": [bytes(b"".join(one.client.outbox)) for one in (self.writer, self.watcher)],
            "lists": sorted(map(repr, kept_lists(engine))),
        }


def kept_lists(engine: Engine) -> Counter[tuple[ACL, ...]]:
    """Return the interned ACL lists with their use counts, except the common list."""
    return Counter({engine.acls.list(key): engine.acls._lists[key].uses for key in engine.acls.lists()})


def used_lists(engine: Engine) -> Counter[tuple[ACL, ...]]:
    """Return the same lists with the numbers of their uses in the tree."""
    return Counter(engine.acls.list(node.acl) for _, node in engine.tree.walk() if node.acl)


def make_world(before: list[Operation], *, enforce_quota: bool = False) -> World:
    """Return a world after trying all operations of *before*."""
    engine = make_engine(EngineSettings(enforce_quota=enforce_quota), now=NOW)
    made = World(engine, Peer(engine), Peer(engine))
    for peer in (made.writer, made.watcher):
        peer.connect(timeout=40_000)
    made.writer.auth("digest", b"u:p")
    for path in ("/a", "/a/x", "/zookeeper/quota/a"):
        made.writer.create(path)
    made.writer.create(LIMITS, b"count=2,bytes=2=;byteHardLimit=40;countHardLimit=6")
    made.writer.create(STATS)
    for op, body in before:
        made.do(op, body)
    engine.set_time(NOW + 5, 5)
    return made


failure = (OpCode.CHECK, r.CheckVersionRequest("/none", -1))


# --- a failed transaction ---


@pytest.mark.slow
@moderate
@given(before=few, tried=many, never=st.lists(inside, max_size=2), enforced=st.booleans())
def test_failed_transaction_restores_state(
    before: list[Operation], tried: list[Operation], never: list[Operation], enforced: bool
) -> None:
    it = make_world(before, enforce_quota=enforced)
    it.watch()
    seen = it.picture()

    results = it.together([*tried, failure, *never])

    assert any(isinstance(code, int) and code < 0 for code in results)
    assert it.picture() == seen


@pytest.mark.slow
@moderate
@given(before=few, tried=many, after=few, enforced=st.booleans())
def test_failed_transaction_has_same_effects_as_empty_one(
    before: list[Operation], tried: list[Operation], after: list[Operation], enforced: bool
) -> None:
    one, other = make_world(before, enforce_quota=enforced), make_world(before, enforce_quota=enforced)
    one.watch()
    other.watch()

    one.together([*tried, failure])
    other.together([])

    assert [one.do(*operation) for operation in after] == [other.do(*operation) for operation in after]
    assert one.watcher.receive() == other.watcher.receive()
    assert one.picture() == other.picture()


@pytest.mark.slow
@moderate
@given(before=few, tried=many, never=st.lists(inside, max_size=2))
def test_failed_transaction_has_one_error_result(
    before: list[Operation], tried: list[Operation], never: list[Operation]
) -> None:
    it = make_world(before)

    codes = it.together([*tried, failure, *never])
    at = next(at for at, code in enumerate(codes) if code != 0)

    assert codes == [0] * at + [codes[at]] + [NOT_TRIED] * (len(codes) - at - 1)
    assert isinstance(codes[at], int)
    assert codes[at] not in (0, NOT_TRIED)


# --- a successful transaction ---


def without_later_zxid(zxid: int, seen: Any) -> Any:
    """Return a copy of *seen* where every zxid above *zxid* is replaced by ``zxid + 1``."""
    if isinstance(seen, r.Stat):
        zxids = {name: min(getattr(seen, name), zxid + 1) for name in ("czxid", "mzxid", "pzxid")}
        return r.Stat(**{name: zxids.get(name, getattr(seen, name)) for name in r.Stat.__match_args__})
    if isinstance(seen, r.Create2Response):
        return r.Create2Response(seen.path, without_later_zxid(zxid, seen.stat))
    if isinstance(seen, r.StatResponse):
        return r.StatResponse(without_later_zxid(zxid, seen.stat))
    return seen


@pytest.mark.slow
@moderate
@given(before=few, wanted=many)
def test_transaction_equals_its_operations_except_zxid(before: list[Operation], wanted: list[Operation]) -> None:
    one, other = make_world(before), make_world(before)
    one.watch()
    other.watch()
    start = one.engine.zxid
    done = []
    for operation in wanted:
        result = one.do(*operation)
        if isinstance(result, int):
            break
        done.append((operation, result))

    results = other.together([operation for operation, _ in done])

    assert [without_later_zxid(start, result) for result in results] == [
        without_later_zxid(start, result) for _, result in done
    ]
    assert other.watcher.receive() == one.watcher.receive()
    assert without_zxids(other, start) == without_zxids(one, start)


def without_zxids(it: World, start: int) -> dict[str, Any]:
    picture = it.picture()
    nodes = picture.pop("nodes")
    seen = {
        path: (data, without_later_zxid(start, r.Stat.decode(stat)), *rest)
        for path, (data, stat, *rest) in nodes.items()
    }
    return {**picture, "nodes": seen}


@pytest.mark.slow
@moderate
@given(before=few, wanted=many)
def test_all_changes_of_transaction_have_one_zxid(before: list[Operation], wanted: list[Operation]) -> None:
    it = make_world(before)
    it.watch()
    before_it = {path: r.Stat.decode(node.stat()) for path, node in it.engine.tree.walk()}
    start = it.engine.zxid

    it.together(wanted)
    it.watcher._sort(it.watcher.pop_output())
    nodes = {path: r.Stat.decode(node.stat()) for path, node in it.engine.tree.walk()}

    assert it.engine.zxid == start + 1
    assert {event.zxid for event in it.watcher.inbox} <= {start + 1}
    assert {stat.pzxid for path, stat in nodes.items() if stat != before_it.get(path)} <= {
        start + 1,
        *(stat.pzxid for stat in before_it.values()),
    }


# --- ACL lists ---

places = st.sampled_from(["/a", "/a/x", "/b"])
special = st.sampled_from([CREATOR_ALL_ACL, CREATOR_ALL_ACL + READ_ACL_UNSAFE, some_acls[3], OPEN_ACL_UNSAFE, ()])
guarded: st.SearchStrategy[Operation] = st.one_of(
    st.tuples(st.just(OpCode.CREATE), st.builds(r.CreateRequest, places, datas, special, st.sampled_from([0, 1]))),
    st.tuples(st.just(OpCode.DELETE), st.builds(r.DeleteRequest, places, st.just(-1))),
)
guards = st.tuples(st.just(OpCode.SET_ACL), st.builds(r.SetACLRequest, places, special, st.just(-1)))
LAST_USE: list[Operation] = [
    (OpCode.DELETE, r.DeleteRequest("/a/x", -1)),
    (OpCode.CHECK, r.CheckVersionRequest("/a", -1)),
]
several = st.lists(guarded, min_size=2, max_size=4)
steps = st.one_of(
    st.one_of(guarded, guards).map(lambda one: [one]), several, several.map(lambda tried: [*tried, failure])
)


@pytest.mark.slow
@moderate
@given(st.lists(steps, max_size=12), st.booleans())
@example([[(OpCode.SET_ACL, r.SetACLRequest("/a/x", CREATOR_ALL_ACL, -1))], LAST_USE], False)
@example([[(OpCode.SET_ACL, r.SetACLRequest("/a/x", CREATOR_ALL_ACL, -1))], [*LAST_USE, failure]], False)
def test_kept_acl_lists_are_exactly_those_in_use(script: list[list[Operation]], closes: bool) -> None:
    it = make_world([])
    for operations in script:
        if len(operations) == 1:
            it.do(*operations[0])
        else:
            it.together(operations)
    if closes:
        it.writer.close()

    assert kept_lists(it.engine) == used_lists(it.engine)
    assert {each.acl for each in it.engine.acls._lists.values()} == {OPEN_ACL_UNSAFE, *used_lists(it.engine)}


@pytest.mark.slow
@moderate
@given(few)
def test_acl_lists_of_expired_nodes_are_forgotten(before: list[Operation]) -> None:
    it = make_world(before)

    it.engine.set_time(NOW + 120_000, 120_000)
    it.engine.tick()

    assert it.writer.closed
    assert kept_lists(it.engine) == used_lists(it.engine)


# --- counters ---


@pytest.mark.slow
@moderate
@given(before=few, done=many, tried=many)
def test_counters_of_nodes_and_bytes_match_tree(
    before: list[Operation], done: list[Operation], tried: list[Operation]
) -> None:
    it = make_world(before)
    it.together(done)
    it.together([*tried, failure])

    nodes = list(it.engine.tree.walk())

    assert it.engine.tree.size == len(nodes)
    assert it.engine.tree.data_size == sum(len(path.rstrip("/")) + len(node.data or b"") for path, node in nodes)
