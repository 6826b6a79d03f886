"""The interface between the console and a server, in this process (``engine_source``) or anywhere (``remote_source``).

Answers are dictionaries for JSON. Session ids are strings such as ``0x1a2b``, because JavaScript numbers are exact only
up to 2**53.

Clients choose names, data and ACLs, so no answer contains more of them than a page can show. :func:`truncated_text`
truncates texts. A list that may be long is an iterator: :func:`encode_answer` encodes its rows one by one, in time
slices, and stops at :data:`MAX_ANSWER` bytes.
"""

from __future__ import annotations

import base64
import fnmatch
import json
import random
import re
from bisect import bisect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from heapq import merge, nsmallest
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from ..client.recipes._shared import SharedRecipe, drain, longest_wait_start
from ..client.recipes.overview import entry_json
from ..protocol.acl import AclList, name_without_hash
from ..protocol.deadlocks import LockEntry, Wait
from ..protocol.hexadecimal import hexadecimal
from ..protocol.node_json import JsonNode, perms_text
from ..protocol.paths import is_within, sequence_suffix
from ..protocol.records import Stat
from ..server.admin.pace import Pace as Pace
from .wanted import HistoryFilter

Answer = dict[str, Any]
Item = TypeVar("Item")
MAX_ANSWER: Final = 8 << 20
"""Maximum size of an answer in bytes. Its lists are truncated to this size."""
MAX_NAME: Final = 1_000
"""Maximum number of characters that are shown of a name, a path or any other text that a client chose."""
MAX_PREVIEW: Final = 1 << 16
"""Maximum number of bytes of data that are shown by default."""
MAX_WHOLE_BYTES: Final = 1 << 20
"""Maximum number of bytes of data that are shown on request."""
_STEP_BYTES: Final = 3 << 16  # bytes that are encoded in one step: a multiple of three, because base64 pads other sizes
MAX_LISTED: Final = 200
"""Maximum number of watches, ephemeral nodes and other details of one node or session."""
MAX_CONTENDERS: Final = 100
"""Maximum number of holders of a lock, waiters of a lock, and clients of a deadlock."""
MAX_CONTENDER_BYTES: Final = 200
"""Maximum number of bytes of the data of a contender."""
SAMPLED_KEYS: Final = 1_000
"""Number of keys that are sampled to divide a long list into parts, which are then sorted separately."""
MAX_FOUND: Final = 500
"""Maximum number of nodes that a search returns."""
MAX_MATCHED_CHARACTERS: Final = 1_000
"""Maximum number of characters of a name or path that are compared with a glob."""
MAX_ROWS: Final = 500
"""Maximum number of rows of one answer."""
CHILD_ORDERS: Final = ("name", "time", "size")
"""The orders of children: by name, the latest change first, the largest data first."""
MAX_SUBTREE: Final = 100_000
"""Maximum number of nodes of a subtree that are counted, or deleted by one request."""


CHANGED_NODE: Final = "the node was deleted and created again since it was shown"


class RequestRefusedError(Exception):
    """The server cannot answer a request. The message contains the reason."""


class ConsoleSource(Protocol):
    """A source of everything that the console shows about a server.

    The caller checks all paths. A request that fails raises a ``ZooKeeperError`` or :class:`RequestRefusedError`.
    """

    async def about(self) -> Answer:
        """Return a description of the server: ``kind``, ``name``, ``views``, ``changes``, ``orders`` of sessions."""
        ...

    async def overview(self) -> Answer:
        """Return the state of the server: health, counts, the last sample, the busiest paths and clients."""
        ...

    def samples(self, *, day: bool) -> tuple[tuple[str, ...], list[tuple[float, ...]]]:
        """Return the names of the columns, and the samples of the last hour, or one per minute of the last day."""
        ...

    async def children(self, path: str, offset: int, limit: int, sort: str, name: str) -> Answer:
        """Return some children of a node, sorted in one of the orders of :data:`CHILD_ORDERS`.

        The answer contains ``total``, the ``version`` of the list, ``at`` (the position of *name*, or None), and
        ``rows`` of name, number of children, bytes, kind and time of the last change.
        """
        ...

    async def subtree(self, path: str, *, trusted: bool) -> Answer:
        """Return the numbers of nodes and bytes of a subtree, and the paths of the held locks in it."""
        ...

    def export(self, path: str) -> AsyncIterator[tuple[str, JsonNode]]:
        """Yield the nodes of a subtree, except ephemeral nodes, parents first.

        ``children_created`` of a node counts all children that were ever created.
        """
        ...

    async def node(self, path: str, *, trusted: bool, whole: bool) -> Answer:
        """Return all details of a node, with its data only if the user may read it."""
        ...

    def search(self, name: str, text: bytes, below: str, *, trusted: bool) -> AsyncIterator[Answer]:
        """Yield the nodes of a subtree that match a name and contain a text in their data. Also yield the progress."""
        ...

    async def sessions(self, text: str, order: str, offset: int, limit: int, *, trusted: bool) -> Answer:
        """Return the sessions whose id or address contains a text, in one of the orders of :meth:`about`."""
        ...

    async def session(self, session_id: int) -> Answer:
        """Return all details of a session."""
        ...

    async def locks(self, session_id: int | None, *, trusted: bool) -> Answer:
        """Return recipes such as locks with their holders and waiters, and deadlocks: all, or those of a session."""
        ...

    async def history(self, wanted: HistoryFilter, before: int, limit: int, *, files: bool, fold: bool) -> Answer:
        """Return the last transactions that a filter selects, from memory, or with *files* from the log files."""
        ...

    async def change(self, action: str, arguments: Mapping[str, Any]) -> Answer:
        """Execute a change: one of the actions that :meth:`about` lists as ``changes``."""
        ...


def matcher(name: str) -> Callable[[str], object]:
    """Return a predicate for paths.

    Args:
        name: A text that must be part of the path, or a glob that must match the whole path. If it contains no slash,
            only the last part of the path is compared. An empty text matches all paths.
    """
    matches = re.compile(fnmatch.translate(name) if set(name) & set("*?[") else "(?!)").match
    if "/" in name:
        return lambda path: name in (shown := path[:MAX_MATCHED_CHARACTERS]) or matches(shown)
    return lambda path: name in (shown := path.rpartition("/")[2][:MAX_MATCHED_CHARACTERS]) or matches(shown)


def truncated_text(text: str) -> str:
    """Truncate a text that a client chose. The page recognizes truncated texts, and does not make them links."""
    return text if len(text) <= MAX_NAME else f"{text[:MAX_NAME]}… ({len(text):,} characters)"


def _shown_part(name: str) -> str:
    return name[:MAX_NAME]


async def sorted_in_slices(items: list[Item], pace: Pace, key: Callable[[Any], Any] = _shown_part) -> list[Item]:
    """Return sorted items, sorted in time slices: the items are divided into parts, then each part is sorted.

    Args:
        items: The items.
        pace: The time slices.
        key: Function that returns the sort key of an item. It must be deterministic, and few keys should be equal. By
            default, names are sorted by the part that is shown.
    """
    if len(items) <= SAMPLED_KEYS:
        return sorted(items, key=key)
    marks = sorted(map(key, random.sample(items, SAMPLED_KEYS)))
    parts: list[list[Item]] = [[] for _ in range(SAMPLED_KEYS + 1)]
    for number, item in enumerate(items):
        parts[bisect(marks, key(item))].append(item)
        if not number % 128:
            await pace.rest()
    found = []
    for part in parts:  # each part is sorted in runs, because a part is long if many keys are equal
        runs = []
        for start in range(0, len(part), SAMPLED_KEYS):
            runs.append(sorted(part[start : start + SAMPLED_KEYS], key=key))
            await pace.rest()
        for number, item in enumerate(runs[0] if len(runs) == 1 else merge(*runs, key=key)):
            found.append(item)
            if not number % 128:
                await pace.rest()
    return found


async def filter_by_session(
    lines: list[SharedRecipe], circles: list[list[Wait]], session_id: int, pace: Pace
) -> tuple[list[SharedRecipe], list[list[Wait]]]:
    """Return the locks that a session holds or waits for, and its deadlocks. *lines* is emptied."""
    found = []
    for line in drain(lines):
        await pace.rest()
        if any(entry.session_id == session_id for entry in chain(line.holders, line.waiters)):
            found.append(line)
    return found, [circle for circle in circles if any(wait.entry.session_id == session_id for wait in circle)]


async def encode_answer(answer: Answer, pace: Pace) -> bytes:
    """Return an answer as JSON. Its ``cut`` names the lists that were truncated to limit the size."""
    text, ended = bytearray(), []
    for key, value in answer.items():
        await pace.rest()
        text += b"%s%s: " % (b", " if text else b"{", json.dumps(key).encode())
        if isinstance(value, DataPreview):
            await value.put(text, pace)
            continue
        if not isinstance(value, Iterator):
            text += json.dumps(value).encode()
            continue
        text += b"["
        separator = b""
        for row in value:
            await pace.rest()
            part = json.dumps(row).encode()
            if len(text) + len(part) > MAX_ANSWER:
                ended.append(key)
                if isinstance(value, LockRows):
                    await value.release()
                break
            text += separator + part
            separator = b", "
        text += b"]"
    if ended:
        text += b', "cut": %s' % json.dumps(ended).encode()
    text += b"}\n" if text else b"{}\n"
    return bytes(text)


class DataPreview(NamedTuple):
    """The size of data, and its first bytes in base64, which browsers decode.

    Args:
        data: The data.
        whole: Whether up to :data:`MAX_WHOLE_BYTES` bytes are shown. Otherwise, up to :data:`MAX_PREVIEW`.
    """

    data: bytes | None
    whole: bool

    async def put(self, text: bytearray, pace: Pace) -> None:
        """Append the JSON object to a text in time slices, because encoding a megabyte takes 8 ms."""
        data = self.data or b""
        text += b'{"size": %d, "null": %s, "base64": "' % (len(data), b"true" if self.data is None else b"false")
        shown = memoryview(data)[: MAX_WHOLE_BYTES if self.whole else MAX_PREVIEW]
        for start in range(0, len(shown), _STEP_BYTES):
            await pace.rest()
            text += base64.b64encode(shown[start : start + _STEP_BYTES])
        text += b'"}'


async def subtree_json(
    path: str, nodes: int, size: int, ephemerals: int, lines: list[SharedRecipe], pace: Pace
) -> Answer:
    """Return the answer about a subtree: its counts, and the paths of locks that are held in it.

    *lines*, all locks and similar recipes of the server, is emptied.
    """
    held = []
    for line in drain(lines):
        await pace.rest()
        if line.holders and is_within(line.path, path):
            held.append(truncated_text(line.path))
    return {
        "nodes": nodes,
        "more": nodes > MAX_SUBTREE,
        "bytes": size,
        "ephemerals": ephemerals,
        "held": len(held),
        "locks": nsmallest(MAX_LISTED, held),
    }


class LockRows(Iterator[Answer]):
    """The rows of locks. Each lock is released with its row: releasing 100,000 contenders together takes 20 ms.

    Args:
        lines: The locks. The list is emptied.
        shown: Function that returns the row of a lock.
        pace: The time slices.
    """

    def __init__(self, lines: list[SharedRecipe], shown: Callable[[SharedRecipe], Answer], pace: Pace) -> None:
        self._rest = drain(lines)
        self._shown = shown
        self._pace = pace

    def __next__(self) -> Answer:
        return self._shown(next(self._rest))

    async def release(self) -> None:
        """Release the remaining locks in time slices. Their rows are not created."""
        for _ in self._rest:
            await self._pace.rest()


async def locks_json(
    lines: list[SharedRecipe],
    circles: list[list[Wait]],
    more: Callable[[LockEntry], Answer],
    now: float,
    pace: Pace,
    session_id: int | None = None,
) -> Answer:
    """Return the answer about locks and similar recipes: rows in order of their longest waits, counts and deadlocks.

    Args:
        lines: Locks, elections, semaphores and queues.
        circles: Clients that wait for each other.
        more: Function that returns more facts about a contender.
        now: Current time in seconds since the epoch, by the clock that sets the times of nodes.
        pace: The time slices.
        session_id: A session whose position in each queue is shown as ``place``, 0 for a holder; None to show no
            positions.
    """
    lines = await sorted_in_slices(lines, pace, lambda line: (longest_wait_start(line), line.path))
    longest = lines[0] if lines and lines[0].waiters else None

    def contender(entry: LockEntry) -> Answer:
        return {**entry_json(entry._replace(path=truncated_text(entry.path)), MAX_CONTENDER_BYTES), **more(entry)}

    def recipe_json(line: SharedRecipe) -> Answer:
        return {
            "path": truncated_text(line.path),
            "kind": line.kind,
            "naming": line.naming,
            "size": line.size,
            "held": len(line.holders),
            "waiting": len(line.waiters),
            "holders": [contender(entry) for entry in line.holders[:MAX_CONTENDERS]],
            "waiters": [contender(entry) for entry in line.waiters[:MAX_CONTENDERS]],
            **({"place": place(line)} if session_id is not None else {}),
        }

    def place(line: SharedRecipe) -> int:
        return next((at for at, each in enumerate(line.waiters, 1) if each.session_id == session_id), 0)

    def deadlock_json(circle: list[Wait]) -> Answer:
        waits = [
            (truncated_text(wait.lock), contender(wait.entry), contender(wait.holder))
            for wait in circle[:MAX_CONTENDERS]
        ]
        return {
            "clients": len(circle),
            "waits": [{"lock": lock, "waiter": waiter, "holder": holder} for lock, waiter, holder in waits],
        }

    return {
        "now": now,
        "locks": len(lines),
        "waiters": sum(len(line.waiters) for line in lines),
        "longest": {"path": truncated_text(longest.path), "since": longest_wait_start(longest)}
        if longest is not None
        else None,
        "circles": len(circles),
        "shared": LockRows(lines, recipe_json, pace),
        "deadlocks": map(deadlock_json, circles),
    }


def quota_json(limits: bytes | None, stats: bytes | None) -> Answer:
    """Return the texts of a quota: the limits, and the usage of the subtree."""
    return {
        name: truncated_text((data or b"").decode("utf-8", "replace"))
        for name, data in (("limits", limits), ("used", stats))
    }


def acl_json(acl: AclList, *, trusted: bool) -> list[Answer]:
    """Return an ACL list: scheme, id and permissions. Only users with the token see password hashes."""
    return [
        {
            "scheme": truncated_text(entry.id.scheme or ""),
            "id": truncated_text((entry.id.id or "") if trusted else name_without_hash(entry.id)),
            "permissions": perms_text(entry.perms),
        }
        for entry in acl[:MAX_LISTED]
    ]


def stat_json(stat: Stat, kind: str, creates: int) -> Answer:
    """Return a Stat with human-readable names. *creates* is the number of children that were ever created."""
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
        "next_sequence": sequence_suffix(creates),
    }
