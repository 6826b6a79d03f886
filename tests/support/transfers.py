"""The tree in the tests of dump, load and push."""

from __future__ import annotations

from typing import Any, Final

from zoolet.client import acl
from zoolet.testing import Znode

SECRET: Final = acl.digest("user", "secret")
TREE: Final[dict[str, Any]] = {
    "/app": Znode(b"root", children_created=7),
    "/app/a": b"1",
    "/app/a/b": Znode(None),
    "/app/ä": "grün",
    "/app/binary": b"\xff\xfe",
    "/app/secret": Znode(b"hidden", {"below": b""}, acl=SECRET),
    "/other": b"not transferred",
}
