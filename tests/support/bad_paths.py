"""Invalid paths, which every call with a path must refuse."""

from __future__ import annotations

from typing import Any

BAD_PATHS: list[tuple[Any, type[Exception]]] = [
    ("", ValueError),
    ("a", ValueError),
    ("/a/", ValueError),
    ("//", ValueError),
    ("/a//b", ValueError),
    ("/a/./b", ValueError),
    ("/a/../b", ValueError),
    ("/a\0", ValueError),
    ("/\ud800", ValueError),
    (None, TypeError),
    (5, TypeError),
    (b"/a", TypeError),
    (["/a"], TypeError),
]
