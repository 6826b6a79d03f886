"""The index of paths by ancestor: it gives the result of a full scan, in time linear in the length of the path."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zoolet.server.core.ancestors import AncestorIndex
from zoolet.server.core.watches import NULL_PATH

moderate = settings(max_examples=60, deadline=None)
names = st.sampled_from(["a", "b", "ab", "abc", "", " ", ".", "..", "é", "\ud800"])
absolute = st.lists(names, max_size=5).map(lambda parts: "/" + "/".join(parts))
texts = st.one_of(absolute, absolute, absolute.map(lambda path: path[1:]), st.sampled_from(["", "/", "//", "a", "/a/"]))


def stored_ancestors(stored: list[str], path: str) -> list[str]:
    """Return the absolute paths in *stored* that are *path* or one of its ancestors, the highest first."""
    found = [one for one in set(stored) if one[:1] == "/" and (one in (path, "/") or path.startswith(one + "/"))]
    return sorted(found, key=len)


def index_of(stored: list[str]) -> AncestorIndex[str]:
    """Return an index that maps each path to itself."""
    index: AncestorIndex[str] = AncestorIndex()
    for path in stored:
        index.put(path, path)
    return index


@moderate
@given(st.lists(texts, max_size=12), absolute)
@example(["/", "//", "/a", "/a/", "/a//", "/a//b", "/ab"], "/a//b")
@example(["/a", "/ab", "/abc"], "/ab")
@example(["a", "", NULL_PATH], "/a")
def test_index_finds_same_ancestors_as_full_walk(stored: list[str], path: str) -> None:
    index = index_of(stored)

    found = list(index.search_ancestors(path))

    assert found == [(one, one) for one in stored_ancestors(stored, path)]


@moderate
@given(st.lists(texts, max_size=10), st.lists(texts, max_size=10), absolute)
def test_index_does_not_find_removed_paths(kept: list[str], removed: list[str], path: str) -> None:
    index = index_of([*kept, *removed])
    for one in set(removed) - set(kept):
        index.remove(one)

    found = [one for one, _ in index.search_ancestors(path)]

    assert found == stored_ancestors(kept, path)
    assert sorted(index) == sorted(set(kept))


@moderate
@given(st.lists(texts, max_size=10))
def test_index_has_no_entries_after_removal_of_all_paths(stored: list[str]) -> None:
    index = index_of(stored)

    for path in set(stored):
        index.remove(path)

    assert (len(index), index._by_hash) == (0, {})


@moderate
@given(st.lists(texts, max_size=10), texts)
def test_index_get_returns_values_of_stored_paths_only(stored: list[str], path: str) -> None:
    index = index_of(stored)

    assert index.get(path) == (path if path in stored else None)
    assert (path in index) == (path in stored)


def test_index_put_replaces_value_of_stored_path() -> None:
    index = index_of(["/a"])

    index.put("/a", "new")

    assert list(index.search_ancestors("/a/b")) == [("/a", "new")]
    assert len(index) == 1


def test_removal_of_missing_path_from_index_raises() -> None:
    with pytest.raises(KeyError):
        index_of(["/a"]).remove("/b")


def test_paths_with_colliding_hashes_are_distinguished() -> None:
    colliding = "/x"  # strings rarely have equal hashes, unlike -1 and -2, so the test files one under the other's hash
    index = index_of(["/a", colliding])
    (by_hash,) = [paths for paths in index._by_hash.values() if "/a" in paths]
    by_hash[colliding] = None

    assert [path for path, _ in index.search_ancestors("/a/b")] == ["/a"]


def test_deep_path_is_searched_in_linear_time() -> None:
    index = index_of(["/", "/a" * 100_000])
    deep = "/a" * 250_000

    started = time.process_time()
    found = [len(path) for path, _ in index.search_ancestors(deep)]
    took = time.process_time() - started

    assert found == [1, 200_000]
    assert took < 2  # 0.1 s; half a million strings of up to half a million letters would take minutes
