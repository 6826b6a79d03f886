"""The questions of the console to a server: this one (``engine_source``), or any ZooKeeper (``remote_source``).

Answers are dictionaries for JSON. Session ids are text, ``0x1a2b``, because numbers of JavaScript end at 2**53.
"""

from __future__ import annotations

import base64
import fnmatch
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Protocol

import msgpack

from zoolet.protocol.acl import AclList, Id
from zoolet.protocol.enums import PERM_LETTERS
from zoolet.protocol.hexadecimal import hexadecimal
from zoolet.protocol.records import Stat

Answer = dict[str, Any]
MAX_PREVIEW: Final = 1 << 16
"""Bytes of data that are shown unless all are asked for."""
MAX_FOUND: Final = 500
"""Nodes that a search finds before it ends."""
MAX_MATCHED: Final = 1_000
"""Characters of a name or path that are compared with a glob."""
MAX_ROWS: Final = 500
"""The most rows of one answer."""


class NotOffered(Exception):
    """This server cannot be asked that, for the reason that is given."""


class Source(Protocol):
    """A server, as the console sees it.

    All paths are checked by the caller. What cannot be done raises a ``ZooKeeperError``, or :class:`NotOffered`.
    """

    async def about(self) -> Answer:
        """Return what is shown of it: ``kind``, ``name``, ``views``, ``changes``."""
        ...

    async def overview(self) -> Answer:
        """Return how it is: health, counts, the last sample, the busiest paths and clients."""
        ...

    def samples(self) -> tuple[tuple[str, ...], list[tuple[float, ...]]]:
        """Return the names of the columns, and the samples of the last hour."""
        ...

    async def children(self, path: str, offset: int, limit: int) -> Answer:
        """Return some children of a node by name: ``total``, and ``rows`` of name, children, bytes and kind."""
        ...

    async def node(self, path: str, *, trusted: bool, whole: bool) -> Answer:
        """Return all about a node; its data only to those who may read it."""
        ...

    def search(self, name: str, text: bytes, below: str, *, trusted: bool) -> AsyncIterator[Answer]:
        """Yield the nodes below one whose name matches a glob and whose data has a text, and how far the search is."""
        ...

    async def sessions(self, text: str, offset: int, limit: int) -> Answer:
        """Return some sessions, those with a text in their id or address."""
        ...

    async def session(self, session_id: int) -> Answer:
        """Return all about a session."""
        ...

    async def locks(self, *, trusted: bool) -> Answer:
        """Return what clients share, with holders and waiters, and circles of waiting."""
        ...

    async def history(
        self, path: str | None, session_id: int | None, before: int, limit: int, *, files: bool
    ) -> Answer:
        """Return the last transactions, of a node or a session if one is named; with *files* those of the log files."""
        ...

    async def change(self, action: str, arguments: Mapping[str, Any]) -> Answer:
        """Change something."""
        ...


def matcher(name: str) -> Callable[[str], object]:
    """Return a predicate for paths.

    Args:
        name: A glob of the whole path if it has a slash, and otherwise of the name; without a sign of a glob, a part of
            either. Empty for all.
    """
    if not name:
        return lambda path: True
    glob = name if set(name) & set("*?[") else f"*{name}*"
    matches = re.compile(fnmatch.translate(glob)).match
    if "/" in name:
        return lambda path: matches(path[:MAX_MATCHED])
    return lambda path: matches(path.rpartition("/")[2][:MAX_MATCHED])


def data_shown(data: bytes | None, *, whole: bool) -> Answer:
    """Return data in the forms in which people may read it."""
    if data is None:
        return {"size": 0, "null": True, "base64": ""}
    part = data if whole else data[:MAX_PREVIEW]
    shown: Answer = {"size": len(data), "null": False, "base64": base64.b64encode(part).decode()}
    if part is data and data[:1] and data[0] >= 0x80 and (decoded := _msgpack(data)) is not None:
        shown["msgpack"] = decoded
    return shown


def _msgpack(data: bytes) -> str | None:
    try:
        value = msgpack.unpackb(data, timestamp=0, strict_map_key=False)
        return json.dumps(value, indent=2, default=repr, ensure_ascii=False)
    except (ValueError, RecursionError, msgpack.UnpackException):
        return None


def acl_shown(acl: AclList, *, trusted: bool) -> list[Answer]:
    """Return an ACL list in words: who may do what; hashes of passwords only to those who have the token."""
    return [
        {
            "scheme": entry.id.scheme,
            "id": entry.id.id if trusted else name_without_hash(entry.id),
            "permissions": "".join(letter for letter, perm in PERM_LETTERS.items() if entry.perms & perm),
        }
        for entry in acl
    ]


def name_without_hash(identity: Id) -> str:
    """Return the name in an identity; one of scheme ``digest`` has the hash of the password behind it."""
    name = identity.id or ""
    return name.partition(":")[0] if identity.scheme == "digest" else name


def stat_shown(stat: Stat, kind: str) -> Answer:
    """Return a Stat with the names that people know."""
    return {
        "kind": kind,
        "created": stat.ctime,
        "modified": stat.mtime,
        "version": stat.version,
        "children_version": stat.cversion,
        "acl_version": stat.aversion,
        "czxid": hexadecimal(stat.czxid),
        "mzxid": hexadecimal(stat.mzxid),
        "pzxid": hexadecimal(stat.pzxid),
        "owner": hexadecimal(stat.ephemeralOwner) if stat.ephemeralOwner else None,
        "children": stat.numChildren,
        "next_sequence": f"{(stat.cversion + stat.numChildren) // 2:010d}",
    }
