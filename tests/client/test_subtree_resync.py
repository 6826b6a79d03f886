"""After an absence: what a recursive watch finds out about the nodes below it, without I/O."""

from __future__ import annotations

from collections.abc import Callable

from support.registrations import events, watch

from zoolet.client import Event, EventType
from zoolet.client.watches import Kind, Registration, SubtreeResync
from zoolet.protocol import records as r

CREATED = EventType.NODE_CREATED
DELETED = EventType.NODE_DELETED
CHANGED = EventType.NODE_DATA_CHANGED


class Tree:
    """What a census is told when it asks: children by path, and the zxids of each node's creation and last change."""

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


def counted(tree: Tree) -> tuple[Registration, SubtreeResync]:
    one = watch(Kind.RECURSIVE)
    one.census = SubtreeResync(one, tree.ask)
    one.census.count(None)
    return one, one.census


def test_the_first_count_tells_nothing() -> None:
    one, _ = counted(Tree(a=(1, 1), a_b=(2, 2)))

    assert events(one) == []


def test_a_count_tells_what_came_changed_and_went() -> None:
    tree = Tree(a=(1, 1), a_b=(2, 2), a_c=(3, 3), a_c_d=(4, 4))
    one, census = counted(tree)

    tree.nodes = Tree(a=(1, 1), a_b=(2, 12), a_e=(13, 13), a_e_f=(14, 14)).nodes
    census.count(10)

    assert events(one) == [
        (DELETED, "/a/c/d"),
        (DELETED, "/a/c"),
        (CHANGED, "/a/b"),
        (CREATED, "/a/e"),
        (CREATED, "/a/e/f"),
    ]


def test_a_count_does_not_tell_again_what_live_events_told() -> None:
    tree = Tree(a=(1, 1))
    one, census = counted(tree)
    tree.nodes = Tree(a=(1, 1), a_b=(11, 11)).nodes
    one.deliver(Event(CREATED, "/a/b", 11))

    census.count(11)

    assert events(one) == [(CREATED, "/a/b")]


def test_a_node_that_an_event_without_zxid_told_of_is_not_said_to_have_been_deleted() -> None:
    tree = Tree(a=(1, 1))
    one, census = counted(tree)
    tree.nodes = Tree(a=(1, 1), a_b=(11, 11)).nodes
    one.deliver(Event(CREATED, "/a/b"))

    census.count(10)  # the zxid of the last reply

    assert (DELETED, "/a/b") not in events(one)


def test_what_went_during_an_absence_is_told_though_its_parent_goes_before_it_was_counted() -> None:
    tree = Tree(m=(1, 1), m_a=(2, 2), m_a_x=(3, 3))
    later: list[Callable[[], None]] = []
    one = watch(Kind.RECURSIVE, "/m")
    census = one.census = SubtreeResync(one, lambda path, answered: later.append(lambda: tree.ask(path, answered)))
    census.count(None)
    while later:
        later.pop(0)()

    del tree.nodes["/m/a/x"]  # while the client is away
    census.count(10)
    later.pop(0)()  # the answer about /m, which has /m/a still
    del tree.nodes["/m/a"]
    one.deliver(Event(DELETED, "/m/a", 12))
    later.pop(0)()  # the answer about /m/a, which is gone

    assert events(one) == [(DELETED, "/m/a/x"), (DELETED, "/m/a")]


def test_an_answer_of_a_connection_that_is_gone_counts_for_nothing() -> None:
    tree = Tree(a=(1, 1))
    late: list[Callable[[r.GetChildren2Response | None], None]] = []
    one = watch(Kind.RECURSIVE)
    census = one.census = SubtreeResync(one, lambda path, answered: late.append(answered))
    census.count(None)

    census.count(5)
    late[0](None)
    tree.ask("/a", late[1])

    assert events(one) == []
    assert census._known == {"/a": {}}
