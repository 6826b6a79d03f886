"""Paths: validity, parents, children and sequence numbers."""

from __future__ import annotations

import pytest

from zoolet.protocol import paths


@pytest.mark.parametrize(
    "path",
    [
        "/", "/a", "/a/b", "/...", "/.x", "/..x", "/a..b", "/a.", "/a b", "/ ", "/~", "/!",
        "/\xa0", "/é", "/\u2028", "/\ud7ff", "/\uf900", "/\uffef", "/a/\xa0/b",
    ],
)  # fmt: skip
def test_path_accepted_by_zookeeper_is_legal(path: str) -> None:
    assert paths.path_error(path) is None
    assert paths.check(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "", "a", "a/b", "//", "//a", "/a/", "/a//b", "/a/b/", "/.", "/..", "/./a", "/../a", "/a/./b", "/a/../b", "/a/.",
        "/a/..", "/\x00", "/a\x00b", "/\x01", "/\t", "/\n", "/\x1f", "/\x7f", "/\x80", "/\x85", "/\x9f", "/\ue000",
        "/\uf8ff", "/\ufff0", "/\ufffd", "/\uffff", "/\U00010000", "/😀", "/\U0010ffff", "/é/\x01",
    ],
)  # fmt: skip
def test_path_refused_by_zookeeper_is_illegal(path: str) -> None:
    assert paths.path_error(path)
    with pytest.raises(ValueError, match="invalid path"):
        paths.check(path)


@pytest.mark.parametrize("unit", [0xD800, 0xDBFF, 0xDC00, 0xDFFF])
def test_lone_surrogate_is_illegal_in_path(unit: int) -> None:
    assert paths.path_error("/" + chr(unit))


def test_null_is_not_a_path() -> None:
    assert paths.path_error(None)


@pytest.mark.parametrize(("path", "parent"), [("/", "/"), ("/a", "/"), ("/a/b", "/a"), ("/a/b/c", "/a/b")])
def test_parent_omits_last_part_of_path(path: str, parent: str) -> None:
    assert paths.parent(path) == parent


@pytest.mark.parametrize(("parent", "path"), [("/", "/x"), ("", "/x"), ("/a", "/a/x"), ("/a/b", "/a/b/x")])
def test_child_name_is_joined_to_parent_with_one_slash(parent: str, path: str) -> None:
    assert paths.join(parent, "x") == path


@pytest.mark.parametrize(
    ("path", "top", "within"),
    [
        ("/a", "/a", True),
        ("/a/b", "/a", True),
        ("/ab", "/a", False),
        ("/", "/a", False),
        ("/a", "/", True),
        ("/", "/", True),
        ("", "", True),
        ("/a", "", True),
    ],
)
def test_is_within_accepts_node_and_descendants(path: str, top: str, within: bool) -> None:
    assert paths.is_within(path, top) is within


SUFFIXES = [(0, "0000000000"), (71, "0000000071"), (2**31 - 1, "2147483647"), (-1, "-000000001")]


@pytest.mark.parametrize(("number", "suffix"), [*SUFFIXES, (-(2**31), "-2147483648")])
def test_sequence_number_is_padded_to_ten_characters(number: int, suffix: str) -> None:
    assert paths.sequence_suffix(number) == suffix


@pytest.mark.parametrize(("number", "suffix"), SUFFIXES)
@pytest.mark.parametrize("start", ["/n", "/n-", "/"])
def test_sequence_number_is_read_from_path(start: str, number: int, suffix: str) -> None:
    assert paths.sequence_number(start + suffix) == number


@pytest.mark.parametrize(
    "path", ["/", "/n", "/n123456789", "/123456789", "/n-12345678x", "/n--12345678", "/n٣234567890"]
)
def test_path_without_valid_number_has_no_sequence(path: str) -> None:
    assert paths.sequence_number(path) is None
