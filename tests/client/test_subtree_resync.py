"""Resynchronisation of a recursive watch with the nodes below it after an absence, without I/O."""

from __future__ import annotations

from collections.abc import Callable

from support.registrations import make_registration, pending_events

from zoolet.client import Event, EventType
from zoolet.client.wire.resync import ChildrenRequest, SubtreeResync
from zoolet.client.wire.watches import Registration, WatchKind
from zoolet.protocol import records as r

CREATED = EventType.NODE_CREATED
DELETED = EventType.NODE_DELETED
CHANGED = EventType.NODE_DATA_CHANGED


class Tree:
    """The server's answers: children by path, and the zxids of each node's creation and last change."""

    def __init__(self, **nodes: tuple[int, int]) -> None:
        self.nodes = {"/" + name.replace("_", "/"): zxids for name, zxids in nodes.items()}

    def ask(self, path: str, answered: Callable[[r.GetChildren2Response | None], None]) -> None:
        if path not in self.nodes:
            answered(None)
            return
        czxid, mzxid = self.nodes[path]
        names = [one[len(path) + 1 :] for one in self.nodes if one.startswith(path + "/")]
        answered(
            r.GetChildren2Response(
                [name for name in names if "/" not in name], r.Stat(czxid, mzxid, 0, 0, 0, 0, 0, 0, 0, 0, mzxid)
            )
        )


def start_listing(path: str, ask: ChildrenRequest) -> tuple[Registration, SubtreeResync]:
    """Return a recursive watch that has started its first listing."""
    one = make_registration(WatchKind.RECURSIVE, path)
    one.resync = SubtreeResync(path, one.put, ask)
    one.resync.start(None)
    return one, one.resync


def test_first_listing_of_subtree_delivers_no_event() -> None:
    one, _ = start_listing("/a", Tree(a=(1, 1), a_b=(2, 2)).ask)

    assert pending_events(one) == []


def test_second_listing_of_subtree_delivers_all_kinds_of_changes() -> None:
    tree = Tree(a=(1, 1), a_b=(2, 2), a_c=(3, 3), a_c_d=(4, 4))
    one, resync = start_listing("/a", tree.ask)

    tree.nodes = Tree(a=(1, 1), a_b=(2, 12), a_e=(13, 13), a_e_f=(14, 14)).nodes
    resync.start(10)

    assert pending_events(one) == [
        (DELETED, "/a/c/d"),
        (DELETED, "/a/c"),
        (CHANGED, "/a/b"),
        (CREATED, "/a/e"),
        (CREATED, "/a/e/f"),
    ]


def test_listing_of_subtree_does_not_repeat_live_events() -> None:
    tree = Tree(a=(1, 1))
    one, resync = start_listing("/a", tree.ask)
    tree.nodes = Tree(a=(1, 1), a_b=(11, 11)).nodes
    one.deliver(Event(CREATED, "/a/b", 11))

    resync.start(11)

    assert pending_events(one) == [(CREATED, "/a/b")]


def test_node_of_event_without_zxid_is_not_reported_deleted() -> None:
    tree = Tree(a=(1, 1))
    one, resync = start_listing("/a", tree.ask)
    tree.nodes = Tree(a=(1, 1), a_b=(11, 11)).nodes
    one.deliver(Event(CREATED, "/a/b"))

    resync.start(10)  # 10 is the zxid of the last reply

    assert (DELETED, "/a/b") not in pending_events(one)


def test_deletion_of_child_is_reported_before_deletion_of_parent() -> None:
    tree = Tree(m=(1, 1), m_a=(2, 2), m_a_x=(3, 3))
    later: list[Callable[[], None]] = []
    one, resync = start_listing("/m", lambda path, answered: later.append(lambda: tree.ask(path, answered)))
    while later:
        later.pop(0)()

    del tree.nodes["/m/a/x"]  # while the client is away
    resync.start(10)
    later.pop(0)()  # the reply for /m, which still contains /m/a
    del tree.nodes["/m/a"]
    one.deliver(Event(DELETED, "/m/a", 12))
    later.pop(0)()  # the reply for /m/a, which no longer exists

    assert pending_events(one) == [(DELETED, "/m/a/x"), (DELETED, "/m/a")]


def test_listing_reply_of_earlier_connection_is_ignored() -> None:
    tree = Tree(a=(1, 1))
    late: list[Callable[[r.GetChildren2Response | None], None]] = []
    one, resync = start_listing("/a", lambda path, answered: late.append(answered))

    resync.start(5)
    late[0](None)
    tree.ask("/a", late[1])

    assert pending_events(one) == []
    assert resync.children == {"/a": {}}


def test_subtree_resync_runs_until_last_reply_or_stop() -> None:
    late: list[Callable[[r.GetChildren2Response | None], None]] = []
    tree = Tree(a=(1, 1))
    _, resync = start_listing("/a", lambda path, answered: late.append(answered))
    before = resync.running
    tree.ask("/a", late[0])
    answered = resync.running
    resync.start(1)
    again = resync.running

    resync.stop()

    assert (before, answered, again, resync.running) == (True, False, True, False)


def test_listing_skips_invalid_names_and_paths() -> None:
    asked: list[str] = []

    def ask(path: str, answered: Callable[[r.GetChildren2Response | None], None]) -> None:
        asked.append(path)
        names = ["", "/", "a/b", "x"] if path == "/" and len(asked) == 1 else []
        answered(r.GetChildren2Response(names, r.Stat(1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1)))

    one, resync = start_listing("/", ask)
    one.deliver(Event(CREATED, "//", 5))
    resync.start(1)

    assert asked == ["/", "/x", "/"]
    assert pending_events(one) == [(CREATED, "//"), (DELETED, "/x")]


def test_change_in_second_absence_is_reported_after_live_event() -> None:
    tree = Tree(a=(1, 1), a_p=(2, 2))
    one, resync = start_listing("/a", tree.ask)

    pending: list[tuple[str, Callable[[r.GetChildren2Response | None], None]]] = []
    resync._ask = lambda path, answered: pending.append((path, answered))
    resync.start(2)
    one.deliver(Event(CHANGED, "/a/p", 5))  # a live event during the listing
    tree.nodes = Tree(a=(1, 1), a_p=(2, 9)).nodes  # another change while the client is away again
    resync._ask = tree.ask
    resync.start(2)

    assert pending_events(one) == [(CHANGED, "/a/p"), (CHANGED, "/a/p")]


def test_node_created_in_absence_is_reported_created() -> None:
    tree = Tree(a=(1, 1))
    one, resync = start_listing("/a", tree.ask)

    pending: list[tuple[str, Callable[[r.GetChildren2Response | None], None]]] = []
    resync._ask = lambda path, answered: pending.append((path, answered))
    tree.nodes = Tree(a=(1, 1), a_p=(5, 7)).nodes
    resync.start(2)
    one.deliver(Event(CHANGED, "/a/p", 7))
    resync._ask = tree.ask
    tree.ask(*pending[0])

    assert (CREATED, "/a/p") in pending_events(one)
