"""The caches of a node: after any change or undone change they equal newly computed results."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoolet.protocol import paths
from zoolet.protocol.codec import put_strs
from zoolet.server.core.node import Children, Node
from zoolet.server.core.tree import Tree

CREATE, AGAIN, DELETE_FIRST, DELETE_LAST, DELETE_MIDDLE, LIST, UNDO = range(7)
STEPS = [CREATE, CREATE, AGAIN, AGAIN, DELETE_FIRST, DELETE_LAST, DELETE_MIDDLE, DELETE_MIDDLE, LIST, UNDO]
steps = st.lists(st.sampled_from(STEPS), max_size=60)
NAMES = ["a", "bc", "ä", "b", "x" * 9000]


def tree_with(names: list[str]) -> tuple[Tree, Node]:
    tree = Tree()
    tree.create("/q", "q", tree.root, b"", 0, 0, 1, 1)
    folder = tree.find("/q")
    for name in names:
        tree.create(f"/q/{name}", name, folder, b"", 0, 0, 1, 1)
    return tree, folder


def delete(tree: Tree, path: str) -> None:
    tree.delete(path, paths.name(path), tree.parent_of(path), tree.find(path), 1)


def child_names(folder: Node) -> Children:
    assert folder.children is not None
    return folder.children


@settings(max_examples=300, deadline=None)
@given(steps)
def test_cached_list_equals_new_encoding(todo: list[int]) -> None:
    tree, folder = tree_with(NAMES)
    made = 0
    for step in todo:
        children = folder.children
        if step in (CREATE, UNDO):
            tree.begin()
            made += 1
            tree.create(f"/q/{made}", str(made), folder, b"", 0, 0, 1, 1)
            if children is not None and len(children) > 2:
                delete(tree, "/q/" + next(iter(children)))
            tree.commit() if step == CREATE else tree.roll_back()
        elif step == AGAIN:
            missing = [name for name in NAMES if name not in (children or ())]
            for name in missing[:1]:
                tree.create(f"/q/{name}", name, folder, b"", 0, 0, 1, 1)
        elif children is not None and step != LIST:
            names = list(children)
            delete(tree, "/q/" + names[{DELETE_FIRST: 0, DELETE_LAST: -1}.get(step, len(names) // 2)])
        if folder.children is not None and step == LIST:
            assert folder.children.encoded() == put_strs(list(folder.children))
    if folder.children is not None:
        assert folder.children.encoded() == put_strs(list(folder.children))
        assert folder.children.encoded() is folder.children.encoded()


@pytest.mark.parametrize("name", ["a", "b", "c"])
@pytest.mark.parametrize("is_listed", [False, True])
def test_node_is_listed_again_after_undone_delete(name: str, is_listed: bool) -> None:
    tree, folder = tree_with(["a", "b", "c"])
    child_names(folder).encoded()
    tree.begin()
    delete(tree, f"/q/{name}")
    if is_listed:
        child_names(folder).encoded()
    tree.roll_back()

    assert child_names(folder).encoding is not None
    assert child_names(folder).encoded() == put_strs(list(child_names(folder)))
    assert set(child_names(folder)) == {"a", "b", "c"}


def test_queue_operations_extend_and_cut_cached_list() -> None:
    tree, folder = tree_with(["a", "b", "c"])
    child_names(folder).encoded()

    delete(tree, "/q/a")
    tree.create("/q/d", "d", folder, b"", 0, 0, 1, 1)

    assert child_names(folder).encoding is not None
    assert child_names(folder).encoded() == put_strs(["b", "c", "d"])


def test_delete_in_middle_cuts_cached_list() -> None:
    tree, folder = tree_with(["a", "b", "c", "d"])
    child_names(folder).encoded()

    for name in ("c", "b", "a"):
        delete(tree, f"/q/{name}")

    assert child_names(folder).encoding is not None
    assert child_names(folder).encoded() == put_strs(["d"])


def test_repeatedly_recreated_and_deleted_name_is_not_listed() -> None:
    tree, folder = tree_with(["a", "b", "c"])
    child_names(folder).encoded()

    for _ in range(2):
        delete(tree, "/q/b")
        tree.create("/q/b", "b", folder, b"", 0, 0, 1, 1)
    delete(tree, "/q/a")
    delete(tree, "/q/b")

    assert child_names(folder).encoding is not None
    assert child_names(folder).encoded() == put_strs(["c"])


def test_many_deletes_in_middle_discard_cached_list() -> None:
    tree, folder = tree_with([f"{number:03}" for number in range(200)])
    child_names(folder).encoded()

    for number in range(1, 51, 2):
        assert child_names(folder).encoding is not None
        delete(tree, f"/q/{number:03}")

    assert child_names(folder).encoding is None
    assert child_names(folder).encoded() == put_strs(list(child_names(folder)))


def test_larger_cached_list_survives_fewer_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoolet.server.core.node._MAX_SEARCHED", 200)
    tree, folder = tree_with([f"{number:02}" for number in range(10)])
    assert len(child_names(folder).encoded()) == 64

    is_kept = []
    for number in range(1, 9, 2):
        delete(tree, f"/q/{number:02}")
        is_kept.append(child_names(folder).encoding is not None)

    assert is_kept == [True, True, True, False]
    assert child_names(folder).encoded() == put_strs(list(child_names(folder)))


def test_many_creates_discard_cached_list() -> None:
    tree, folder = tree_with(["a"])
    child_names(folder).encoded()

    numbers = iter(range(2_000))
    while child_names(folder).encoding is not None:
        name = str(next(numbers))
        tree.create(f"/q/{name}", name, folder, b"", 0, 0, 1, 1)

    assert 1_000 < next(numbers) < 1_300
    assert not child_names(folder).added
    assert child_names(folder).encoded() == put_strs(list(child_names(folder)))


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize(
    ("name", "other"),
    [
        pytest.param("s" * 0x2020, ("  " + "s" * 0x2020).ljust(0x10000, "x"), id="64 kB"),
        pytest.param("d" * 97, ("a" + "d" * 97).ljust(1 << 24, "x"), id="16 MB, above 16 MB of jute.maxbuffer"),
        pytest.param("ab", "Z\0\0\0\2ab", id="invalid name of a forged snapshot"),
    ],
)
def test_deleted_name_is_not_cut_out_of_longer_name(
    name: str, other: str, is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zoolet.server.core.node._MAX_SEARCHED", 1 << 30)
    tree, folder = tree_with([name, "middle", other] if is_first else [other, "middle", name])
    tree.create("/q/end", "end", folder, b"", 0, 0, 1, 1)
    assert child_names(folder).encoded().count(put_strs([name])[4:]) == 2

    delete(tree, f"/q/{name}")

    assert child_names(folder).encoded() == put_strs(list(child_names(folder)))


CHANGES: dict[str, Callable[[Tree, Node], object]] = {
    "create": lambda tree, node: tree.create("/a/new", "new", node, b"", 0, 5, 9, 9),
    "first delete": lambda tree, node: tree.delete("/a/x", "x", node, tree.find("/a/x"), 9),
    "last delete": lambda tree, node: tree.delete("/a/z", "z", node, tree.find("/a/z"), 9),
    "deletes of a session": lambda tree, node: tree.delete_owned(["/a/y"], 4, 9),
    "data": lambda tree, node: tree.set_data(node, b"newer", 1, 9, 9),
    "silent data": lambda tree, node: tree.set_data_silently(node, b"newer"),
    "ACL": lambda tree, node: tree.set_acl(node, 1, 1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("is_read", [False, True], ids=["unread", "read"])
def test_rolled_back_change_restores_cached_state(change: Callable[[Tree, Node], object], is_read: bool) -> None:
    tree = Tree()
    tree.create("/a", "a", tree.root, b"old", 0, 0, 1, 1)
    node = tree.find("/a")
    for number, (name, owner) in enumerate({"x": 0, "y": 4, "z": 0}.items(), 2):
        tree.create(f"/a/{name}", name, node, b"", 0, owner, number, number)

    def shown() -> tuple[object, ...]:
        assert node.children is not None
        assert node.children.encoded() == put_strs(list(node.children))
        owned = {owner: paths.with_prefix("/") for owner, paths in tree.ephemerals.items()}
        return node.stat(), set(node.children), owned, {path for path, _ in tree.walk()}, tree.size, tree.data_size

    before = shown()
    tree.begin()
    change(tree, node)
    if is_read:
        assert shown() != before
    tree.roll_back()

    assert shown() == before
