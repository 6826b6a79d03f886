"""The end of a session with many ephemeral nodes equals deletes one by one: same events, quotas, nodes and counters."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.calls import add_watch, connect_peer, create, engine_with_settings, request_reply
from support.numbers import EPHEMERAL
from support.peer import Peer

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE
from zoolet.protocol.operations import OpCode
from zoolet.protocol.paths import QUOTA
from zoolet.protocol.quotas import LIMITS, STATS
from zoolet.server.core.compat import BY_NAME
from zoolet.server.core.quota import Quota
from zoolet.server.core.watches import Watches

FOLDERS = ["", "/a", "/a/b", "/zookeeper/quota"]
PLACES = ["/", "/a", "/a/b", "/a/b/n3", "/a/n1", "/n2", "/zookeeper", "/zookeeper/quota/n4", "/other"]
STANDARD_CHILD, STANDARD_DATA, PERSISTENT, RECURSIVE = range(4)
watches = st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(range(4)), st.booleans()), max_size=5)
quotas = st.sets(st.sampled_from(["/a", "/a/b", "/n2", "/other"]), max_size=3)


def all_paths(_: object, paths: list[str], parents: object) -> set[str]:
    return set(paths)


def set_watch(peer: Peer, path: str, kind: int) -> None:
    if kind in (PERSISTENT, RECURSIVE):
        add_watch(peer, path, kind - PERSISTENT)
    elif kind == STANDARD_DATA:
        request_reply(peer, OpCode.EXISTS, r.ExistsRequest(path, True))
    else:
        request_reply(peer, OpCode.GET_CHILDREN, r.GetChildrenRequest(path, True))


def end_session(
    where: list[str], set_watches: list[tuple[str, int, bool]], limited: set[str], compat: str, *, is_counted: bool
) -> object:
    """End a session with a node in each folder of *where*. Return all effects that clients can see."""
    engine = engine_with_settings(compat=BY_NAME[compat])
    owner, one, other = (connect_peer(engine) for _ in range(3))
    for path in ("/a", "/a/b", "/other"):
        one.create(path)
    for number, folder in enumerate(where):
        create(owner, f"{folder}/n{number}", EPHEMERAL, READ_ACL_UNSAFE if number == 5 else OPEN_ACL_UNSAFE)
    for above in limited:
        parts = above[1:].split("/")
        for level in range(len(parts)):
            create(one, QUOTA + "/" + "/".join(parts[: level + 1]))
        for kind in (LIMITS, STATS):
            create(one, QUOTA + above + kind, data=b"count=9,bytes=-1")
    create(one, QUOTA + "/mine")
    create(owner, QUOTA + "/mine" + LIMITS, EPHEMERAL)
    for path, watched, is_one in set_watches:
        set_watch(one if is_one else other, path, watched)

    if is_counted:
        engine.tree.count_below(engine.tree.root)

    request_reply(owner, OpCode.CLOSE_SESSION)

    below = {path: engine.tree.count_below(node) for path, node in engine.tree.walk()}
    assert below == {path: engine.tree.count(path)[0] - 1 for path, _ in engine.tree.walk()}
    events = [peer.receive() for peer in (one, other)]
    nodes = {path: (node.stat(), node.data) for path, node in engine.tree.walk()}
    counts = engine.tree.size, engine.tree.data_size, engine.watches.active, engine.quota.active
    return events, nodes, engine.zxid, counts


@pytest.mark.parametrize("compat", ["3.8", "3.9"])
@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(FOLDERS), min_size=7, max_size=15), watches, quotas, st.booleans())
def test_joint_deletion_at_session_end_equals_single_deletes(
    compat: str, where: list[str], set_watches: list[tuple[str, int, bool]], limited: set[str], is_counted: bool
) -> None:
    with patch("zoolet.server.core.tree._MAX_SINGLES", 0):
        together = end_session(where, set_watches, limited, compat, is_counted=is_counted)
    with (
        patch.object(Watches, "affected_paths", all_paths),
        patch.object(Quota, "affected_paths", all_paths),
        patch("zoolet.server.core.tree._MAX_SINGLES", 1_000),
    ):
        assert together == end_session(where, set_watches, limited, compat, is_counted=is_counted)


def test_ticks_free_nodes_of_large_ended_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoolet.server.core.tree._MAX_SINGLES", 0)
    monkeypatch.setattr("zoolet.server.core.tree._MAX_FREED_NODES", 20)
    engine = engine_with_settings()
    kept = []
    for count in (20, 50):
        owner = connect_peer(engine)
        for number in range(count):
            create(owner, f"/n{number}", EPHEMERAL)
        request_reply(owner, OpCode.CLOSE_SESSION)
        kept.append(len(engine.tree.unfreed))

    assert kept == [0, 50]
    assert [(engine.tick(), len(engine.tree.unfreed)) for _ in range(3)] == [(True, 30), (True, 10), (False, 0)]
